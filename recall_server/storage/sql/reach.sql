-- query: items_in_reach
-- All that a search may find for a token that is limited. What has no type is beyond those that
-- are limited to types.
SELECT id FROM memories
WHERE namespace = :namespace AND retired_at IS NULL
  AND (:any_topic OR topic IN (:topics...)) AND (:any_type OR type IN (:types...))
  AND (:any_agent OR agent_id = :agent)
  AND (:any_container OR container IN (:containers...))
UNION ALL
SELECT t.id FROM turns t JOIN episodes e ON e.namespace = t.namespace AND e.id = t.episode_id
WHERE t.namespace = :namespace AND t.state = 'open'
  AND (:any_topic OR e.topic IN (:topics...)) AND :any_type
  AND (:any_agent OR e.agent_id = :agent)
  AND (:any_container OR e.container IN (:containers...))

-- query: items_in_containers
-- The same within rooms: by what is in them, however much there is beside them.
-- in: sqlite
SELECT id FROM memories INDEXED BY memories_by_container
WHERE namespace = :namespace AND retired_at IS NULL
  AND container <> '' AND container IN (:containers...)
  AND (:any_topic OR topic IN (:topics...)) AND (:any_type OR type IN (:types...))
  AND (:any_agent OR agent_id = :agent)
UNION ALL
SELECT t.id FROM episodes e INDEXED BY episodes_by_container
CROSS JOIN turns t INDEXED BY turns_by_place
WHERE e.namespace = :namespace AND e.container <> '' AND e.container IN (:containers...)
  AND t.namespace = :namespace AND t.episode_id = e.id AND t.state = 'open'
  AND (:any_topic OR e.topic IN (:topics...)) AND :any_type
  AND (:any_agent OR e.agent_id = :agent)
-- in: postgres
SELECT id FROM memories
WHERE namespace = :namespace AND retired_at IS NULL
  AND container <> '' AND container IN (:containers...)
  AND (:any_topic OR topic IN (:topics...)) AND (:any_type OR type IN (:types...))
  AND (:any_agent OR agent_id = :agent)
UNION ALL
SELECT t.id FROM episodes e JOIN turns t ON t.namespace = :namespace AND t.episode_id = e.id
WHERE e.namespace = :namespace AND e.container <> '' AND e.container IN (:containers...)
  AND t.state = 'open'
  AND (:any_topic OR e.topic IN (:topics...)) AND :any_type
  AND (:any_agent OR e.agent_id = :agent)

-- query: job_counts_in_reach
-- Jobs about texts only: the others tell of no topic.
SELECT o.kind, o.state, count(*) AS jobs
FROM operations o JOIN episodes e
  ON e.namespace = o.namespace AND e.id = o.payload ->> 'episode_id'
WHERE o.namespace = :namespace AND o.state IN ('queued', 'processing', 'failed')
  AND (:any_topic OR e.topic IN (:topics...)) AND :any_type
  AND (:any_agent OR e.agent_id = :agent)
  AND (:any_container OR e.container IN (:containers...))
GROUP BY o.kind, o.state
