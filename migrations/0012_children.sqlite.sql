-- Signed tokens that were revoked by their own name before they ended. They stand in no table
-- themselves; `parent` is the token that issued them, or whoever an identity provider says.
CREATE TABLE revoked_children (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  parent TEXT NOT NULL,
  jti TEXT NOT NULL,
  -- When it has ended by itself, whatever its end was.
  expires_at TEXT NOT NULL,
  PRIMARY KEY (namespace, parent, jti)
) WITHOUT ROWID;
CREATE INDEX revoked_children_by_end ON revoked_children (namespace, expires_at);

-- No signed child of the token that was made earlier is let in.
ALTER TABLE api_tokens ADD COLUMN children_not_before TEXT;
