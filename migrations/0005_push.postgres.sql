-- Where the news of a run are sent.
-- The events of the run are the outbox; delivered_seq is how far they have been sent. A sender
-- holds its row until claimed_until, and after a failure it rests until then.
CREATE TABLE push_configs (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  run_id TEXT NOT NULL,
  -- Ids are the callers' own; pages of them must come in the same order on every engine.
  id TEXT COLLATE "C" NOT NULL,
  url TEXT NOT NULL,
  scheme TEXT NOT NULL,
  -- Token and credentials, encrypted.
  secret BYTEA,
  delivered_seq BIGINT NOT NULL,
  failures BIGINT NOT NULL DEFAULT 0,
  claimed_by TEXT,
  claimed_until TIMESTAMPTZ,
  created_at TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (namespace, run_id, id)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON push_configs TO recall_app;
ALTER TABLE push_configs ENABLE ROW LEVEL SECURITY;
ALTER TABLE push_configs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON push_configs TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
