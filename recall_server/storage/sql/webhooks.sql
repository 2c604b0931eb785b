-- query: add_webhook
-- Events from now on are sent to it.
INSERT INTO webhooks (namespace, id, url, kinds, include_text, secret, state, delivered_seq,
  created_at, accessor, token_ends_at)
SELECT namespace, :id, :url, :kinds, :include_text, :secret, 'active', last_event, :created_at,
  :accessor, :token_ends_at
FROM namespaces WHERE namespace = :namespace
RETURNING *

-- query: webhook
SELECT * FROM webhooks WHERE namespace = :namespace AND id = :id

-- query: webhooks
SELECT * FROM webhooks WHERE namespace = :namespace ORDER BY created_at, id

-- query: remove_webhook
DELETE FROM webhooks WHERE namespace = :namespace AND id = :id RETURNING id

-- query: remove_webhooks_of
DELETE FROM webhooks WHERE namespace = :namespace AND accessor IN (:tokens...) RETURNING id

-- query: keep_webhook_events
-- Stores those of these events that a webhook wants.
-- in: sqlite
INSERT INTO webhook_events (namespace, seq, kind, item_id, at)
SELECT :namespace, e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3
FROM json_each(:events) e
WHERE EXISTS (
  SELECT 1 FROM webhooks w, json_each(w.kinds) k
  WHERE w.namespace = :namespace AND w.state = 'active' AND k.value = e.value ->> 1)
-- in: postgres
INSERT INTO webhook_events (namespace, seq, kind, item_id, at)
SELECT :namespace, CAST(e.value ->> 0 AS bigint), e.value ->> 1, e.value ->> 2,
  CAST(e.value ->> 3 AS timestamptz)
FROM jsonb_array_elements(:events) AS e (value)
WHERE EXISTS (
  SELECT 1 FROM webhooks w
  WHERE w.namespace = :namespace AND w.state = 'active' AND w.kinds ? (e.value ->> 1))

-- query: promise_webhooks
-- Each webhook has one job. It is queued again if it has ended; a job that waits after a failure or
-- is running sends these events anyway.
-- in: sqlite
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at)
SELECT w.namespace, w.id, :kind, json_object('webhook_id', w.id), 'queued', :now, :now
FROM webhooks w
WHERE w.namespace = :namespace AND w.state = 'active' AND EXISTS (
  SELECT 1 FROM json_each(w.kinds) k WHERE k.value IN (:kinds...))
ON CONFLICT (namespace, id) DO UPDATE SET state = 'queued', payload = excluded.payload,
  due_at = excluded.due_at, failures = 0, finished_at = NULL, error_code = NULL
WHERE operations.state IN ('complete', 'failed')
RETURNING id
-- in: postgres
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at)
SELECT w.namespace, w.id, :kind, jsonb_build_object('webhook_id', w.id), 'queued',
  CAST(:now AS timestamptz), CAST(:now AS timestamptz)
FROM webhooks w
WHERE w.namespace = :namespace AND w.state = 'active' AND EXISTS (
  SELECT 1 FROM jsonb_array_elements_text(w.kinds) k WHERE k IN (:kinds...))
ON CONFLICT (namespace, id) DO UPDATE SET state = 'queued', payload = excluded.payload,
  due_at = excluded.due_at, failures = 0, finished_at = NULL, error_code = NULL
WHERE operations.state IN ('complete', 'failed')
RETURNING id

-- query: next_webhook_event
SELECT * FROM webhook_events
WHERE namespace = :namespace AND seq > :after AND kind IN (:kinds...) ORDER BY seq LIMIT 1

-- query: pending_webhook_events
SELECT count(*) AS events FROM (
  SELECT 1 AS one FROM webhook_events
  WHERE namespace = :namespace AND seq > :after AND kind IN (:kinds...) LIMIT :limit
) AS found

-- query: webhook_delivered
UPDATE webhooks SET delivered_seq = :seq, delivered_at = COALESCE(:delivered_at, delivered_at),
  failures = 0, error_code = NULL
WHERE namespace = :namespace AND id = :id AND delivered_seq < :seq
RETURNING id

-- query: webhook_failed
UPDATE webhooks SET failures = failures + 1, error_code = :code,
  state = CASE WHEN :dead = 1 THEN 'dead' ELSE state END
WHERE namespace = :namespace AND id = :id

-- query: revive_webhook
-- Events from while it was dead are skipped.
UPDATE webhooks SET state = 'active', failures = 0, error_code = NULL,
  delivered_seq = (SELECT n.last_event FROM namespaces n WHERE n.namespace = :namespace)
WHERE namespace = :namespace AND id = :id AND state = 'dead'

-- query: drop_sent_webhook_events
-- Deletes the events that no webhook waits for.
-- in: sqlite
DELETE FROM webhook_events
WHERE namespace = :namespace AND NOT EXISTS (
  SELECT 1 FROM webhooks w, json_each(w.kinds) k
  WHERE w.namespace = :namespace AND w.state = 'active'
    AND w.delivered_seq < webhook_events.seq AND k.value = webhook_events.kind)
-- in: postgres
DELETE FROM webhook_events
WHERE namespace = :namespace AND NOT EXISTS (
  SELECT 1 FROM webhooks w
  WHERE w.namespace = :namespace AND w.state = 'active'
    AND w.delivered_seq < webhook_events.seq AND w.kinds ? webhook_events.kind)
