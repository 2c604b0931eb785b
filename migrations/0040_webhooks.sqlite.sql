-- Where the events of a namespace are sent. delivered_seq is how far they have been.
CREATE TABLE webhooks (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  id TEXT NOT NULL,
  url TEXT NOT NULL,
  -- The kinds of event that it is told of.
  kinds TEXT NOT NULL,
  include_text INTEGER NOT NULL,
  -- With it each delivery is signed; encrypted.
  secret BLOB NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('active', 'dead')),
  -- Of the last delivery, where it failed.
  error_code TEXT,
  failures INTEGER NOT NULL DEFAULT 0,
  delivered_seq INTEGER NOT NULL,
  delivered_at TEXT,
  created_at TEXT NOT NULL,
  -- The token that registered it, with which it ends, and the end of a JWT.
  accessor TEXT,
  token_ends_at TEXT,
  PRIMARY KEY (namespace, id)
) WITHOUT ROWID;

-- What is still to be sent: where it happened is in the tables of memories, tasks, jobs and
-- erasures, by item_id, and of a memory in memory_events, by seq, which both share.
CREATE TABLE webhook_events (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  seq INTEGER NOT NULL,
  kind TEXT NOT NULL,
  item_id TEXT NOT NULL,
  at TEXT NOT NULL,
  PRIMARY KEY (namespace, seq)
) WITHOUT ROWID;
