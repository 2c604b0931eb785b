-- Consolidations under way, paused and done: what A2A calls tasks.
CREATE TABLE runs (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  id TEXT NOT NULL,
  context_id TEXT NOT NULL,
  state TEXT NOT NULL CHECK (
    state IN ('submitted', 'working', 'input-required', 'completed', 'failed', 'canceled')),
  version INTEGER NOT NULL,
  round INTEGER NOT NULL,
  events INTEGER NOT NULL,
  accessor TEXT,
  created_at TEXT NOT NULL,
  changed_at TEXT NOT NULL,
  expires_at TEXT,
  request TEXT NOT NULL,
  work TEXT NOT NULL,
  status TEXT NOT NULL,
  messages TEXT NOT NULL,
  outcome TEXT,
  PRIMARY KEY (namespace, id)
);
CREATE INDEX runs_by_change ON runs (namespace, changed_at, id);
CREATE INDEX runs_by_context ON runs (namespace, context_id, changed_at, id);
CREATE INDEX runs_by_state ON runs (namespace, state, changed_at, id);

-- What happened to a run, in order: for whoever watches it from another process, and for push.
CREATE TABLE run_events (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  run_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  status TEXT,
  outcome TEXT,
  PRIMARY KEY (namespace, run_id, seq)
) WITHOUT ROWID;

-- Who settles contradictions that no rule settles, where a request does not say.
ALTER TABLE namespaces ADD COLUMN conflict_policy TEXT CHECK (
  conflict_policy IN ('ask', 'decide', 'keep_existing', 'keep_new', 'keep_both'));

-- Who decided what no rule could, for each memory that it was about.
CREATE TABLE decisions (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  memory_id TEXT NOT NULL,
  question_id TEXT NOT NULL,
  choice TEXT NOT NULL CHECK (choice IN ('keep_existing', 'keep_new', 'keep_both', 'merge')),
  decided_by TEXT NOT NULL,
  decided_at TEXT NOT NULL,
  PRIMARY KEY (namespace, memory_id, question_id)
) WITHOUT ROWID;
