-- Where an erased text stood, as keyed digests of its labels: a limited token is refused only what
-- was erased within its access scope. Of earlier erasures it is not known: ''.
ALTER TABLE erased
  ADD COLUMN topic_digest TEXT NOT NULL DEFAULT '',
  ADD COLUMN container_digest TEXT NOT NULL DEFAULT '',
  ADD COLUMN agent_digest TEXT NOT NULL DEFAULT '',
  DROP CONSTRAINT erased_pkey,
  ADD PRIMARY KEY (namespace, digest, topic_digest, container_digest, agent_digest);
