-- Signed tokens that were revoked by their own name before they ended. They stand in no table
-- themselves; `parent` is the token that issued them, or whoever an identity provider says.
CREATE TABLE revoked_children (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  parent TEXT NOT NULL,
  jti TEXT NOT NULL,
  -- When it has ended by itself, whatever its end was.
  expires_at TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (namespace, parent, jti)
);
CREATE INDEX revoked_children_by_end ON revoked_children (namespace, expires_at);

GRANT SELECT, INSERT, DELETE ON revoked_children TO recall_app;
GRANT SELECT ON revoked_children TO recall_system;
ALTER TABLE revoked_children ENABLE ROW LEVEL SECURITY;
ALTER TABLE revoked_children FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON revoked_children TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
CREATE POLICY across ON revoked_children TO recall_system USING (true) WITH CHECK (true);

-- No signed child of the token that was made earlier is let in.
ALTER TABLE api_tokens ADD COLUMN children_not_before TIMESTAMPTZ;
