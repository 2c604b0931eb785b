-- What is said and what is remembered.
CREATE TABLE namespaces (
  namespace TEXT NOT NULL PRIMARY KEY,
  created_at TEXT NOT NULL,
  -- What BM25 must know of the whole: how many findable items, of how many words together.
  documents INTEGER NOT NULL DEFAULT 0,
  words INTEGER NOT NULL DEFAULT 0,
  -- Goes up with each change of a vector, so that a cache can ask for what it missed.
  vector_version INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

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
  tags TEXT,
  metadata TEXT,
  occurred_at TEXT NOT NULL,
  recorded_at TEXT NOT NULL,
  expired_at TEXT,
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
  said_at TEXT,
  importance REAL NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('open', 'covered', 'hidden')),
  access_count INTEGER NOT NULL DEFAULT 0,
  last_accessed_at TEXT,
  PRIMARY KEY (namespace, id),
  UNIQUE (namespace, episode_id, position),
  FOREIGN KEY (namespace, episode_id) REFERENCES episodes (namespace, id)
) WITHOUT ROWID;

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
  negated INTEGER NOT NULL DEFAULT FALSE,
  -- The same words, folded for comparison.
  entity_key TEXT,
  attribute_key TEXT,
  status TEXT NOT NULL CHECK (status IN ('active', 'superseded', 'forgotten')),
  -- When it was stated: of two claims the one stated later is the newer.
  said_at TEXT NOT NULL,
  valid_from TEXT NOT NULL,
  valid_until TEXT,
  recorded_at TEXT NOT NULL,
  retired_at TEXT,
  superseded_by TEXT,
  importance REAL NOT NULL,
  confidence REAL NOT NULL,
  reinforcements INTEGER NOT NULL DEFAULT 0,
  access_count INTEGER NOT NULL DEFAULT 0,
  last_accessed_at TEXT,
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
) WITHOUT ROWID;
CREATE INDEX citations_by_episode ON citations (namespace, episode_id);

CREATE TABLE embeddings (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  model TEXT NOT NULL,
  item_id TEXT NOT NULL,
  vector BLOB NOT NULL,
  findable INTEGER NOT NULL DEFAULT TRUE,
  version INTEGER NOT NULL,
  PRIMARY KEY (namespace, model, item_id)
);
CREATE INDEX embeddings_by_version ON embeddings (namespace, model, version);

-- The word index of each namespace by itself: its statistics tell nothing of another's.
CREATE TABLE postings (
  namespace TEXT NOT NULL,
  term TEXT NOT NULL,
  item_id TEXT NOT NULL,
  occurrences INTEGER NOT NULL,
  length INTEGER NOT NULL,
  PRIMARY KEY (namespace, term, item_id)
) WITHOUT ROWID;

-- In how many findable items of the namespace a term stands.
CREATE TABLE terms (
  namespace TEXT NOT NULL,
  term TEXT NOT NULL,
  documents INTEGER NOT NULL,
  PRIMARY KEY (namespace, term)
) WITHOUT ROWID;

CREATE TRIGGER episodes_are_append_only BEFORE UPDATE ON episodes
BEGIN
  SELECT RAISE(ABORT, 'episodes are never changed');
END;
