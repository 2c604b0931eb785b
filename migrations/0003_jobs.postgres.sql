-- What is to be done.
-- Work that was promised in the transaction of its cause. due_at is the earliest start of a queued
-- job and the end of the lease of a running one, so that one index finds both.
CREATE TABLE operations (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  id TEXT NOT NULL,
  kind TEXT NOT NULL,
  payload JSONB NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('queued', 'processing', 'complete', 'failed')),
  attempt BIGINT NOT NULL DEFAULT 0,
  failures BIGINT NOT NULL DEFAULT 0,
  due_at TIMESTAMPTZ NOT NULL,
  created_at TIMESTAMPTZ NOT NULL,
  finished_at TIMESTAMPTZ,
  error_code TEXT,
  PRIMARY KEY (namespace, id)
);
CREATE INDEX operations_due ON operations (namespace, due_at)
  WHERE state IN ('queued', 'processing');
CREATE INDEX operations_by_state ON operations (namespace, kind, state);

GRANT SELECT, INSERT, UPDATE ON operations TO recall_app;
GRANT SELECT, INSERT, UPDATE ON operations TO recall_system;
ALTER TABLE operations ENABLE ROW LEVEL SECURITY;
ALTER TABLE operations FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON operations TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
CREATE POLICY across ON operations TO recall_system USING (true) WITH CHECK (true);
