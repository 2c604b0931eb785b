-- What a namespace may use: room for texts, and a model.
-- Bytes of the texts that were handed in and are kept, counted where they are written.
ALTER TABLE namespaces ADD COLUMN stored_bytes BIGINT NOT NULL DEFAULT 0;
-- Its owner looks at rows of all tenants, this once.
ALTER TABLE namespaces NO FORCE ROW LEVEL SECURITY;
ALTER TABLE episodes NO FORCE ROW LEVEL SECURITY;
UPDATE namespaces SET stored_bytes = COALESCE((
  SELECT sum(octet_length(e.text)) FROM episodes e WHERE e.namespace = namespaces.namespace
), 0);
ALTER TABLE episodes FORCE ROW LEVEL SECURITY;
ALTER TABLE namespaces FORCE ROW LEVEL SECURITY;
-- What a task took of that, to be given back with it.
ALTER TABLE runs ADD COLUMN stored_bytes BIGINT NOT NULL DEFAULT 0;

-- Tokens of language models by day: reserved before a call, and settled after it. Rows live for a
-- month. They do not refer to the namespace: that would wait for whoever is changing it.
CREATE TABLE model_spend (
  namespace TEXT NOT NULL,
  -- The number of the day, counted from 1970, in UTC.
  day BIGINT NOT NULL,
  tokens BIGINT NOT NULL,
  PRIMARY KEY (namespace, day)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON model_spend TO recall_app;
ALTER TABLE model_spend ENABLE ROW LEVEL SECURITY;
ALTER TABLE model_spend FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON model_spend TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
