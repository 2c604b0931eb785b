-- Changes that somebody proposes, which wait until somebody accepts them. A row for each memory that
-- one is about: what it would add, which is kept as nothing finds it, and what it would replace or
-- forget. closed_at: when it was answered, or taken back.
CREATE TABLE proposals (
  namespace TEXT NOT NULL,
  id TEXT COLLATE "C" NOT NULL,
  memory_id TEXT COLLATE "C" NOT NULL,
  side TEXT NOT NULL CHECK (side IN ('target', 'new')),
  kind TEXT NOT NULL,
  made_by TEXT,
  opened_at TIMESTAMPTZ NOT NULL,
  closed_at TIMESTAMPTZ,
  choice TEXT,
  decided_by TEXT,
  PRIMARY KEY (namespace, id, memory_id),
  FOREIGN KEY (namespace, memory_id) REFERENCES memories (namespace, id)
);
CREATE INDEX proposals_by_memory ON proposals (namespace, memory_id);
CREATE INDEX proposals_open ON proposals (namespace, opened_at, id) WHERE closed_at IS NULL;

GRANT SELECT, INSERT, UPDATE ON proposals TO recall_app;
GRANT DELETE ON proposals TO recall_eraser;
ALTER TABLE proposals ENABLE ROW LEVEL SECURITY;
ALTER TABLE proposals FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON proposals TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));

-- Labels of a text, and when it ends, may change; what was said, when and by whom may not.
GRANT UPDATE (tags, metadata, expired_at, stored_bytes) ON episodes TO recall_app;

-- A keyed digest of what a call was given; records from before it, and those of no call, have none.
ALTER TABLE tool_call_records ADD COLUMN inputs_hash TEXT;

-- What was made without the model that is set, until it is made again.
CREATE INDEX operations_unreconciled ON operations (namespace, kind)
  WHERE state = 'complete' AND error_code IS NOT NULL;
