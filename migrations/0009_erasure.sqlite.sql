-- What was erased, and what must not come back.
-- Goes up with each erasure, so that a cache can tell that it holds what is gone.
ALTER TABLE namespaces ADD COLUMN erase_epoch INTEGER NOT NULL DEFAULT 0;

-- One erasure: in numbers, never in words. left_behind says what the purge could not reach.
CREATE TABLE erasures (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('namespace', 'subject', 'memory')),
  requested_by TEXT NOT NULL,
  requested_at TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('erasing', 'logical', 'purging', 'done')),
  claims TEXT NOT NULL,
  left_behind TEXT NOT NULL DEFAULT '',
  purged_at TEXT,
  -- SHA-256 of what opens the receipt once; none where it was collected.
  secret_hash TEXT,
  receipt TEXT NOT NULL DEFAULT '',
  collected_at TEXT,
  PRIMARY KEY (namespace, id)
) WITHOUT ROWID;
CREATE INDEX erasures_by_id ON erasures (id);
CREATE INDEX erasures_open ON erasures (namespace, id) WHERE state <> 'done';

-- Keyed digests of erased texts: they tell nothing without the key of this server.
CREATE TABLE erased (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  digest TEXT NOT NULL,
  PRIMARY KEY (namespace, digest)
) WITHOUT ROWID;

-- An episode changes only while an erasure strikes words out of it, and keeps its length.
DROP TRIGGER episodes_are_append_only;
CREATE TRIGGER episodes_are_append_only BEFORE UPDATE ON episodes
WHEN length(NEW.text) <> length(OLD.text) OR NEW.id <> OLD.id OR NEW.namespace <> OLD.namespace
  OR NOT EXISTS (
    SELECT 1 FROM erasures e WHERE e.namespace = OLD.namespace AND e.state = 'erasing')
BEGIN
  SELECT RAISE(ABORT, 'episodes are never changed');
END;
