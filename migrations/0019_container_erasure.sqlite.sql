-- A container can be erased as a whole. What an erasure may be of is told by a check, and SQLite
-- changes one by making the table anew; the trigger that looks into it is put back as it was.
DROP TRIGGER episodes_are_append_only;
ALTER TABLE erasures RENAME TO erasures_before;
DROP INDEX erasures_by_id;
DROP INDEX erasures_open;
CREATE TABLE erasures (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('namespace', 'container', 'subject', 'memory')),
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
  -- What was asked for, sealed: the line that is noted outside of the database.
  sealed TEXT,
  PRIMARY KEY (namespace, id)
) WITHOUT ROWID;
INSERT INTO erasures (namespace, id, kind, requested_by, requested_at, state, claims, left_behind,
  purged_at, secret_hash, receipt, collected_at, sealed)
SELECT namespace, id, kind, requested_by, requested_at, state, claims, left_behind,
  purged_at, secret_hash, receipt, collected_at, sealed
FROM erasures_before;
DROP TABLE erasures_before;
CREATE INDEX erasures_by_id ON erasures (id);
CREATE INDEX erasures_open ON erasures (namespace, id) WHERE state <> 'done';
CREATE TRIGGER episodes_are_append_only BEFORE UPDATE ON episodes
WHEN length(NEW.text) <> length(OLD.text) OR NEW.id <> OLD.id OR NEW.namespace <> OLD.namespace
  OR NOT EXISTS (
    SELECT 1 FROM erasures e WHERE e.namespace = OLD.namespace AND e.state = 'erasing')
BEGIN
  SELECT RAISE(ABORT, 'episodes are never changed');
END;

-- What is in a container is found without going through all that is in none.
CREATE INDEX episodes_by_container ON episodes (namespace, container, id) WHERE container <> '';
CREATE INDEX memories_by_container ON memories (namespace, container, id) WHERE container <> '';
