-- What no rule may settle: both sides stay, and are marked so until somebody answers. A row for each
-- memory that a question is about. closed_at: when it was answered, or nothing was left to ask.
CREATE TABLE disputes (
  namespace TEXT NOT NULL,
  question_id TEXT COLLATE "C" NOT NULL,
  memory_id TEXT COLLATE "C" NOT NULL,
  side TEXT NOT NULL CHECK (side IN ('existing', 'new')),
  opened_at TIMESTAMPTZ NOT NULL,
  closed_at TIMESTAMPTZ,
  PRIMARY KEY (namespace, question_id, memory_id),
  FOREIGN KEY (namespace, memory_id) REFERENCES memories (namespace, id)
);
CREATE INDEX disputes_by_memory ON disputes (namespace, memory_id);
CREATE INDEX disputes_open ON disputes (namespace, opened_at, question_id)
  WHERE closed_at IS NULL;

-- What one memory is to another. That one took the place of another stands with the other one.
-- Of an import the memory at the far end may come later, or never.
CREATE TABLE relations (
  namespace TEXT NOT NULL,
  from_id TEXT COLLATE "C" NOT NULL,
  to_id TEXT COLLATE "C" NOT NULL,
  kind TEXT NOT NULL,
  reason TEXT NOT NULL,
  confidence DOUBLE PRECISION NOT NULL,
  made_by TEXT,
  made_at TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (namespace, from_id, to_id, kind),
  FOREIGN KEY (namespace, from_id) REFERENCES memories (namespace, id)
);
CREATE INDEX relations_back ON relations (namespace, to_id);

GRANT SELECT, INSERT, UPDATE ON disputes, relations TO recall_app;
GRANT DELETE ON disputes, relations TO recall_eraser;
ALTER TABLE disputes ENABLE ROW LEVEL SECURITY;
ALTER TABLE disputes FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON disputes TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
ALTER TABLE relations ENABLE ROW LEVEL SECURITY;
ALTER TABLE relations FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON relations TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
