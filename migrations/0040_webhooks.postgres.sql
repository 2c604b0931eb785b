-- Where the events of a namespace are sent. delivered_seq is how far they have been.
CREATE TABLE webhooks (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  id TEXT COLLATE "C" NOT NULL,
  url TEXT NOT NULL,
  -- The kinds of event that it is told of.
  kinds JSONB NOT NULL,
  include_text INTEGER NOT NULL,
  -- With it each delivery is signed; encrypted.
  secret BYTEA NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('active', 'dead')),
  -- Of the last delivery, where it failed.
  error_code TEXT,
  failures INTEGER NOT NULL DEFAULT 0,
  delivered_seq BIGINT NOT NULL,
  delivered_at TIMESTAMPTZ,
  created_at TIMESTAMPTZ NOT NULL,
  -- The token that registered it, with which it ends, and the end of a JWT.
  accessor TEXT,
  token_ends_at TIMESTAMPTZ,
  PRIMARY KEY (namespace, id)
);

-- What is still to be sent: where it happened is in the tables of memories, tasks, jobs and
-- erasures, by item_id, and of a memory in memory_events, by seq, which both share.
CREATE TABLE webhook_events (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  seq BIGINT NOT NULL,
  kind TEXT NOT NULL,
  item_id TEXT COLLATE "C" NOT NULL,
  at TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (namespace, seq)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON webhooks TO recall_app;
GRANT SELECT, INSERT, DELETE ON webhook_events TO recall_app;
ALTER TABLE webhooks ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhooks FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON webhooks TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
ALTER TABLE webhook_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhook_events FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON webhook_events TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
