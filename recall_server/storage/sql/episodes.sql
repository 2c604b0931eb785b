-- query: add_episode
-- The unique key makes asking twice harmless: the second gets no row back.
INSERT INTO episodes (
  namespace, id, idempotency_key, request_digest, job_id, text, content_hash, topic,
  session_id, agent_id, source, occurred_at, recorded_at, container
) VALUES (
  :namespace, :id, :idempotency_key, :request_digest, :job_id, :text, :content_hash, :topic,
  :session_id, :agent_id, :source, :occurred_at, :recorded_at, :container
)
ON CONFLICT (namespace, idempotency_key) DO NOTHING
RETURNING id

-- query: episode_by_key
-- any scope: a request is compared with the one of the same key by its digest
SELECT id, job_id, request_digest FROM episodes
WHERE namespace = :namespace AND idempotency_key = :idempotency_key

-- query: episode
-- any scope: for jobs, which work for the namespace and not for a caller
SELECT * FROM episodes WHERE namespace = :namespace AND id = :id

-- query: episodes_in_container
-- any scope: it says whether a container is new, and shows nothing of it
SELECT id FROM episodes
WHERE namespace = :namespace AND container <> '' AND container = :container LIMIT :limit

-- query: add_turn
INSERT INTO turns (
  namespace, id, episode_id, position, span_start, span_end, speaker, session, said_at,
  importance, state
) VALUES (
  :namespace, :id, :episode_id, :position, :span_start, :span_end, :speaker, :session, :said_at,
  :importance, :state
)

-- query: turns_of_episode
SELECT * FROM turns WHERE namespace = :namespace AND episode_id = :episode_id ORDER BY position

-- query: open_turns_at
-- any scope: for a write that covers turns; nothing of them is shown
-- The turns that a span touches and that search still finds by themselves.
SELECT t.*, e.topic, e.container, e.recorded_at, e.occurred_at,
  substr(e.text, t.span_start + 1, t.span_end - t.span_start) AS text
FROM turns t JOIN episodes e ON e.namespace = t.namespace AND e.id = t.episode_id
WHERE t.namespace = :namespace AND t.episode_id = :episode_id AND t.state = 'open'
  AND t.span_start < :span_end AND t.span_end > :span_start

-- query: set_turn_state
-- A turn that a memory cites is found through the memory, and never again by itself.
UPDATE turns SET state = :state
WHERE namespace = :namespace AND id = :id AND state = 'open'

-- query: open_turn
-- The only way in which a hidden turn is found again.
UPDATE turns SET state = 'open'
WHERE namespace = :namespace AND id = :id AND state = 'hidden'
RETURNING id

-- query: turn_items
SELECT t.*, e.topic, e.container, e.recorded_at, e.occurred_at,
  substr(e.text, t.span_start + 1, t.span_end - t.span_start) AS text
FROM turns t JOIN episodes e ON e.namespace = t.namespace AND e.id = t.episode_id
WHERE t.namespace = :namespace AND t.state = 'open'
  AND t.id IN (:ids...)
  AND {{untyped_scope:e}}

-- query: turns_said
-- Whether search finds them or not, unless they are held back, or a memory rests on them that is not
-- believed any more.
-- in: sqlite
-- See memories_resting_on.
SELECT t.id, t.speaker, substr(e.text, t.span_start + 1, t.span_end - t.span_start) AS text
FROM turns t JOIN episodes e ON e.namespace = t.namespace AND e.id = t.episode_id
WHERE t.namespace = :namespace AND t.state <> 'hidden' AND t.id IN (:ids...)
  AND NOT EXISTS (
    SELECT 1 FROM citations c INDEXED BY citations_by_episode CROSS JOIN memories m
    WHERE c.namespace = :namespace AND c.episode_id = t.episode_id
      AND m.namespace = :namespace AND m.id = c.memory_id
      AND c.span_start < t.span_end AND c.span_end > t.span_start AND m.retired_at IS NOT NULL)
  AND {{untyped_scope:e}}
-- in: postgres
SELECT t.id, t.speaker, substr(e.text, t.span_start + 1, t.span_end - t.span_start) AS text
FROM turns t JOIN episodes e ON e.namespace = t.namespace AND e.id = t.episode_id
WHERE t.namespace = :namespace AND t.state <> 'hidden' AND t.id IN (:ids...)
  AND NOT EXISTS (
    SELECT 1 FROM citations c CROSS JOIN memories m
    WHERE c.namespace = :namespace AND c.episode_id = t.episode_id
      AND m.namespace = :namespace AND m.id = c.memory_id
      AND c.span_start < t.span_end AND c.span_end > t.span_start AND m.retired_at IS NOT NULL)
  AND {{untyped_scope:e}}

-- query: count_accesses_of_turns
-- in: sqlite
-- The namespace comes from the counts, so that each row is looked up by its key: SQLite, which
-- knows nothing of a namespace, would go through all of its rows.
WITH counted AS MATERIALIZED (
  SELECT :namespace AS counted_namespace, value ->> 0 AS counted_id, value ->> 1 AS times,
    value ->> 2 AS last
  FROM json_each(:counts)
)
UPDATE turns SET access_count = access_count + times,
  last_accessed_at = max(COALESCE(last_accessed_at, ''), last)
FROM counted
WHERE namespace = counted_namespace AND id = counted_id
-- in: postgres
-- A row that a change has locked is not waited for: it loses these accesses, and nobody waits for
-- somebody in a circle.
UPDATE turns SET access_count = access_count + times,
  last_accessed_at = GREATEST(last_accessed_at, last)
FROM (
  SELECT known.id AS counted_id, (c.value ->> 1)::bigint AS times,
    (c.value ->> 2)::timestamptz AS last
  FROM jsonb_array_elements(:counts) c CROSS JOIN LATERAL (
    SELECT id FROM turns WHERE namespace = :namespace AND id = c.value ->> 0
    LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
  ) AS known
) AS counted
WHERE namespace = :namespace AND id = counted_id
