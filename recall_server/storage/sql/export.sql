-- any scope: an export or an import is of the whole namespace.

-- query: export_extractions
-- Extraction jobs by id, in any state.
SELECT id, state, payload, error_code FROM operations
WHERE namespace = :namespace AND kind = 'extract' AND id IN (:ids...)

-- query: export_runs_with_recipients
SELECT DISTINCT run_id AS id FROM push_configs WHERE namespace = :namespace AND run_id > :after
ORDER BY run_id LIMIT :limit

-- query: has_namespace
SELECT namespace FROM namespaces WHERE namespace = :namespace

-- query: keys_taken
SELECT id, idempotency_key FROM episodes
WHERE namespace = :namespace AND idempotency_key IN (:keys...)

-- query: hides_words
SELECT 1 AS one FROM forgotten WHERE namespace = :namespace AND item_id = :id LIMIT 1

-- query: lengths_of_episodes
SELECT id, length(text) AS chars FROM episodes WHERE namespace = :namespace AND id IN (:ids...)

-- query: import_extraction
-- The job that an episode still waits for. Its id may exist already, if the episode was erased and
-- its job was not.
INSERT INTO operations (
  namespace, id, kind, payload, state, due_at, created_at, finished_at, error_code
) VALUES (
  :namespace, :id, :kind, :payload, :state, :now, :now, :finished_at, :error_code
)
ON CONFLICT (namespace, id) DO NOTHING

-- query: items_and_vectors
-- A page of findable items, each with whether it has a vector. The page is cut before the joins:
-- after many new rows the planner has no statistics.
WITH page AS MATERIALIZED (
  SELECT slot, item_id, turn_id FROM documents
  WHERE namespace = :namespace AND slot > :after AND findable
  ORDER BY slot LIMIT :limit
)
SELECT p.slot, COALESCE(t.episode_id, c.episode_id) AS episode_id, v.item_id AS embedded
FROM page p
LEFT JOIN turns t ON t.namespace = :namespace AND t.id = p.turn_id
LEFT JOIN citations c
  ON c.namespace = :namespace AND c.memory_id = p.item_id AND c.position = 0
LEFT JOIN embeddings v
  ON v.namespace = :namespace AND v.model = :model AND v.item_id = p.item_id
    AND v.document = p.slot
ORDER BY p.slot
