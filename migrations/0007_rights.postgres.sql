-- What a token may do, on which part of its namespace, and until when.
-- One made before this has the scopes that a new one has by default, and no end.
ALTER TABLE api_tokens
  ADD COLUMN scopes JSONB NOT NULL
    DEFAULT '["consolidate", "memory:forget", "memory:read", "memory:write"]',
  -- Null: any.
  ADD COLUMN topics JSONB,
  ADD COLUMN types JSONB,
  ADD COLUMN agent_id TEXT,
  -- The token that issued this one; null for the operator.
  ADD COLUMN parent TEXT,
  ADD COLUMN expires_at TIMESTAMPTZ,
  -- When it was first seen expired: a clock that steps back must not revive it.
  ADD COLUMN expired_at TIMESTAMPTZ,
  -- Null: any number.
  ADD COLUMN uses_left BIGINT CHECK (uses_left >= 0),
  -- To the minute.
  ADD COLUMN last_used_at TIMESTAMPTZ,
  ADD COLUMN refused_at TIMESTAMPTZ;

-- No token of the namespace that was made earlier is let in.
ALTER TABLE namespaces ADD COLUMN tokens_not_before TIMESTAMPTZ;

-- The one topic, and the one agent, of which alone a run shows anything; null where it shows more.
ALTER TABLE runs ADD COLUMN topic TEXT, ADD COLUMN agent_id TEXT;

-- What a token that is limited to topics can find.
CREATE INDEX memories_by_topic ON memories (namespace, topic) WHERE retired_at IS NULL;
CREATE INDEX episodes_by_topic ON episodes (namespace, topic);
