-- fragment: decided
-- The reason of a judge is about the words of all sides, so it is not shown while one is hidden.
d.memory_id, d.question_id, d.choice, d.decided_by, d.decided_at, d.judge_confidence,
  CASE WHEN d.judge_reason IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM decisions s JOIN memories h ON h.namespace = s.namespace AND h.id = s.memory_id
    WHERE s.namespace = :namespace AND s.question_id = d.question_id
      AND s.judge_reason IS NOT NULL AND h.status IN ('forgotten', 'quarantined'))
  THEN d.judge_reason END AS judge_reason

-- query: add_run
INSERT INTO runs (namespace, id, context_id, state, version, round, events, accessor, created_at,
  changed_at, expires_at, request, work, status, messages, outcome, topic, agent_id, container,
  stored_bytes, request_bytes, event_bytes)
VALUES (:namespace, :id, :context_id, :state, 0, :round, :events, :accessor, :created_at,
  :changed_at, :expires_at, :request, :work, :status, :messages, :outcome, :topic, :agent_id,
  :container, :stored_bytes, :request_bytes, :event_bytes)

-- query: run
SELECT * FROM runs WHERE namespace = :namespace AND id = :id
  AND {{task_scope}}

-- query: version_of_run
SELECT version, events, state FROM runs WHERE namespace = :namespace AND id = :id
  AND {{task_scope}}

-- query: change_run
-- Compare and swap: returns no row if the task was changed meanwhile.
UPDATE runs SET state = :state, version = version + 1, round = :round, events = :events,
  changed_at = :changed_at, expires_at = :expires_at, work = :work, status = :status,
  messages = :messages, outcome = :outcome, stored_bytes = :stored_bytes,
  event_bytes = :event_bytes,
  -- Once null (several values), a column stays null, since the history still shows the old values.
  topic = CASE WHEN topic IS NULL THEN NULL ELSE :topic END,
  agent_id = CASE WHEN agent_id IS NULL THEN NULL ELSE :agent_id END,
  container = CASE WHEN container IS NULL THEN NULL ELSE :container END
WHERE namespace = :namespace AND id = :id AND version = :version
RETURNING id

-- query: runs_by_id
SELECT * FROM runs WHERE namespace = :namespace AND id IN (:ids...)
  AND {{task_scope}}

-- query: ids_of_runs
-- The newest change first, then by id. The page begins after (:before, :before_id).
SELECT id, stored_bytes FROM runs
WHERE namespace = :namespace
  AND (:context_id = '' OR context_id = :context_id)
  AND (:state = '' OR state = :state)
  AND changed_at >= :since
  AND {{task_scope}}
  AND (changed_at < :before OR (changed_at = :before AND id < :before_id))
ORDER BY changed_at DESC, id DESC LIMIT :limit

-- query: count_of_runs
SELECT count(*) AS runs FROM runs
WHERE namespace = :namespace
  AND (:context_id = '' OR context_id = :context_id)
  AND (:state = '' OR state = :state)
  AND changed_at >= :since
  AND {{task_scope}}

-- query: sizes_of_unfinished_runs
-- any scope: what a token began ends with it
SELECT id, stored_bytes FROM runs WHERE namespace = :namespace AND accessor IN (:tokens...)
  AND state IN ('submitted', 'working', 'input-required')
ORDER BY stored_bytes, id LIMIT :limit

-- query: unfinished_runs
-- any scope: as above
SELECT * FROM runs WHERE namespace = :namespace AND id IN (:ids...)
  AND state IN ('submitted', 'working', 'input-required')
ORDER BY id

-- query: count_of_unfinished_runs
-- any scope: as above
SELECT count(*) AS runs FROM runs WHERE namespace = :namespace AND accessor IN (:tokens...)
  AND state IN ('submitted', 'working', 'input-required')

-- query: delete_run
DELETE FROM runs WHERE namespace = :namespace AND id = :id RETURNING stored_bytes

-- query: delete_run_events
DELETE FROM run_events WHERE namespace = :namespace AND run_id = :id

-- query: add_run_event
-- If there is an event of this number, the task was changed meanwhile, and change_run fails.
INSERT INTO run_events (namespace, run_id, seq, status, outcome)
VALUES (:namespace, :run_id, :seq, :status, :outcome)
ON CONFLICT (namespace, run_id, seq) DO NOTHING

-- query: run_events
SELECT e.seq, e.status, e.outcome, r.context_id, r.event_bytes
FROM run_events e JOIN runs r ON r.namespace = e.namespace AND r.id = e.run_id
WHERE e.namespace = :namespace AND e.run_id = :run_id AND e.seq > :after
  AND {{task_scope:r}}
ORDER BY e.seq LIMIT :limit

-- query: add_decision
-- A dispute whose answer was undone is answered anew.
INSERT INTO decisions (
  namespace, memory_id, question_id, choice, decided_by, decided_at, judge_reason, judge_confidence
)
VALUES (
  :namespace, :memory_id, :question_id, :choice, :decided_by, :decided_at, :reason,
  :confidence
)
ON CONFLICT (namespace, memory_id, question_id) DO UPDATE
SET choice = excluded.choice, decided_by = excluded.decided_by, decided_at = excluded.decided_at,
  judge_reason = excluded.judge_reason, judge_confidence = excluded.judge_confidence

-- query: decisions
-- A limited token gets no decision that was also about a memory outside its access scope.
SELECT {{decided}} FROM decisions d
WHERE d.namespace = :namespace AND d.memory_id IN (:ids...)
  AND ({{no_limit}} OR NOT EXISTS (
    SELECT 1 FROM decisions o JOIN memories m ON m.namespace = o.namespace AND m.id = o.memory_id
    WHERE o.namespace = :namespace AND o.question_id = d.question_id
      AND NOT COALESCE(({{scope:m}}), FALSE)))
ORDER BY d.decided_at DESC, d.question_id DESC LIMIT :limit

-- query: answers_given
-- any scope: of disputes whose sides the caller sees
SELECT {{decided}} FROM decisions d
WHERE d.namespace = :namespace AND d.question_id IN (:ids...) AND d.memory_id IN (
  SELECT s.memory_id FROM disputes s
  WHERE s.namespace = :namespace AND s.question_id IN (:ids...))

-- query: asking
-- The paused task that asks a question. Few tasks wait, and an index finds them.
-- in: sqlite
SELECT id FROM runs
WHERE namespace = :namespace AND state = 'input-required'
  AND {{task_scope}}
  AND EXISTS (
  SELECT 1 FROM json_each(status, '$.questions') q WHERE json_extract(q.value, '$.id') = :question)
ORDER BY id LIMIT 1
-- in: postgres
SELECT id FROM runs
WHERE namespace = :namespace AND state = 'input-required'
  AND {{task_scope}}
  AND status -> 'questions' @> jsonb_build_array(jsonb_build_object('id', CAST(:question AS text)))
ORDER BY id LIMIT 1
