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
  item_id TEXT NOT NULL,
  episode_id TEXT NOT NULL,
  span_start INTEGER NOT NULL,
  span_end INTEGER NOT NULL,
  forgotten_at TEXT NOT NULL,
  PRIMARY KEY (namespace, item_id, episode_id, span_start, span_end),
  FOREIGN KEY (namespace, episode_id) REFERENCES episodes (namespace, id)
) WITHOUT ROWID;
CREATE INDEX forgotten_by_episode ON forgotten (namespace, episode_id);
INSERT INTO forgotten (namespace, item_id, episode_id, span_start, span_end, forgotten_at)
SELECT DISTINCT c.namespace, c.memory_id, c.episode_id, c.span_start, c.span_end, m.retired_at
FROM citations c JOIN memories m ON m.namespace = c.namespace AND m.id = c.memory_id
WHERE m.status = 'forgotten';

-- What memories cite is found again; the indexes are made anew when the server starts.
UPDATE turns SET state = 'open' WHERE state = 'covered';
UPDATE namespaces SET words_stale = TRUE;
