-- query: portable_episodes
-- Pages by key: each begins behind the last id of the one before, whatever the length of the whole.
SELECT e.*, o.state AS job_state, o.payload AS job_payload, o.error_code
FROM episodes e LEFT JOIN operations o
  ON o.namespace = e.namespace AND o.id = e.job_id AND o.kind = 'extract'
WHERE e.namespace = :namespace AND e.id > :after ORDER BY e.id LIMIT :limit

-- query: portable_episodes_of
SELECT e.*, o.state AS job_state, o.payload AS job_payload, o.error_code
FROM episodes e LEFT JOIN operations o
  ON o.namespace = e.namespace AND o.id = e.job_id AND o.kind = 'extract'
WHERE e.namespace = :namespace AND e.id IN (:ids...)

-- query: portable_turns
SELECT * FROM turns WHERE namespace = :namespace AND episode_id IN (:ids...)
ORDER BY episode_id, position

-- query: portable_memories
SELECT * FROM memories WHERE namespace = :namespace AND id > :after ORDER BY id LIMIT :limit

-- query: portable_memories_of
SELECT * FROM memories WHERE namespace = :namespace AND id IN (:ids...)

-- query: portable_runs
SELECT * FROM runs WHERE namespace = :namespace AND id > :after ORDER BY id LIMIT :limit

-- query: portable_run_events
SELECT * FROM run_events WHERE namespace = :namespace AND run_id IN (:ids...)
ORDER BY run_id, seq

-- query: portable_recipients
SELECT run_id, id, url, created_at FROM push_configs
WHERE namespace = :namespace AND run_id IN (:ids...)

-- query: portable_runs_told
-- The runs of which somebody is told, behind an id.
SELECT DISTINCT run_id FROM push_configs WHERE namespace = :namespace AND run_id > :after
ORDER BY run_id LIMIT :limit

-- query: portable_records
SELECT * FROM tool_call_records WHERE namespace = :namespace AND id > :after
ORDER BY id LIMIT :limit

-- query: has_namespace
SELECT namespace FROM namespaces WHERE namespace = :namespace

-- query: keys_taken
SELECT id, idempotency_key FROM episodes
WHERE namespace = :namespace AND idempotency_key IN (:keys...)

-- query: lengths_of_episodes
SELECT id, length(text) AS chars FROM episodes WHERE namespace = :namespace AND id IN (:ids...)

-- query: import_episode
INSERT INTO episodes (
  namespace, id, idempotency_key, request_digest, job_id, text, content_hash, topic, name,
  session_id, agent_id, group_id, source, source_model, source_description, tags, metadata,
  occurred_at, recorded_at, expired_at, container
) VALUES (
  :namespace, :id, :idempotency_key, :request_digest, :job_id, :text, :content_hash, :topic, :name,
  :session_id, :agent_id, :group_id, :source, :source_model, :source_description, :tags, :metadata,
  :occurred_at, :recorded_at, :expired_at, :container
)

-- query: import_turn
INSERT INTO turns (
  namespace, id, episode_id, position, span_start, span_end, speaker, session, said_at,
  importance, state, access_count, last_accessed_at
) VALUES (
  :namespace, :id, :episode_id, :position, :span_start, :span_end, :speaker, :session, :said_at,
  :importance, :state, :access_count, :last_accessed_at
)

-- query: import_memory
INSERT INTO memories (
  namespace, id, text, type, topic, entity, attribute, value, negated, entity_key, attribute_key,
  status, said_at, valid_from, valid_until, recorded_at, retired_at, superseded_by, importance,
  confidence, reinforcements, access_count, last_accessed_at, session_id, agent_id, extractor,
  container
) VALUES (
  :namespace, :id, :text, :type, :topic, :entity, :attribute, :value, :negated, :entity_key,
  :attribute_key, :status, :said_at, :valid_from, :valid_until, :recorded_at, :retired_at,
  :superseded_by, :importance, :confidence, :reinforcements, :access_count, :last_accessed_at,
  :session_id, :agent_id, :extractor, :container
)

-- query: import_citation
INSERT INTO citations (namespace, memory_id, position, episode_id, span_start, span_end)
VALUES (:namespace, :memory_id, :position, :episode_id, :span_start, :span_end)

-- query: import_extraction
-- The job that an episode still waits for; the id is taken where the episode was erased and its
-- job was not.
INSERT INTO operations (
  namespace, id, kind, payload, state, due_at, created_at, finished_at, error_code
) VALUES (
  :namespace, :id, :kind, :payload, :state, :now, :now, :finished_at, :error_code
)
ON CONFLICT (namespace, id) DO NOTHING

-- query: memories_and_vectors
-- A page of what search finds, and whether it has a vector. The page is cut before anything is
-- joined to it: where much has just been written, a planner knows little of it.
WITH page AS MATERIALIZED (
  SELECT id FROM memories WHERE namespace = :namespace AND id > :after AND retired_at IS NULL
  ORDER BY id LIMIT :limit
)
SELECT p.id, c.episode_id, v.item_id FROM page p
JOIN citations c ON c.namespace = :namespace AND c.memory_id = p.id AND c.position = 0
LEFT JOIN embeddings v ON v.namespace = :namespace AND v.model = :model AND v.item_id = p.id
ORDER BY p.id

-- query: turns_and_vectors
WITH page AS MATERIALIZED (
  SELECT id, episode_id FROM turns WHERE namespace = :namespace AND id > :after AND state = 'open'
  ORDER BY id LIMIT :limit
)
SELECT p.id, p.episode_id, v.item_id FROM page p
LEFT JOIN embeddings v ON v.namespace = :namespace AND v.model = :model AND v.item_id = p.id
ORDER BY p.id

-- query: promise_again
-- A job that is promised each time by the same id: at work or waiting it stays as it is.
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at)
VALUES (:namespace, :id, :kind, :payload, 'queued', :now, :now)
ON CONFLICT (namespace, id) DO UPDATE
SET state = 'queued', due_at = excluded.due_at, failures = 0, finished_at = NULL, error_code = NULL
WHERE operations.state IN ('complete', 'failed')
