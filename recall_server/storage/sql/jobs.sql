-- query: add_job
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at)
VALUES (:namespace, :id, :kind, :payload, 'queued', :due_at, :now)

-- query: next_due_job
-- across namespaces: a worker serves every tenant, in turn: the first one after the last served
-- in: sqlite
SELECT namespace, id FROM operations
WHERE state IN ('queued', 'processing') AND due_at <= :now AND namespace > :after
ORDER BY namespace, due_at, id LIMIT 1
-- in: postgres
SELECT namespace, id FROM operations
WHERE state IN ('queued', 'processing') AND due_at <= :now AND namespace > :after
ORDER BY namespace, due_at, id LIMIT 1
FOR UPDATE SKIP LOCKED

-- query: claim_job
-- across namespaces: follows next_due_job in its transaction
-- Raising the attempt is the fence: who held the job before can no longer finish it.
-- A job whose lease ran out took its worker with it, which counts as its failure.
UPDATE operations SET state = 'processing', attempt = attempt + 1, due_at = :lease_until,
  failures = failures + CASE WHEN state = 'processing' THEN 1 ELSE 0 END
WHERE namespace = :tenant AND id = :id
RETURNING namespace, id, kind, payload, attempt, failures, created_at

-- query: advance_job
UPDATE operations SET payload = :payload, due_at = :lease_until
WHERE namespace = :namespace AND id = :id AND attempt = :attempt AND state = 'processing'
RETURNING id

-- query: finish_job
UPDATE operations SET state = 'complete', finished_at = :now, error_code = NULL
WHERE namespace = :namespace AND id = :id AND attempt = :attempt AND state = 'processing'
RETURNING id

-- query: release_job
-- Back to the queue; :failed is 1 where the attempt was the job's own failure.
UPDATE operations
SET state = 'queued', due_at = :due_at, error_code = :code, failures = failures + :failed
WHERE namespace = :namespace AND id = :id AND attempt = :attempt AND state = 'processing'
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

-- query: all_job_counts
-- across namespaces: the operator's view of the queue
SELECT kind, state, count(*) AS jobs FROM operations
WHERE state IN ('queued', 'processing', 'failed')
GROUP BY kind, state

-- query: job
SELECT * FROM operations WHERE namespace = :namespace AND id = :id
