-- What a namespace may use: room for texts, and a model.
-- Bytes of the texts that were handed in and are kept, counted where they are written.
ALTER TABLE namespaces ADD COLUMN stored_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE namespaces SET stored_bytes = COALESCE((
  SELECT sum(length(CAST(e.text AS BLOB))) FROM episodes e WHERE e.namespace = namespaces.namespace
), 0);
-- What a task took of that, to be given back with it.
ALTER TABLE runs ADD COLUMN stored_bytes INTEGER NOT NULL DEFAULT 0;

-- Tokens of language models by day: reserved before a call, and settled after it. Rows live for a
-- month. They do not refer to the namespace: that would wait for whoever is changing it.
CREATE TABLE model_spend (
  namespace TEXT NOT NULL,
  -- The number of the day, counted from 1970, in UTC.
  day INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  PRIMARY KEY (namespace, day)
) WITHOUT ROWID;
