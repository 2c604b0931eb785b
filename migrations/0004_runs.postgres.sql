-- Consolidations under way, paused and done: what A2A calls tasks.
CREATE TABLE runs (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  id TEXT NOT NULL,
  context_id TEXT NOT NULL,
  state TEXT NOT NULL CHECK (
    state IN ('submitted', 'working', 'input-required', 'completed', 'failed', 'canceled')),
  version BIGINT NOT NULL,
  round BIGINT NOT NULL,
  events BIGINT NOT NULL,
  accessor TEXT,
  created_at TIMESTAMPTZ NOT NULL,
  changed_at TIMESTAMPTZ NOT NULL,
  expires_at TIMESTAMPTZ,
  request JSONB NOT NULL,
  work JSONB NOT NULL,
  status JSONB NOT NULL,
  messages JSONB NOT NULL,
  outcome JSONB,
  PRIMARY KEY (namespace, id)
);
CREATE INDEX runs_by_change ON runs (namespace, changed_at, id);
CREATE INDEX runs_by_context ON runs (namespace, context_id, changed_at, id);
CREATE INDEX runs_by_state ON runs (namespace, state, changed_at, id);

-- What happened to a run, in order: for whoever watches it from another process, and for push.
CREATE TABLE run_events (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  run_id TEXT NOT NULL,
  seq BIGINT NOT NULL,
  status JSONB,
  outcome JSONB,
  PRIMARY KEY (namespace, run_id, seq)
);

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
  decided_at TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (namespace, memory_id, question_id)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON runs TO recall_app;
ALTER TABLE runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE runs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON runs TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));

GRANT SELECT, INSERT, DELETE ON run_events TO recall_app;
ALTER TABLE run_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE run_events FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON run_events TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));

GRANT SELECT, INSERT ON decisions TO recall_app;
ALTER TABLE decisions ENABLE ROW LEVEL SECURITY;
ALTER TABLE decisions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON decisions TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
