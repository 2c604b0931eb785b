-- The book becomes a chain: one for each namespace, each record with the digest of the one before.
-- Records from before stay as they are, without a place in it.
ALTER TABLE tool_call_records ADD COLUMN seq INTEGER;
ALTER TABLE tool_call_records ADD COLUMN prev TEXT;
ALTER TABLE tool_call_records ADD COLUMN digest TEXT;
ALTER TABLE tool_call_records ADD COLUMN mac TEXT;
ALTER TABLE tool_call_records ADD COLUMN detail_digest TEXT;
CREATE UNIQUE INDEX tool_call_records_seq_key ON tool_call_records (namespace, seq);

CREATE TRIGGER tool_call_records_are_chained BEFORE INSERT ON tool_call_records
WHEN NEW.seq IS NULL OR NEW.prev IS NULL OR NEW.digest IS NULL OR NEW.mac IS NULL
BEGIN
  SELECT RAISE(ABORT, 'a record of the book has a place in its chain');
END;
CREATE TRIGGER tool_call_records_are_kept BEFORE DELETE ON tool_call_records
BEGIN
  SELECT RAISE(ABORT, 'the book is never shortened');
END;

-- Where each chain stands, and up to where a checkpoint has vouched for it.
CREATE TABLE audit_heads (
  namespace TEXT NOT NULL PRIMARY KEY REFERENCES namespaces (namespace),
  seq INTEGER NOT NULL,
  digest TEXT NOT NULL,
  checkpoint_seq INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
INSERT INTO audit_heads (namespace, seq, digest)
SELECT namespace, 0, '0000000000000000000000000000000000000000000000000000000000000000'
FROM namespaces;

-- What the book must not hold for ever: the record has only a digest of it, salted with the salt
-- that is erased together with it.
CREATE TABLE audit_details (
  namespace TEXT NOT NULL,
  record_id TEXT NOT NULL,
  salt BLOB NOT NULL,
  details TEXT NOT NULL,
  PRIMARY KEY (namespace, record_id),
  FOREIGN KEY (namespace, record_id) REFERENCES tool_call_records (namespace, id)
) WITHOUT ROWID;
