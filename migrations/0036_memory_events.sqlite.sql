-- Each change of a memory or a passage, with who made it and why, and the state that it left a
-- memory in: that of any moment is read from the last one before it. No words.
CREATE TABLE memory_events (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  seq INTEGER NOT NULL,
  -- The job, task or import that it is a part of; '' of what came before there were events.
  change_id TEXT NOT NULL,
  at TEXT NOT NULL,
  kind TEXT NOT NULL,
  reason TEXT NOT NULL,
  operation TEXT NOT NULL,
  accessor TEXT,
  item_id TEXT NOT NULL,
  -- The text that the item is, or is a part of; null of a memory.
  episode_id TEXT,
  status TEXT,
  superseded_by TEXT,
  valid_until TEXT,
  retired_at TEXT,
  expires_at TEXT,
  confidence REAL,
  reinforcements INTEGER,
  -- The position of the next citation.
  citations INTEGER,
  -- The citations that it took away.
  dropped TEXT,
  PRIMARY KEY (namespace, seq)
) WITHOUT ROWID;
CREATE INDEX memory_events_by_item ON memory_events (namespace, item_id, seq);
CREATE INDEX memory_events_by_change ON memory_events (namespace, change_id, seq);
CREATE INDEX memory_events_by_episode ON memory_events (namespace, episode_id)
  WHERE episode_id IS NOT NULL;
-- The number of the last one: never given twice.
ALTER TABLE namespaces ADD COLUMN last_event INTEGER NOT NULL DEFAULT 0;

INSERT INTO memory_events (
  namespace, seq, change_id, at, kind, reason, operation, item_id, episode_id, status,
  superseded_by, valid_until, retired_at, expires_at, confidence, reinforcements, citations
)
SELECT namespace, row_number() OVER (PARTITION BY namespace ORDER BY at, place, item_id), '', at,
  kind, '', '', item_id, episode_id, status, superseded_by, valid_until, retired_at, expires_at,
  confidence, reinforcements, citations
FROM (
  SELECT namespace, recorded_at AS at, 0 AS place, 'added' AS kind, id AS item_id,
    id AS episode_id, NULL AS status, NULL AS superseded_by, NULL AS valid_until,
    NULL AS retired_at, NULL AS expires_at, NULL AS confidence, NULL AS reinforcements,
    NULL AS citations
  FROM episodes
  UNION ALL
  SELECT namespace, held_at, 1, 'quarantined', item_id, episode_id, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL
  FROM quarantine
  UNION ALL
  SELECT namespace, decided_at, 2, state, item_id, episode_id, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL
  FROM quarantine WHERE decided_at IS NOT NULL
  UNION ALL
  SELECT m.namespace, m.recorded_at, 3, 'added', m.id, NULL, 'active', NULL,
    CASE WHEN m.status = 'active' THEN m.valid_until END, NULL, m.expires_at, m.confidence,
    m.reinforcements, c.citations
  FROM memories m LEFT JOIN (
    SELECT namespace, memory_id, max(position) + 1 AS citations FROM citations
    GROUP BY namespace, memory_id
  ) c ON c.namespace = m.namespace AND c.memory_id = m.id
  UNION ALL
  SELECT m.namespace, m.retired_at, 4, m.status, m.id, NULL, m.status, m.superseded_by,
    m.valid_until, m.retired_at, m.expires_at, m.confidence, m.reinforcements, c.citations
  FROM memories m LEFT JOIN (
    SELECT namespace, memory_id, max(position) + 1 AS citations FROM citations
    GROUP BY namespace, memory_id
  ) c ON c.namespace = m.namespace AND c.memory_id = m.id
  WHERE m.status <> 'active'
  UNION ALL
  SELECT namespace, forgotten_at, 5,
    CASE WHEN item_id = episode_id THEN 'expired' ELSE 'forgotten' END, item_id, episode_id, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM (
    SELECT DISTINCT namespace, forgotten_at, item_id, episode_id FROM forgotten
    WHERE item_id = episode_id OR substr(item_id, 1, length(episode_id) + 1) = episode_id || '.'
  ) AS passages
);
UPDATE namespaces SET last_event = COALESCE(
  (SELECT max(seq) FROM memory_events e WHERE e.namespace = namespaces.namespace), 0);

-- All states of a memory that has a row: see 0028 on how SQLite changes a check.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(replace(sql,
  '''active'', ''superseded'', ''expired'', ''forgotten''',
  '''active'', ''disputed'', ''superseded'', ''deprecated'', ''consolidated'', ''expired'','
    || ' ''quarantined'', ''forgotten'''),
  '(status = ''active'') = (retired_at IS NULL)',
  '(status IN (''active'', ''disputed'')) = (retired_at IS NULL)')
WHERE type = 'table' AND name = 'memories';
PRAGMA writable_schema = RESET;
