-- What is to be done.
-- Work that was promised in the transaction of its cause. due_at is the earliest start of a queued
-- job and the end of the lease of a running one, so that one index finds both.
CREATE TABLE operations (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  id TEXT NOT NULL,
  kind TEXT NOT NULL,
  payload TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('queued', 'processing', 'complete', 'failed')),
  attempt INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,
  due_at TEXT NOT NULL,
  created_at TEXT NOT NULL,
  finished_at TEXT,
  error_code TEXT,
  PRIMARY KEY (namespace, id)
);
CREATE INDEX operations_due ON operations (namespace, due_at)
  WHERE state IN ('queued', 'processing');
CREATE INDEX operations_by_state ON operations (namespace, kind, state);
