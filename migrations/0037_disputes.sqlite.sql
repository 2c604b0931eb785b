-- What no rule may settle: both sides stay, and are marked so until somebody answers. A row for each
-- memory that a question is about. closed_at: when it was answered, or nothing was left to ask.
CREATE TABLE disputes (
  namespace TEXT NOT NULL,
  question_id TEXT NOT NULL,
  memory_id TEXT NOT NULL,
  side TEXT NOT NULL CHECK (side IN ('existing', 'new')),
  opened_at TEXT NOT NULL,
  closed_at TEXT,
  PRIMARY KEY (namespace, question_id, memory_id),
  FOREIGN KEY (namespace, memory_id) REFERENCES memories (namespace, id)
) WITHOUT ROWID;
CREATE INDEX disputes_by_memory ON disputes (namespace, memory_id);
CREATE INDEX disputes_open ON disputes (namespace, opened_at, question_id)
  WHERE closed_at IS NULL;

-- What one memory is to another. That one took the place of another stands with the other one.
-- Of an import the memory at the far end may come later, or never.
CREATE TABLE relations (
  namespace TEXT NOT NULL,
  from_id TEXT NOT NULL,
  to_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  reason TEXT NOT NULL,
  confidence REAL NOT NULL,
  made_by TEXT,
  made_at TEXT NOT NULL,
  PRIMARY KEY (namespace, from_id, to_id, kind),
  FOREIGN KEY (namespace, from_id) REFERENCES memories (namespace, id)
) WITHOUT ROWID;
CREATE INDEX relations_back ON relations (namespace, to_id);
