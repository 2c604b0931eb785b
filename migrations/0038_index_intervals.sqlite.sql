-- An entry of the index says from when to when search found it, and how long it is: so a search can
-- ask for what was found then, with the statistics of then. What is hidden keeps its words and its
-- vectors; only an erasure takes them out. Of what was hidden before they are gone.
ALTER TABLE documents ADD COLUMN added_at TEXT;
ALTER TABLE documents ADD COLUMN hidden_at TEXT;
ALTER TABLE documents ADD COLUMN length INTEGER NOT NULL DEFAULT 0;
UPDATE documents SET added_at = COALESCE(
  (SELECT m.recorded_at FROM memories m
    WHERE m.namespace = documents.namespace AND m.id = documents.item_id),
  (SELECT e.recorded_at FROM turns t
    JOIN episodes e ON e.namespace = t.namespace AND e.id = t.episode_id
    WHERE t.namespace = documents.namespace AND t.id = documents.turn_id),
  (SELECT n.created_at FROM namespaces n WHERE n.namespace = documents.namespace));
UPDATE documents SET hidden_at = added_at WHERE NOT findable;
UPDATE documents SET length = p.length
FROM (SELECT namespace, slot, max(length) AS length FROM postings GROUP BY namespace, slot) AS p
WHERE p.namespace = documents.namespace AND p.slot = documents.slot;

-- A vector is that of one entry.
CREATE TABLE embeddings_anew (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  model TEXT NOT NULL,
  item_id TEXT NOT NULL,
  document INTEGER NOT NULL,
  vector BLOB NOT NULL,
  version INTEGER NOT NULL,
  slot INTEGER NOT NULL,
  code TEXT NOT NULL,
  PRIMARY KEY (namespace, model, item_id, document)
);
INSERT INTO embeddings_anew (
  namespace, model, item_id, document, vector, version, slot, code
) SELECT namespace, model, item_id, document, vector, version, slot, code FROM embeddings;
DROP TABLE embeddings;
ALTER TABLE embeddings_anew RENAME TO embeddings;
CREATE INDEX embeddings_by_version ON embeddings (namespace, model, version);
CREATE INDEX embeddings_by_item ON embeddings (namespace, item_id);
CREATE INDEX embeddings_by_slot ON embeddings (namespace, model, slot, document, code);

-- With a rowid, as SQLite takes the key of a table without one for the shortest way to all of its
-- rows: it would go through all events of a namespace for those of one memory.
CREATE TABLE memory_events_anew (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  seq INTEGER NOT NULL,
  change_id TEXT NOT NULL,
  at TEXT NOT NULL,
  kind TEXT NOT NULL,
  reason TEXT NOT NULL,
  operation TEXT NOT NULL,
  accessor TEXT,
  item_id TEXT NOT NULL,
  episode_id TEXT,
  status TEXT,
  superseded_by TEXT,
  valid_until TEXT,
  retired_at TEXT,
  expires_at TEXT,
  confidence REAL,
  reinforcements INTEGER,
  citations INTEGER,
  dropped TEXT,
  PRIMARY KEY (namespace, seq)
);
INSERT INTO memory_events_anew SELECT * FROM memory_events ORDER BY namespace, seq;
DROP TABLE memory_events;
ALTER TABLE memory_events_anew RENAME TO memory_events;
CREATE INDEX memory_events_by_item ON memory_events (namespace, item_id, seq, at, status);
CREATE INDEX memory_events_by_change ON memory_events (namespace, change_id, seq);
CREATE INDEX memory_events_by_episode ON memory_events (namespace, episode_id)
  WHERE episode_id IS NOT NULL;
-- Few are: by these a search of the past knows the words that were hidden then.
CREATE INDEX memory_events_forgotten ON memory_events (namespace, item_id, seq, at)
  WHERE status = 'forgotten';
CREATE INDEX memory_events_superseded ON memory_events (namespace, superseded_by)
  WHERE superseded_by IS NOT NULL;
