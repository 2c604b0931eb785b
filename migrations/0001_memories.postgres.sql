-- What is said and what is remembered.
-- The two roles that transactions run under. Neither owns a table, so neither escapes row-level
-- security: recall_app is bound to one namespace, recall_system serves all (named tables only).
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'recall_app') THEN
    CREATE ROLE recall_app NOLOGIN NOBYPASSRLS;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'recall_system') THEN
    CREATE ROLE recall_system NOLOGIN NOBYPASSRLS;
  END IF;
EXCEPTION WHEN unique_violation OR duplicate_object THEN
  NULL;  -- another database of this cluster is being set up at the same moment
END
$$;
DO $$
BEGIN
  IF NOT pg_has_role(current_user, 'recall_app', 'MEMBER') THEN
    EXECUTE format('GRANT recall_app, recall_system TO %I', current_user);
  END IF;
END
$$;

CREATE TABLE namespaces (
  namespace TEXT NOT NULL PRIMARY KEY,
  created_at TIMESTAMPTZ NOT NULL,
  -- What BM25 must know of the whole: how many findable items, of how many words together.
  documents BIGINT NOT NULL DEFAULT 0,
  words BIGINT NOT NULL DEFAULT 0,
  -- Goes up with each change of a vector, so that a cache can ask for what it missed.
  vector_version BIGINT NOT NULL DEFAULT 0
);

-- What was said, as it was said. Never changed: all else can be rebuilt from it.
CREATE TABLE episodes (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  id TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  request_digest TEXT NOT NULL,
  job_id TEXT NOT NULL,
  text TEXT NOT NULL,
  content_hash TEXT NOT NULL,
  topic TEXT NOT NULL,
  name TEXT,
  session_id TEXT,
  agent_id TEXT,
  group_id TEXT,
  source TEXT,
  source_model TEXT,
  source_description TEXT,
  tags JSONB,
  metadata JSONB,
  occurred_at TIMESTAMPTZ NOT NULL,
  recorded_at TIMESTAMPTZ NOT NULL,
  expired_at TIMESTAMPTZ,
  PRIMARY KEY (namespace, id),
  UNIQUE (namespace, idempotency_key)
);
CREATE INDEX episodes_by_time ON episodes (namespace, occurred_at);

-- The utterances of an episode, found by search until a memory cites them.
CREATE TABLE turns (
  namespace TEXT NOT NULL,
  id TEXT NOT NULL,
  episode_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  span_start INTEGER NOT NULL,
  span_end INTEGER NOT NULL,
  speaker TEXT,
  session TEXT,
  said_at TIMESTAMPTZ,
  importance DOUBLE PRECISION NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('open', 'covered', 'hidden')),
  access_count BIGINT NOT NULL DEFAULT 0,
  last_accessed_at TIMESTAMPTZ,
  PRIMARY KEY (namespace, id),
  UNIQUE (namespace, episode_id, position),
  FOREIGN KEY (namespace, episode_id) REFERENCES episodes (namespace, id)
);

-- valid_*: when it was true in the world. recorded_at, retired_at: when it was believed here.
CREATE TABLE memories (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  id TEXT NOT NULL,
  text TEXT NOT NULL,
  type TEXT NOT NULL,
  topic TEXT NOT NULL,
  entity TEXT,
  attribute TEXT,
  value TEXT,
  negated BOOLEAN NOT NULL DEFAULT FALSE,
  -- The same words, folded for comparison.
  entity_key TEXT,
  attribute_key TEXT,
  status TEXT NOT NULL CHECK (status IN ('active', 'superseded', 'forgotten')),
  -- When it was stated: of two claims the one stated later is the newer.
  said_at TIMESTAMPTZ NOT NULL,
  valid_from TIMESTAMPTZ NOT NULL,
  valid_until TIMESTAMPTZ,
  recorded_at TIMESTAMPTZ NOT NULL,
  retired_at TIMESTAMPTZ,
  superseded_by TEXT,
  importance DOUBLE PRECISION NOT NULL,
  confidence DOUBLE PRECISION NOT NULL,
  reinforcements BIGINT NOT NULL DEFAULT 0,
  access_count BIGINT NOT NULL DEFAULT 0,
  last_accessed_at TIMESTAMPTZ,
  session_id TEXT,
  agent_id TEXT,
  extractor TEXT NOT NULL,
  PRIMARY KEY (namespace, id),
  CHECK ((status = 'active') = (retired_at IS NULL))
);
CREATE INDEX memories_by_fact ON memories (namespace, entity_key, attribute_key)
  WHERE retired_at IS NULL;
CREATE INDEX memories_active ON memories (namespace, recorded_at, id) WHERE retired_at IS NULL;
CREATE INDEX memories_by_type ON memories (namespace, type) WHERE retired_at IS NULL;
CREATE INDEX memories_superseded ON memories (namespace, superseded_by)
  WHERE superseded_by IS NOT NULL;

-- The exact words that a memory rests on; position 0 is where it was first found.
CREATE TABLE citations (
  namespace TEXT NOT NULL,
  memory_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  episode_id TEXT NOT NULL,
  span_start INTEGER NOT NULL,
  span_end INTEGER NOT NULL,
  PRIMARY KEY (namespace, memory_id, position),
  FOREIGN KEY (namespace, memory_id) REFERENCES memories (namespace, id),
  FOREIGN KEY (namespace, episode_id) REFERENCES episodes (namespace, id)
);
CREATE INDEX citations_by_episode ON citations (namespace, episode_id);

CREATE TABLE embeddings (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  model TEXT NOT NULL,
  item_id TEXT NOT NULL,
  vector BYTEA NOT NULL,
  findable BOOLEAN NOT NULL DEFAULT TRUE,
  version BIGINT NOT NULL,
  PRIMARY KEY (namespace, model, item_id)
);
CREATE INDEX embeddings_by_version ON embeddings (namespace, model, version);

-- The word index of each namespace by itself: its statistics tell nothing of another's.
CREATE TABLE postings (
  namespace TEXT NOT NULL,
  term TEXT NOT NULL,
  item_id TEXT NOT NULL,
  occurrences BIGINT NOT NULL,
  length BIGINT NOT NULL,
  PRIMARY KEY (namespace, term, item_id)
);

-- In how many findable items of the namespace a term stands.
CREATE TABLE terms (
  namespace TEXT NOT NULL,
  term TEXT NOT NULL,
  documents BIGINT NOT NULL,
  PRIMARY KEY (namespace, term)
);

GRANT SELECT, INSERT, UPDATE ON namespaces TO recall_app;
GRANT SELECT, INSERT ON namespaces TO recall_system;
ALTER TABLE namespaces ENABLE ROW LEVEL SECURITY;
ALTER TABLE namespaces FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON namespaces TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
CREATE POLICY across ON namespaces TO recall_system USING (true) WITH CHECK (true);

GRANT SELECT, INSERT ON episodes TO recall_app;
ALTER TABLE episodes ENABLE ROW LEVEL SECURITY;
ALTER TABLE episodes FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON episodes TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));

GRANT SELECT, INSERT, UPDATE ON turns TO recall_app;
ALTER TABLE turns ENABLE ROW LEVEL SECURITY;
ALTER TABLE turns FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON turns TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));

GRANT SELECT, INSERT, UPDATE ON memories TO recall_app;
ALTER TABLE memories ENABLE ROW LEVEL SECURITY;
ALTER TABLE memories FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memories TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));

GRANT SELECT, INSERT ON citations TO recall_app;
ALTER TABLE citations ENABLE ROW LEVEL SECURITY;
ALTER TABLE citations FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON citations TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));

GRANT SELECT, INSERT, UPDATE ON embeddings TO recall_app;
ALTER TABLE embeddings ENABLE ROW LEVEL SECURITY;
ALTER TABLE embeddings FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON embeddings TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));

GRANT SELECT, INSERT, UPDATE, DELETE ON postings TO recall_app;
ALTER TABLE postings ENABLE ROW LEVEL SECURITY;
ALTER TABLE postings FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postings TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));

GRANT SELECT, INSERT, UPDATE, DELETE ON terms TO recall_app;
ALTER TABLE terms ENABLE ROW LEVEL SECURITY;
ALTER TABLE terms FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON terms TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
