-- query: slots_in_reach
-- The slots after :after that a limited token may see, in one row. Passages have no type, so they
-- are outside a scope with types.
-- in: sqlite
WITH fresh AS MATERIALIZED (
  SELECT slot, item_id, turn_id FROM documents
  WHERE namespace = :namespace AND slot > :after
)
SELECT group_concat(slot, ' ') AS slots, (
  SELECT max(slot) FROM documents WHERE namespace = :namespace) AS upto
FROM (
  SELECT f.slot FROM fresh f CROSS JOIN memories m
  WHERE m.namespace = :namespace AND m.id = f.item_id
    AND {{scope:m}}
  UNION ALL
  SELECT f.slot FROM fresh f CROSS JOIN turns t
  JOIN episodes e ON e.namespace = t.namespace AND e.id = t.episode_id
  WHERE t.namespace = :namespace AND t.id = f.turn_id
    AND {{turn_scope:e}}
)
-- in: postgres
WITH fresh AS MATERIALIZED (
  SELECT slot, item_id, turn_id FROM documents
  WHERE namespace = :namespace AND slot > :after
)
SELECT string_agg(CAST(slot AS text), ' ') AS slots, (
  SELECT max(slot) FROM documents WHERE namespace = :namespace) AS upto
FROM (
  SELECT f.slot FROM fresh f JOIN memories m ON m.id = f.item_id
  WHERE m.namespace = :namespace
    AND {{scope:m}}
  UNION ALL
  SELECT f.slot FROM fresh f JOIN turns t ON t.id = f.turn_id
  JOIN episodes e ON e.namespace = t.namespace AND e.id = t.episode_id
  WHERE t.namespace = :namespace
    AND {{turn_scope:e}}
) AS in_scope

-- query: job_counts_in_reach
-- Only jobs about texts count: others have no topic.
SELECT o.kind, o.state, count(*) AS jobs
FROM operations o JOIN episodes e
  ON e.namespace = o.namespace AND e.id = o.payload ->> 'episode_id'
WHERE o.namespace = :namespace AND (o.state IN ('queued', 'processing', 'failed')
    OR (o.state = 'complete' AND o.error_code IS NOT NULL))
  AND {{untyped_scope:e}}
GROUP BY o.kind, o.state

-- query: job_of_text
-- A job about a text, if the text is in the access scope.
SELECT o.id, o.kind, o.state, o.attempt, o.failures, o.created_at, o.finished_at, o.error_code,
  e.id AS episode_id, o.payload -> 'refused' AS refused, (
    SELECT count(*) FROM turns t
    WHERE t.namespace = e.namespace AND t.episode_id = e.id AND t.state = 'hidden'
  ) AS held_turns
FROM operations o JOIN episodes e
  ON e.namespace = o.namespace AND e.id = o.payload ->> 'episode_id'
WHERE o.namespace = :namespace AND o.id = :id AND {{untyped_scope:e}}
