-- While a namespace is held, nothing of it is destroyed; held_because is told to whoever asks.
ALTER TABLE namespaces ADD COLUMN held_at TIMESTAMPTZ;
ALTER TABLE namespaces ADD COLUMN held_because TEXT;
-- What was asked for, sealed: the line that is noted outside of the database.
ALTER TABLE erasures ADD COLUMN sealed TEXT;
