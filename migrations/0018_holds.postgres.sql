-- While a namespace is held, nothing of it is destroyed; held_because is told to whoever asks.
ALTER TABLE namespaces ADD COLUMN held_at TIMESTAMPTZ;
ALTER TABLE namespaces ADD COLUMN held_because TEXT;
-- What was asked for, sealed: the line that is noted outside of the database.
ALTER TABLE erasures ADD COLUMN sealed TEXT;

-- What is to be done is counted without going through all that ever was.
DROP INDEX operations_by_state;
CREATE INDEX operations_open ON operations (namespace, kind, state)
  WHERE state IN ('queued', 'processing', 'failed');
