-- What a token may do, on which part of its namespace, and until when.
-- One made before this has the scopes that a new one has by default, and no end.
ALTER TABLE api_tokens ADD COLUMN scopes TEXT NOT NULL
  DEFAULT '["consolidate", "memory:forget", "memory:read", "memory:write"]';
-- Null: any.
ALTER TABLE api_tokens ADD COLUMN topics TEXT;
ALTER TABLE api_tokens ADD COLUMN types TEXT;
ALTER TABLE api_tokens ADD COLUMN agent_id TEXT;
-- The token that issued this one; null for the operator.
ALTER TABLE api_tokens ADD COLUMN parent TEXT;
ALTER TABLE api_tokens ADD COLUMN expires_at TEXT;
-- When it was first seen expired: a clock that steps back must not revive it.
ALTER TABLE api_tokens ADD COLUMN expired_at TEXT;
-- Null: any number.
ALTER TABLE api_tokens ADD COLUMN uses_left INTEGER CHECK (uses_left >= 0);
-- To the minute.
ALTER TABLE api_tokens ADD COLUMN last_used_at TEXT;
ALTER TABLE api_tokens ADD COLUMN refused_at TEXT;

-- No token of the namespace that was made earlier is let in.
ALTER TABLE namespaces ADD COLUMN tokens_not_before TEXT;

-- The one topic, and the one agent, of which alone a run shows anything; null where it shows more.
ALTER TABLE runs ADD COLUMN topic TEXT;
ALTER TABLE runs ADD COLUMN agent_id TEXT;

-- What a token that is limited to topics can find.
CREATE INDEX memories_by_topic ON memories (namespace, topic) WHERE retired_at IS NULL;
CREATE INDEX episodes_by_topic ON episodes (namespace, topic);
