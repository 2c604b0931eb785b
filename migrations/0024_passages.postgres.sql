-- The index has an entry for each passage: a part of a turn, found whether a memory cites it or not.
-- Where a passage stands, and the heading above it; null of a memory.
ALTER TABLE documents ADD COLUMN turn_id TEXT;
ALTER TABLE documents ADD COLUMN span_start INTEGER;
ALTER TABLE documents ADD COLUMN span_end INTEGER;
ALTER TABLE documents ADD COLUMN heading_start INTEGER;
ALTER TABLE documents ADD COLUMN heading_end INTEGER;

-- Words that are neither found nor shown: those that a forgotten memory or passage rests on.
CREATE TABLE forgotten (
  namespace TEXT NOT NULL,
  item_id TEXT COLLATE "C" NOT NULL,
  episode_id TEXT NOT NULL,
  span_start INTEGER NOT NULL,
  span_end INTEGER NOT NULL,
  forgotten_at TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (namespace, item_id, episode_id, span_start, span_end),
  FOREIGN KEY (namespace, episode_id) REFERENCES episodes (namespace, id)
);
CREATE INDEX forgotten_by_episode ON forgotten (namespace, episode_id);

-- Their owner reads and changes rows of all tenants, this once.
ALTER TABLE citations NO FORCE ROW LEVEL SECURITY;
ALTER TABLE memories NO FORCE ROW LEVEL SECURITY;
ALTER TABLE turns NO FORCE ROW LEVEL SECURITY;
ALTER TABLE namespaces NO FORCE ROW LEVEL SECURITY;
INSERT INTO forgotten (namespace, item_id, episode_id, span_start, span_end, forgotten_at)
SELECT DISTINCT c.namespace, c.memory_id, c.episode_id, c.span_start, c.span_end, m.retired_at
FROM citations c JOIN memories m ON m.namespace = c.namespace AND m.id = c.memory_id
WHERE m.status = 'forgotten';
-- What memories cite is found again; the indexes are made anew when the server starts.
UPDATE turns SET state = 'open' WHERE state = 'covered';
UPDATE namespaces SET words_stale = TRUE;
ALTER TABLE citations FORCE ROW LEVEL SECURITY;
ALTER TABLE memories FORCE ROW LEVEL SECURITY;
ALTER TABLE turns FORCE ROW LEVEL SECURITY;
ALTER TABLE namespaces FORCE ROW LEVEL SECURITY;

GRANT SELECT, INSERT, DELETE ON forgotten TO recall_app;
GRANT DELETE ON forgotten TO recall_eraser;
-- Of passages that read otherwise now.
GRANT DELETE ON embeddings TO recall_app;
ALTER TABLE forgotten ENABLE ROW LEVEL SECURITY;
ALTER TABLE forgotten FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON forgotten TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
