-- Each change of a memory or a passage, with who made it and why, and the state that it left a
-- memory in: that of any moment is read from the last one before it. No words.
CREATE TABLE memory_events (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  seq BIGINT NOT NULL,
  -- The job, task or import that it is a part of; '' of what came before there were events.
  change_id TEXT NOT NULL,
  at TIMESTAMPTZ NOT NULL,
  kind TEXT NOT NULL,
  reason TEXT NOT NULL,
  operation TEXT NOT NULL,
  accessor TEXT,
  item_id TEXT COLLATE "C" NOT NULL,
  -- The text that the item is, or is a part of; null of a memory.
  episode_id TEXT,
  status TEXT,
  superseded_by TEXT,
  valid_until TIMESTAMPTZ,
  retired_at TIMESTAMPTZ,
  expires_at TIMESTAMPTZ,
  confidence DOUBLE PRECISION,
  reinforcements BIGINT,
  -- The position of the next citation.
  citations INTEGER,
  -- The citations that it took away.
  dropped JSONB,
  PRIMARY KEY (namespace, seq)
);
CREATE INDEX memory_events_by_item ON memory_events (namespace, item_id, seq);
CREATE INDEX memory_events_by_change ON memory_events (namespace, change_id, seq);
CREATE INDEX memory_events_by_episode ON memory_events (namespace, episode_id)
  WHERE episode_id IS NOT NULL;
-- The number of the last one: never given twice.
ALTER TABLE namespaces ADD COLUMN last_event BIGINT NOT NULL DEFAULT 0;

-- Their owner reads and changes rows of all tenants, this once.
ALTER TABLE namespaces NO FORCE ROW LEVEL SECURITY;
ALTER TABLE episodes NO FORCE ROW LEVEL SECURITY;
ALTER TABLE quarantine NO FORCE ROW LEVEL SECURITY;
ALTER TABLE memories NO FORCE ROW LEVEL SECURITY;
ALTER TABLE citations NO FORCE ROW LEVEL SECURITY;
ALTER TABLE forgotten NO FORCE ROW LEVEL SECURITY;
INSERT INTO memory_events (
  namespace, seq, change_id, at, kind, reason, operation, item_id, episode_id, status,
  superseded_by, valid_until, retired_at, expires_at, confidence, reinforcements, citations
)
SELECT namespace, row_number() OVER (PARTITION BY namespace ORDER BY at, place, item_id), '', at,
  kind, '', '', item_id, episode_id, status, superseded_by, valid_until, retired_at, expires_at,
  confidence, reinforcements, citations
FROM (
  SELECT namespace, recorded_at AS at, 0 AS place, 'added' AS kind, id AS item_id,
    id AS episode_id, CAST(NULL AS text) AS status,
    CAST(NULL AS text) AS superseded_by, CAST(NULL AS timestamptz) AS valid_until,
    CAST(NULL AS timestamptz) AS retired_at, CAST(NULL AS timestamptz) AS expires_at,
    CAST(NULL AS double precision) AS confidence, CAST(NULL AS bigint) AS reinforcements,
    CAST(NULL AS integer) AS citations
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
) AS before;
UPDATE namespaces SET last_event = COALESCE(
  (SELECT max(seq) FROM memory_events e WHERE e.namespace = namespaces.namespace), 0);
ALTER TABLE namespaces FORCE ROW LEVEL SECURITY;
ALTER TABLE episodes FORCE ROW LEVEL SECURITY;
ALTER TABLE quarantine FORCE ROW LEVEL SECURITY;
ALTER TABLE memories FORCE ROW LEVEL SECURITY;
ALTER TABLE citations FORCE ROW LEVEL SECURITY;
ALTER TABLE forgotten FORCE ROW LEVEL SECURITY;

GRANT SELECT, INSERT ON memory_events TO recall_app;
GRANT UPDATE (superseded_by), DELETE ON memory_events TO recall_eraser;
ALTER TABLE memory_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE memory_events FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memory_events TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));

-- All states of a memory that has a row.
ALTER TABLE memories DROP CONSTRAINT memories_status_check;
ALTER TABLE memories ADD CONSTRAINT memories_status_check
  CHECK (status IN ('active', 'disputed', 'superseded', 'deprecated', 'consolidated', 'expired',
    'quarantined', 'forgotten'));
ALTER TABLE memories DROP CONSTRAINT memories_check;
ALTER TABLE memories ADD CONSTRAINT memories_check
  CHECK ((status IN ('active', 'disputed')) = (retired_at IS NULL));
