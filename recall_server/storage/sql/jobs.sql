-- query: add_job
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at, accessor)
VALUES (:namespace, :id, :kind, :payload, 'queued', :due_at, :now, :accessor)

-- query: claim_job
-- across namespaces: a worker serves every tenant, in turn: the first one behind :after, then on
-- from the beginning. From one to the next is one step in the index, and the first that has
-- something due is the last: most jobs are for later, and none of those is looked at. Deliveries of
-- pushes (:pushes is 1) are looked for apart from all others, and none of :full, which have their share.
-- Raising the attempt is the fence: an earlier holder can no longer finish the job.
-- A job whose lease ran out ended its worker, which counts as its failure.
-- in: sqlite
WITH RECURSIVE turns (namespace, again) AS (
  SELECT min(o.namespace), 0 FROM operations o INDEXED BY operations_due
  WHERE CASE kind WHEN 'push' THEN 1 ELSE 0 END = :pushes
    AND o.state IN ('queued', 'processing') AND o.namespace > :after
  UNION ALL
  SELECT (
    SELECT min(o.namespace) FROM operations o INDEXED BY operations_due
    WHERE CASE kind WHEN 'push' THEN 1 ELSE 0 END = :pushes
      AND o.state IN ('queued', 'processing') AND o.namespace > coalesce(t.namespace, '')
  ), CASE WHEN t.namespace IS NULL THEN 1 ELSE t.again END
  FROM turns t WHERE t.again = 0 OR :after > t.namespace
)
UPDATE operations SET state = 'processing', attempt = attempt + 1, due_at = :lease_until,
  holder = :holder,
  failures = failures + CASE WHEN state = 'processing' THEN 1 ELSE 0 END
WHERE (namespace, id) = (
  SELECT due.namespace, due.id FROM turns t CROSS JOIN operations due
  WHERE due.rowid = (
    SELECT o.rowid FROM operations o
    WHERE CASE kind WHEN 'push' THEN 1 ELSE 0 END = :pushes AND o.namespace = t.namespace
      AND o.state IN ('queued', 'processing') AND o.due_at <= :now
    ORDER BY o.due_at, o.id LIMIT 1
  ) AND NOT t.namespace IN (:full...)
  LIMIT 1
)
RETURNING namespace, id, kind, payload, attempt, failures, created_at, accessor
-- in: postgres
WITH RECURSIVE turns (namespace, again) AS (
  SELECT min(o.namespace), 0 FROM operations o
  WHERE CASE kind WHEN 'push' THEN 1 ELSE 0 END = :pushes
    AND o.state IN ('queued', 'processing') AND o.namespace > :after
  UNION ALL
  SELECT (
    SELECT min(o.namespace) FROM operations o
    WHERE CASE kind WHEN 'push' THEN 1 ELSE 0 END = :pushes
      AND o.state IN ('queued', 'processing') AND o.namespace > coalesce(t.namespace, '')
  ), CASE WHEN t.namespace IS NULL THEN 1 ELSE t.again END
  FROM turns t WHERE t.again = 0 OR :after > t.namespace
)
UPDATE operations SET state = 'processing', attempt = attempt + 1, due_at = :lease_until,
  holder = :holder,
  failures = failures + CASE WHEN state = 'processing' THEN 1 ELSE 0 END
WHERE (namespace, id) = (
  SELECT due.namespace, due.id FROM turns t CROSS JOIN LATERAL (
    SELECT o.namespace, o.id FROM operations o
    WHERE CASE kind WHEN 'push' THEN 1 ELSE 0 END = :pushes AND o.namespace = t.namespace
      AND o.state IN ('queued', 'processing') AND o.due_at <= :now
    ORDER BY o.due_at, o.id LIMIT 1 FOR UPDATE SKIP LOCKED
  ) due
  WHERE NOT t.namespace IN (:full...)
  LIMIT 1
)
RETURNING namespace, id, kind, payload, attempt, failures, created_at, accessor

-- query: job_holders
-- across namespaces: a process that ended held jobs of any
SELECT DISTINCT holder FROM operations
WHERE state = 'processing' AND holder IS NOT NULL AND holder <> :but

-- query: end_leases
-- across namespaces: as above
-- A job that was lost before waits for its lease: it may be what ends the processes, and those that
-- are held beside it would be given up with it.
UPDATE operations SET due_at = CASE WHEN failures = 0 THEN :now ELSE due_at END, holder = NULL
WHERE state = 'processing' AND holder = :holder

-- query: advance_job
UPDATE operations SET payload = :payload, due_at = :lease_until
WHERE namespace = :namespace AND id = :id AND attempt = :attempt AND state = 'processing'
RETURNING id

-- query: finish_job
-- Of what it was to do only the text is left: the rest may hold names. What is to be done again, for
-- the reason of :code, keeps its limits.
-- in: sqlite
UPDATE operations SET state = 'complete', finished_at = :now, error_code = :code,
  payload = CASE WHEN payload ->> 'episode_id' IS NULL THEN '{}'
    WHEN :code IS NOT NULL THEN json_remove(payload, '$.next', '$.fault')
    ELSE json_object('episode_id', payload ->> 'episode_id') END
WHERE namespace = :namespace AND id = :id AND attempt = :attempt AND state = 'processing'
RETURNING id
-- in: postgres
UPDATE operations SET state = 'complete', finished_at = :now, error_code = :code,
  payload = CASE WHEN CAST(:code AS text) IS NOT NULL THEN payload - 'next' - 'fault'
    ELSE jsonb_strip_nulls(jsonb_build_object('episode_id', payload ->> 'episode_id')) END
WHERE namespace = :namespace AND id = :id AND attempt = :attempt AND state = 'processing'
RETURNING id

-- query: release_job
-- Back to the queue; :failed is 1 where the attempt was the job's own failure.
UPDATE operations
SET state = 'queued', due_at = :due_at, error_code = :code, failures = failures + :failed
WHERE namespace = :namespace AND id = :id AND attempt = :attempt AND state = 'processing'
RETURNING id

-- query: requeue_jobs_without_key
-- across namespaces: the key is the server's
UPDATE operations SET state = 'queued', due_at = :now, failures = 0, finished_at = NULL
WHERE kind = :kind AND state IN ('queued', 'failed', 'complete')
  AND error_code = 'MODEL_KEY_REJECTED'

-- query: end_jobs_of
-- A holder of one of them is fenced: nothing of what it does for it holds.
UPDATE operations SET state = 'failed', finished_at = :now, error_code = :code
WHERE CASE kind WHEN 'push' THEN 1 ELSE 0 END = 0 AND namespace = :namespace
  AND state IN ('queued', 'processing') AND accessor IN (:tokens...)
RETURNING id

-- query: bury_job
UPDATE operations
SET state = 'failed', finished_at = :now, error_code = :code, failures = failures + 1
WHERE namespace = :namespace AND id = :id AND attempt = :attempt AND state = 'processing'
RETURNING id

-- query: job_counts
SELECT kind, state, count(*) AS jobs FROM operations
WHERE namespace = :namespace AND state IN ('queued', 'processing', 'failed')
GROUP BY kind, state
UNION ALL
-- Done otherwise than they should be, until they are done again.
SELECT kind, state, count(*) AS jobs FROM operations
WHERE namespace = :namespace AND state = 'complete' AND error_code IS NOT NULL
GROUP BY kind, state

-- query: all_job_counts
-- across namespaces: the operator's view of the queue
SELECT kind, state, count(*) AS jobs FROM operations
WHERE state IN ('queued', 'processing', 'failed')
GROUP BY kind, state
UNION ALL
SELECT kind, state, count(*) AS jobs FROM operations
WHERE state = 'complete' AND error_code IS NOT NULL
GROUP BY kind, state

-- query: oldest_due
-- across namespaces: the operator's view of the queue
SELECT min(due_at) AS due_at FROM operations WHERE state = 'queued' AND due_at <= :now

-- query: job
SELECT * FROM operations WHERE namespace = :namespace AND id = :id
