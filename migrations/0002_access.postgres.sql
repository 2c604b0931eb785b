-- Who may enter, and the book of what was done.
-- The token itself is never here: only its SHA-256, and an accessor to name it by.
CREATE TABLE api_tokens (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  accessor TEXT NOT NULL,
  token_hash TEXT NOT NULL,
  label TEXT NOT NULL DEFAULT '',
  created_at TIMESTAMPTZ NOT NULL,
  revoked_at TIMESTAMPTZ,
  PRIMARY KEY (namespace, accessor)
);
CREATE INDEX api_tokens_by_hash ON api_tokens (token_hash);
CREATE INDEX api_tokens_by_accessor ON api_tokens (accessor);

-- The book. Ids, counts and codes; never text.
CREATE TABLE tool_call_records (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  id TEXT NOT NULL,
  at TIMESTAMPTZ NOT NULL,
  door TEXT NOT NULL,
  operation TEXT NOT NULL,
  accessor TEXT,
  request_id TEXT NOT NULL,
  ids JSONB NOT NULL,
  counts JSONB NOT NULL,
  outcome TEXT NOT NULL,
  code TEXT,
  milliseconds DOUBLE PRECISION NOT NULL,
  model TEXT,
  input_tokens BIGINT NOT NULL DEFAULT 0,
  output_tokens BIGINT NOT NULL DEFAULT 0,
  cost_usd DOUBLE PRECISION NOT NULL DEFAULT 0,
  PRIMARY KEY (namespace, id)
);
CREATE INDEX tool_call_records_by_time ON tool_call_records (namespace, at);

GRANT SELECT, INSERT, UPDATE ON api_tokens TO recall_app;
GRANT SELECT ON api_tokens TO recall_system;
ALTER TABLE api_tokens ENABLE ROW LEVEL SECURITY;
ALTER TABLE api_tokens FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON api_tokens TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
CREATE POLICY across ON api_tokens TO recall_system USING (true) WITH CHECK (true);

GRANT SELECT, INSERT ON tool_call_records TO recall_app;
GRANT SELECT ON tool_call_records TO recall_system;
ALTER TABLE tool_call_records ENABLE ROW LEVEL SECURITY;
ALTER TABLE tool_call_records FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON tool_call_records TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
CREATE POLICY across ON tool_call_records TO recall_system USING (true) WITH CHECK (true);
