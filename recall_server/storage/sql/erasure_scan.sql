-- any scope: an erasure takes all that it is asked for; its own scope is checked before.

-- query: count_memories
SELECT count(*) AS rows FROM memories WHERE namespace = :namespace

-- query: count_episodes
SELECT count(*) AS rows FROM episodes WHERE namespace = :namespace

-- query: ids_of_memories
SELECT id FROM memories WHERE namespace = :namespace ORDER BY id

-- query: ids_of_episodes
SELECT id FROM episodes WHERE namespace = :namespace ORDER BY id

-- query: kept_of_lost
-- The events of this memory, or those of all memories that keep words, if its row is lost: if
-- somebody has deleted it behind the server.
SELECT e.item_id AS id, e.answer FROM memory_events e
WHERE e.namespace = :namespace AND e.status IS NOT NULL
  AND CASE WHEN :id = '' THEN e.answer IS NOT NULL ELSE e.item_id = :id END
  AND NOT EXISTS (
    SELECT 1 FROM memories m WHERE m.namespace = :namespace AND m.id = e.item_id)

-- query: relabelled_after
SELECT DISTINCT item_id FROM memory_events
WHERE namespace = :namespace AND seq > :seq AND kind = 'relabelled'

-- query: run_versions
SELECT id, version FROM runs WHERE namespace = :namespace ORDER BY id

-- query: runs_to_erase
SELECT id, version, request, work, status, messages, outcome, context_id FROM runs
WHERE namespace = :namespace AND id > :after ORDER BY id LIMIT :limit

-- query: runs_to_erase_by_id
SELECT id, version, request, work, status, messages, outcome, context_id FROM runs
WHERE namespace = :namespace AND id IN (:ids...) ORDER BY id

-- query: events_of_runs
SELECT run_id, status, outcome FROM run_events WHERE namespace = :namespace AND run_id IN (:ids...)

-- query: episodes_of_container
-- The empty name stands for no container, and the index leaves it out. Texts that were put in after
-- an erasure began are not erased by it.
SELECT id FROM episodes
WHERE namespace = :namespace AND container <> '' AND container = :container
  AND erase_epoch < COALESCE(
    (SELECT e.erase_epoch FROM erasures e WHERE e.namespace = :namespace AND e.id = :erasure_id),
    erase_epoch + 1)
ORDER BY id LIMIT :limit

-- query: rows_of_episodes
-- The turns of each episode and the citations of it, counted together.
SELECT e.id,
  (SELECT count(*) FROM turns t WHERE t.namespace = :namespace AND t.episode_id = e.id)
  + (SELECT count(*) FROM citations c WHERE c.namespace = :namespace AND c.episode_id = e.id)
  AS rows
FROM episodes e WHERE e.namespace = :namespace AND e.id IN (:ids...) ORDER BY e.id

-- query: memories_of_container
SELECT id FROM memories
WHERE namespace = :namespace AND container <> '' AND container = :container
  AND erase_epoch < COALESCE(
    (SELECT e.erase_epoch FROM erasures e WHERE e.namespace = :namespace AND e.id = :erasure_id),
    erase_epoch + 1)
ORDER BY id LIMIT :limit

-- query: rows_of_container
SELECT
  (SELECT count(*) FROM memories
   WHERE namespace = :namespace AND container <> '' AND container = :container) AS memories,
  (SELECT count(*) FROM episodes
   WHERE namespace = :namespace AND container <> '' AND container = :container) AS episodes,
  (SELECT count(*) FROM episodes e CROSS JOIN turns t
   WHERE e.namespace = :namespace AND e.container <> '' AND e.container = :container
     AND t.namespace = :namespace AND t.episode_id = e.id) AS turns

-- query: runs_begun
SELECT id FROM runs WHERE namespace = :namespace AND id IN (:ids...) AND created_at <= :at

-- query: rows_begun
-- Counts the rows of the namespace from before an erasure.
SELECT
  (SELECT count(*) FROM memories WHERE namespace = :namespace AND erase_epoch < :epoch) AS memories,
  (SELECT count(*) FROM episodes WHERE namespace = :namespace AND erase_epoch < :epoch) AS episodes

-- query: audit_details_to_erase
-- Details of records, each with the place of its record in the audit log.
SELECT d.record_id AS id, d.details, r.seq FROM audit_details d
JOIN tool_call_records r ON r.namespace = d.namespace AND r.id = d.record_id
WHERE d.namespace = :namespace AND d.record_id > :after ORDER BY d.record_id LIMIT :limit

-- query: place_of_record
SELECT seq FROM tool_call_records WHERE namespace = :namespace AND id = :id

-- query: jobs_to_erase
-- Jobs that are complete hold no words, unless an older release has completed them.
SELECT o.id, o.payload, e.id AS episode_id FROM operations o
LEFT JOIN episodes e ON e.namespace = o.namespace AND e.id = o.payload ->> 'episode_id'
WHERE o.namespace = :namespace AND o.id > :after AND (o.state <> 'complete'
  OR o.payload ->> 'reach' IS NOT NULL OR o.payload ->> 'config_id' IS NOT NULL)
ORDER BY o.id LIMIT :limit

-- query: judgements_to_erase
SELECT memory_id, question_id, judge_reason FROM decisions
WHERE namespace = :namespace AND judge_reason IS NOT NULL
  AND (memory_id, question_id) > (:after, :after_id)
ORDER BY memory_id, question_id LIMIT :limit

-- query: pushes_to_erase
SELECT run_id, id, url, scheme FROM push_configs
WHERE namespace = :namespace AND (run_id, id) > (:after, :after_id)
ORDER BY run_id, id LIMIT :limit
