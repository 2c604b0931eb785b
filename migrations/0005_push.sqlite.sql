-- Where the news of a run are sent.
-- The events of the run are the outbox; delivered_seq is how far they have been sent. A sender
-- holds its row until claimed_until, and after a failure it rests until then.
CREATE TABLE push_configs (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  run_id TEXT NOT NULL,
  id TEXT NOT NULL,
  url TEXT NOT NULL,
  scheme TEXT NOT NULL,
  -- Token and credentials, encrypted.
  secret BLOB,
  delivered_seq INTEGER NOT NULL,
  failures INTEGER NOT NULL DEFAULT 0,
  claimed_by TEXT,
  claimed_until TEXT,
  created_at TEXT NOT NULL,
  PRIMARY KEY (namespace, run_id, id)
) WITHOUT ROWID;
