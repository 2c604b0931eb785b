-- query: add_job
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at, accessor)
VALUES (:namespace, :id, :kind, :payload, 'queued', :due_at, :now, :accessor)

-- query: add_jobs
-- In one statement, as it takes a fifth of the time of one for each.
-- in: sqlite
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at)
SELECT :namespace, value ->> 0, :kind, value ->> 1, 'queued', :now, :now FROM json_each(:jobs)
-- in: postgres
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at)
SELECT :namespace, j ->> 0, :kind, j -> 1, 'queued', :now, :now FROM jsonb_array_elements(:jobs) j

-- query: add_job_again
-- Queues a job under a fixed id. A job that is queued or running stays as it is.
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at, accessor)
VALUES (:namespace, :id, :kind, :payload, 'queued', :due_at, :now, :accessor)
ON CONFLICT (namespace, id) DO UPDATE
SET state = 'queued', payload = excluded.payload, due_at = excluded.due_at, failures = 0,
  finished_at = NULL, error_code = NULL, accessor = excluded.accessor
WHERE operations.state IN ('complete', 'failed')

-- query: due_queues
-- across namespaces: a worker serves every tenant, in turn: the first one behind :after, then on
-- from the beginning. Without those in :but.
SELECT namespace FROM (
  SELECT * FROM (
    SELECT namespace, 0 AS again FROM queues
    WHERE pushes = :pushes AND due_at <= :now AND namespace > :after
      AND NOT namespace IN (:but...)
    ORDER BY namespace LIMIT :limit
  ) AS behind
  UNION ALL
  SELECT * FROM (
    SELECT namespace, 1 AS again FROM queues
    WHERE pushes = :pushes AND due_at <= :now AND namespace <= :after
      AND NOT namespace IN (:but...)
    ORDER BY namespace LIMIT :limit
  ) AS before
) AS turns
ORDER BY again, namespace LIMIT :limit

-- query: claim_job
-- across namespaces: of :owner, whose turn it is
-- Raising the attempt is the fence: an earlier holder can no longer finish the job.
-- A job whose lease ran out ended its worker, which counts as its failure.
UPDATE operations SET state = 'processing', attempt = attempt + 1, due_at = :lease_until,
  holder = :holder,
  failures = failures + CASE WHEN state = 'processing' THEN 1 ELSE 0 END
WHERE namespace = :owner AND id = (
  SELECT id FROM operations
  WHERE CASE kind WHEN 'push' THEN 1 ELSE 0 END = :pushes AND namespace = :owner
    AND state IN ('queued', 'processing') AND due_at <= :now
  ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING namespace, id, kind, payload, attempt, failures, created_at, accessor,
  EXISTS (
    SELECT 1 FROM operations AS other
    WHERE CASE other.kind WHEN 'push' THEN 1 ELSE 0 END = :pushes AND other.namespace = :owner
      AND other.state IN ('queued', 'processing') AND other.due_at <= :now
      AND other.id <> operations.id
  ) AS more

-- query: lock_queue
-- across namespaces: of :owner, whose turn it is
-- Returns no row while another transaction has the queue locked; the queue is then left for later.
SELECT due_at FROM queues WHERE namespace = :owner AND pushes = :pushes FOR UPDATE SKIP LOCKED

-- query: next_due
-- across namespaces: of :owner, whose turn it is
SELECT min(due_at) AS due_at FROM operations
WHERE CASE kind WHEN 'push' THEN 1 ELSE 0 END = :pushes AND namespace = :owner
  AND state IN ('queued', 'processing')

-- query: defer_queue
-- across namespaces: of :owner, whose turn it is
UPDATE queues SET due_at = :due_at WHERE namespace = :owner AND pushes = :pushes

-- query: remove_queue
-- across namespaces: of :owner, whose turn it is
DELETE FROM queues WHERE namespace = :owner AND pushes = :pushes

-- query: advance_queue
-- Does nothing if there is no job. A queue may tell too early: a transaction may look from a moment
-- before its first job is due. The row is locked even if it is not changed, so a worker that defers
-- the queue sees the jobs of this transaction.
INSERT INTO queues (namespace, pushes, due_at)
SELECT :namespace, :pushes, :due_at
WHERE EXISTS (SELECT 1 FROM operations
  WHERE CASE kind WHEN 'push' THEN 1 ELSE 0 END = :pushes AND namespace = :namespace
    AND state IN ('queued', 'processing'))
ON CONFLICT (namespace, pushes) DO UPDATE SET due_at = excluded.due_at
WHERE queues.due_at > excluded.due_at

-- query: repair_queues
-- across namespaces: each that has a job which its queue does not tell of
INSERT INTO queues (namespace, pushes, due_at)
SELECT o.namespace, o.pushes, o.due_at
FROM (
  SELECT namespace, CASE kind WHEN 'push' THEN 1 ELSE 0 END AS pushes, min(due_at) AS due_at
  FROM operations WHERE state IN ('queued', 'processing')
  GROUP BY namespace, CASE kind WHEN 'push' THEN 1 ELSE 0 END
) AS o
LEFT JOIN queues q ON q.namespace = o.namespace AND q.pushes = o.pushes
WHERE q.due_at IS NULL OR q.due_at > o.due_at
ORDER BY o.namespace, o.pushes
ON CONFLICT (namespace, pushes) DO UPDATE SET due_at = excluded.due_at
WHERE queues.due_at > excluded.due_at

-- query: job_holders
-- across namespaces: a process that ended held jobs of any
SELECT DISTINCT holder FROM operations
WHERE state = 'processing' AND holder IS NOT NULL AND holder <> :but

-- query: end_leases
-- across namespaces: as above
-- A job that has failed before waits for its lease: it may be what ends the processes, and would
-- take the jobs that run beside it down with it.
UPDATE operations SET due_at = CASE WHEN failures = 0 THEN :now ELSE due_at END, holder = NULL
WHERE state = 'processing' AND holder = :holder

-- query: advance_job
UPDATE operations SET payload = :payload, due_at = :lease_until
WHERE namespace = :namespace AND id = :id AND attempt = :attempt AND state = 'processing'
RETURNING id

-- query: finish_job
-- Only the id of the text stays in the payload, or that of a recheck, since the rest may hold
-- names. A job to be done again, for the reason :code, keeps its limits. :refused are the candidates
-- that it made no memories of.
-- in: sqlite
UPDATE operations SET state = 'complete', finished_at = :now, error_code = :code,
  payload = json_patch(
    CASE WHEN kind = 'recheck' THEN json_object('run_id', payload ->> 'run_id')
      WHEN payload ->> 'episode_id' IS NULL THEN '{}'
      WHEN :code IS NOT NULL THEN json_remove(payload, '$.next', '$.fault')
      ELSE json_object('episode_id', payload ->> 'episode_id') END,
    json_object('refused', json(:refused)))
WHERE namespace = :namespace AND id = :id AND attempt = :attempt AND state = 'processing'
RETURNING id
-- in: postgres
UPDATE operations SET state = 'complete', finished_at = :now, error_code = :code,
  payload = jsonb_strip_nulls(
    CASE WHEN kind = 'recheck' THEN jsonb_build_object('run_id', payload ->> 'run_id')
      WHEN CAST(:code AS text) IS NOT NULL THEN payload - 'next' - 'fault'
      ELSE jsonb_build_object('episode_id', payload ->> 'episode_id') END
    || jsonb_build_object('refused', CAST(:refused AS jsonb)))
WHERE namespace = :namespace AND id = :id AND attempt = :attempt AND state = 'processing'
RETURNING id

-- query: release_job
-- :failed is 1 if the attempt was the job's own failure.
UPDATE operations
SET state = 'queued', due_at = :due_at, error_code = :code, failures = failures + :failed
WHERE namespace = :namespace AND id = :id AND attempt = :attempt AND state = 'processing'
RETURNING id

-- query: requeue_jobs_without_key
-- across namespaces: the key is the server's
UPDATE operations SET state = 'queued', due_at = :now, failures = 0, finished_at = NULL
WHERE kind = :kind AND state IN ('queued', 'failed', 'complete')
  AND error_code = 'MODEL_KEY_REJECTED'

-- query: requeue_jobs_without_space
-- The list of states is that of the index.
UPDATE operations SET state = 'queued', due_at = :now, failures = 0, finished_at = NULL
WHERE namespace = :namespace AND state IN ('queued', 'processing', 'failed') AND state = 'failed'
  AND error_code = 'QUOTA_EXCEEDED'

-- query: requeue_all_jobs_without_space
-- across namespaces: the quota is the server's
UPDATE operations SET state = 'queued', due_at = :now, failures = 0, finished_at = NULL
WHERE state IN ('queued', 'processing', 'failed') AND state = 'failed'
  AND error_code = 'QUOTA_EXCEEDED'

-- query: end_jobs_of
-- The holder of such a job is fenced: its transaction is rolled back.
UPDATE operations SET state = 'failed', finished_at = :now, error_code = :code
WHERE CASE kind WHEN 'push' THEN 1 ELSE 0 END = 0 AND namespace = :namespace
  AND state IN ('queued', 'processing') AND accessor IN (:tokens...)
RETURNING id

-- query: end_jobs_without_key_of
-- Those that have ended and would be done again with another key; each part has its own index.
UPDATE operations SET state = 'failed', finished_at = :now, error_code = :code
WHERE namespace = :namespace AND id IN (
  SELECT id FROM operations
  WHERE namespace = :namespace AND accessor IN (:tokens...)
    AND error_code = 'MODEL_KEY_REJECTED' AND state IN ('queued', 'failed')
  UNION ALL
  SELECT id FROM operations
  WHERE namespace = :namespace AND accessor IN (:tokens...)
    AND error_code = 'MODEL_KEY_REJECTED' AND state = 'complete'
)
RETURNING id

-- query: take_job_over
UPDATE operations
SET state = 'queued', due_at = :now, failures = 0, finished_at = NULL, error_code = NULL,
  accessor = :accessor
WHERE namespace = :namespace AND id = :id AND state = 'failed' AND error_code = :code
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
-- Jobs that were done in part or by a fallback, until they are done again.
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

-- query: jobs_of_run
SELECT * FROM operations
WHERE namespace = :namespace AND kind = :kind AND payload ->> 'run_id' = :run_id
ORDER BY created_at, id

-- query: ended_jobs
-- A page by key, so that no statement scans all jobs. Jobs that were given up for a rejected key
-- wait for another key.
SELECT id, state IN ('complete', 'failed') AND finished_at < :before
  AND COALESCE(error_code, '') <> 'MODEL_KEY_REJECTED' AS ended
FROM operations WHERE namespace = :namespace AND id > :after ORDER BY id LIMIT :limit

-- query: remove_jobs
-- A job that was queued again meanwhile stays.
DELETE FROM operations WHERE namespace = :namespace AND id IN (:ids...)
  AND state IN ('complete', 'failed')
