-- What a language model does for the server while its service rejects the key, for the operator.
CREATE TABLE rejected_keys (
  role TEXT NOT NULL PRIMARY KEY,
  -- Of HTTP: 401 or 403.
  status INTEGER NOT NULL,
  since TIMESTAMPTZ NOT NULL
);

GRANT SELECT, INSERT, UPDATE, DELETE ON rejected_keys TO recall_system;
ALTER TABLE rejected_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE rejected_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY across ON rejected_keys TO recall_system USING (true) WITH CHECK (true);

-- The jobs that wait for another key, or were given up for that.
CREATE INDEX operations_key_rejected ON operations (namespace, id)
  WHERE error_code = 'MODEL_KEY_REJECTED' AND state IN ('queued', 'failed');
