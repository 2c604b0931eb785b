-- The oldest records of an audit log may be cut once an archive outside of the database has them.
-- Up to where they are, and the server's signed statement of it: the chain is verified from there on.
ALTER TABLE audit_heads
  ADD COLUMN cut_seq BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN cut_statement TEXT NOT NULL DEFAULT '';

-- No record is deleted that was not cut.
GRANT DELETE ON tool_call_records TO recall_eraser;
CREATE POLICY only_cut ON tool_call_records AS RESTRICTIVE FOR DELETE TO recall_eraser
  USING (seq <= (SELECT h.cut_seq FROM audit_heads h
                 WHERE h.namespace = tool_call_records.namespace));

-- Tokens that were revoked long ago are forgotten.
GRANT DELETE ON api_tokens TO recall_eraser;
