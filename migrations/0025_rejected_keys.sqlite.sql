-- What a language model does for the server while its service rejects the key, for the operator.
CREATE TABLE rejected_keys (
  role TEXT NOT NULL PRIMARY KEY,
  -- Of HTTP: 401 or 403.
  status INTEGER NOT NULL,
  since TEXT NOT NULL
) WITHOUT ROWID;

-- The jobs that wait for another key, or were given up for that.
CREATE INDEX operations_key_rejected ON operations (namespace, id)
  WHERE error_code = 'MODEL_KEY_REJECTED' AND state IN ('queued', 'failed');
