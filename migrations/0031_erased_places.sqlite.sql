-- Where an erased text stood, as keyed digests of its labels: a limited token is refused only what
-- was erased within its access scope. Of earlier erasures it is not known: ''.
CREATE TABLE erased_anew (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  digest TEXT NOT NULL,
  topic TEXT NOT NULL DEFAULT '',
  container TEXT NOT NULL DEFAULT '',
  agent TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (namespace, digest, topic, container, agent)
) WITHOUT ROWID;
INSERT INTO erased_anew (namespace, digest) SELECT namespace, digest FROM erased;
DROP TABLE erased;
ALTER TABLE erased_anew RENAME TO erased;
