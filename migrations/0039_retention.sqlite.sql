-- The oldest records of an audit log may be cut once an archive outside of the database has them.
-- Up to where they are, and the server's signed statement of it: the chain is verified from there on.
ALTER TABLE audit_heads ADD COLUMN cut_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE audit_heads ADD COLUMN cut_statement TEXT NOT NULL DEFAULT '';

-- No record is deleted that was not cut.
DROP TRIGGER tool_call_records_are_kept;
CREATE TRIGGER tool_call_records_are_kept BEFORE DELETE ON tool_call_records
WHEN OLD.seq IS NULL OR NOT EXISTS (
  SELECT 1 FROM audit_heads h WHERE h.namespace = OLD.namespace AND OLD.seq <= h.cut_seq)
BEGIN
  SELECT RAISE(ABORT, 'what is not cut of the audit log is never deleted');
END;
