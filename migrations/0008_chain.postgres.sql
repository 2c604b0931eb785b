-- The book becomes a chain: one for each namespace, each record with the digest of the one before.
-- Records from before stay as they are, without a place in it.
ALTER TABLE tool_call_records
  ADD COLUMN seq BIGINT,
  ADD COLUMN prev TEXT,
  ADD COLUMN digest TEXT,
  ADD COLUMN mac TEXT,
  ADD COLUMN detail_digest TEXT,
  ADD CONSTRAINT tool_call_records_seq_key UNIQUE (namespace, seq),
  -- Not valid for those from before; every new one is held to it.
  ADD CONSTRAINT tool_call_records_are_chained CHECK (
    seq IS NOT NULL AND prev IS NOT NULL AND digest IS NOT NULL AND mac IS NOT NULL
  ) NOT VALID;

-- Where each chain stands, and up to where a checkpoint has vouched for it.
CREATE TABLE audit_heads (
  namespace TEXT NOT NULL PRIMARY KEY REFERENCES namespaces (namespace),
  seq BIGINT NOT NULL,
  digest TEXT NOT NULL,
  checkpoint_seq BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO audit_heads (namespace, seq, digest)
SELECT namespace, 0, repeat('0', 64) FROM namespaces;

-- What the book must not hold for ever: the record has only a digest of it, salted with the salt
-- that is erased together with it.
CREATE TABLE audit_details (
  namespace TEXT NOT NULL,
  record_id TEXT NOT NULL,
  salt BYTEA NOT NULL,
  details JSONB NOT NULL,
  PRIMARY KEY (namespace, record_id),
  FOREIGN KEY (namespace, record_id) REFERENCES tool_call_records (namespace, id)
);

GRANT SELECT, INSERT, UPDATE ON audit_heads TO recall_app;
GRANT SELECT ON audit_heads TO recall_system;
ALTER TABLE audit_heads ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_heads FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON audit_heads TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
CREATE POLICY across ON audit_heads TO recall_system USING (true) WITH CHECK (true);

GRANT SELECT, INSERT, DELETE ON audit_details TO recall_app;
ALTER TABLE audit_details ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_details FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON audit_details TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
