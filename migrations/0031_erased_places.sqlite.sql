-- Where an erased text stood, as keyed digests of its labels: a limited token is refused only what
-- was erased within its access scope. Of earlier erasures it is not known: ''.
CREATE TABLE erased_anew (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  digest TEXT NOT NULL,
  topic_digest TEXT NOT NULL DEFAULT '',
  container_digest TEXT NOT NULL DEFAULT '',
  agent_digest TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (namespace, digest, topic_digest, container_digest, agent_digest)
) WITHOUT ROWID;
INSERT INTO erased_anew (namespace, digest) SELECT namespace, digest FROM erased;
DROP TABLE erased;
ALTER TABLE erased_anew RENAME TO erased;
