-- query: put_push
-- delivered_seq stays; a sender to the old address loses its claim.
INSERT INTO push_configs (namespace, run_id, id, url, scheme, secret, delivered_seq, created_at,
  accessor, token_ends_at)
VALUES (:namespace, :task_id, :id, :url, :scheme, :secret, :delivered_seq, :created_at,
  :accessor, :token_ends_at)
ON CONFLICT (namespace, run_id, id) DO UPDATE
SET url = excluded.url, scheme = excluded.scheme, secret = excluded.secret, failures = 0,
  created_at = excluded.created_at, accessor = excluded.accessor,
  token_ends_at = excluded.token_ends_at, claimed_by = NULL, claimed_until = NULL
RETURNING *

-- query: push
SELECT * FROM push_configs WHERE namespace = :namespace AND run_id = :run_id AND id = :id

-- query: pushes
SELECT * FROM push_configs
WHERE namespace = :namespace AND run_id = :run_id AND id > :after
ORDER BY id LIMIT :limit

-- query: remove_push
DELETE FROM push_configs WHERE namespace = :namespace AND run_id = :run_id AND id = :id
RETURNING id

-- query: remove_held_push
DELETE FROM push_configs
WHERE namespace = :namespace AND run_id = :run_id AND id = :id AND claimed_by = :holder
RETURNING id

-- query: remove_pushes_of
DELETE FROM push_configs WHERE namespace = :namespace AND accessor IN (:tokens...) RETURNING id

-- query: due_push
SELECT p.id FROM push_configs p
JOIN run_events e ON e.namespace = p.namespace AND e.run_id = p.run_id AND e.seq = :seq
WHERE p.namespace = :namespace AND p.run_id = :run_id AND p.id = :id AND p.claimed_by = :holder

-- query: remove_pushes
DELETE FROM push_configs WHERE namespace = :namespace AND run_id = :run_id

-- query: claim_push
UPDATE push_configs SET claimed_by = :holder, claimed_until = :until
WHERE namespace = :namespace AND run_id = :run_id AND id = :id
  AND (claimed_until IS NULL OR claimed_until <= :now)
RETURNING *

-- query: advance_push
-- After the final event the secret is no longer needed.
UPDATE push_configs SET delivered_seq = :seq, failures = 0, claimed_until = :until,
  secret = CASE WHEN :final = 1 THEN NULL ELSE secret END
WHERE namespace = :namespace AND run_id = :run_id AND id = :id AND claimed_by = :holder
RETURNING id

-- query: release_push
UPDATE push_configs
SET claimed_by = NULL, claimed_until = :until, failures = failures + :failed
WHERE namespace = :namespace AND run_id = :run_id AND id = :id AND claimed_by = :holder

-- query: promise_pushes
-- in: sqlite
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at)
SELECT :namespace, :job_id || '.' || row_number() OVER (ORDER BY id), :kind,
  json_object('run_id', run_id, 'config_id', id), 'queued', :now, :now
FROM push_configs WHERE namespace = :namespace AND run_id = :run_id
-- in: postgres
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at)
SELECT :namespace, :job_id || '.' || row_number() OVER (ORDER BY id), :kind,
  jsonb_build_object('run_id', run_id, 'config_id', id), 'queued',
  CAST(:now AS timestamptz), CAST(:now AS timestamptz)
FROM push_configs WHERE namespace = :namespace AND run_id = :run_id

-- query: promise_push_end
-- in: sqlite
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at)
SELECT :namespace, :job_id, :kind, json_object('run_id', run_id), 'queued', :due_at, :now
FROM push_configs WHERE namespace = :namespace AND run_id = :run_id LIMIT 1
-- in: postgres
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at)
SELECT :namespace, :job_id, :kind, jsonb_build_object('run_id', run_id), 'queued',
  CAST(:due_at AS timestamptz), CAST(:now AS timestamptz)
FROM push_configs WHERE namespace = :namespace AND run_id = :run_id LIMIT 1

-- query: sealed_secret
SELECT id FROM push_configs WHERE namespace = :namespace AND secret IS NOT NULL
UNION ALL
SELECT id FROM webhooks WHERE namespace = :namespace LIMIT 1
