-- What belongs to the server as a whole, and to no namespace: one row.
CREATE TABLE server (
  singleton INTEGER NOT NULL PRIMARY KEY CHECK (singleton = 1),
  -- The key with which this database's receipts and records are signed, by its name (RFC 7638).
  kid TEXT NOT NULL,
  public_key TEXT NOT NULL,
  created_at TEXT NOT NULL,
  -- No token that was made earlier is let in.
  tokens_not_before TEXT
);
