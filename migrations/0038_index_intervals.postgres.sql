-- An entry of the index says from when to when search found it, and how long it is: so a search can
-- ask for what was found then, with the statistics of then. What is hidden keeps its words and its
-- vectors; only an erasure takes them out. Of what was hidden before they are gone.
ALTER TABLE documents ADD COLUMN added_at TIMESTAMPTZ;
ALTER TABLE documents ADD COLUMN hidden_at TIMESTAMPTZ;
ALTER TABLE documents ADD COLUMN length BIGINT NOT NULL DEFAULT 0;
-- Their owner reads and changes rows of all tenants, this once.
ALTER TABLE documents NO FORCE ROW LEVEL SECURITY;
ALTER TABLE memories NO FORCE ROW LEVEL SECURITY;
ALTER TABLE turns NO FORCE ROW LEVEL SECURITY;
ALTER TABLE episodes NO FORCE ROW LEVEL SECURITY;
ALTER TABLE namespaces NO FORCE ROW LEVEL SECURITY;
ALTER TABLE postings NO FORCE ROW LEVEL SECURITY;
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
ALTER TABLE documents FORCE ROW LEVEL SECURITY;
ALTER TABLE memories FORCE ROW LEVEL SECURITY;
ALTER TABLE turns FORCE ROW LEVEL SECURITY;
ALTER TABLE episodes FORCE ROW LEVEL SECURITY;
ALTER TABLE namespaces FORCE ROW LEVEL SECURITY;
ALTER TABLE postings FORCE ROW LEVEL SECURITY;

-- A vector is that of one entry.
ALTER TABLE embeddings DROP CONSTRAINT embeddings_pkey;
ALTER TABLE embeddings ADD PRIMARY KEY (namespace, model, item_id, document);

DROP INDEX memory_events_by_item;
CREATE INDEX memory_events_by_item ON memory_events (namespace, item_id, seq)
  INCLUDE (at, status);
-- Few are: by these a search of the past knows the words that were hidden then.
CREATE INDEX memory_events_forgotten ON memory_events (namespace, item_id, seq) INCLUDE (at)
  WHERE status = 'forgotten';
-- An erasure takes out the links to what is gone.
CREATE INDEX memory_events_superseded ON memory_events (namespace, superseded_by)
  WHERE superseded_by IS NOT NULL;
