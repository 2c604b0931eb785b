-- Who may enter, and the book of what was done.
-- The token itself is never here: only its SHA-256, and an accessor to name it by.
CREATE TABLE api_tokens (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  accessor TEXT NOT NULL,
  token_hash TEXT NOT NULL,
  label TEXT NOT NULL DEFAULT '',
  created_at TEXT NOT NULL,
  revoked_at TEXT,
  PRIMARY KEY (namespace, accessor)
) WITHOUT ROWID;
CREATE INDEX api_tokens_by_hash ON api_tokens (token_hash);
CREATE INDEX api_tokens_by_accessor ON api_tokens (accessor);

-- The book. Ids, counts and codes; never text.
CREATE TABLE tool_call_records (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  id TEXT NOT NULL,
  at TEXT NOT NULL,
  door TEXT NOT NULL,
  operation TEXT NOT NULL,
  accessor TEXT,
  request_id TEXT NOT NULL,
  ids TEXT NOT NULL,
  counts TEXT NOT NULL,
  outcome TEXT NOT NULL,
  code TEXT,
  milliseconds REAL NOT NULL,
  model TEXT,
  input_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0,
  cost_usd REAL NOT NULL DEFAULT 0,
  PRIMARY KEY (namespace, id)
);
CREATE INDEX tool_call_records_by_time ON tool_call_records (namespace, at);

CREATE TRIGGER tool_call_records_are_append_only BEFORE UPDATE ON tool_call_records
BEGIN
  SELECT RAISE(ABORT, 'the book is never changed');
END;
