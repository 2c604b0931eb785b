-- any scope: ids only; what they stand for is read by its access scope

-- query: open_dispute
-- A dispute that was settled because a side was gone opens again when the side comes back.
INSERT INTO disputes (namespace, question_id, memory_id, side, opened_at)
VALUES (:namespace, :question_id, :memory_id, :side, :now)
ON CONFLICT (namespace, question_id, memory_id) DO UPDATE
SET side = excluded.side, opened_at = excluded.opened_at, closed_at = NULL

-- query: mark_disputed
-- Only believed memories change, so that the caller notices a change in between.
UPDATE memories SET status = 'disputed'
WHERE namespace = :namespace AND id IN (:ids...) AND status IN (:before...)
  AND retired_at IS NULL
RETURNING id

-- query: close_dispute
UPDATE disputes SET closed_at = :now
WHERE namespace = :namespace AND question_id = :question_id AND closed_at IS NULL
RETURNING memory_id

-- query: believe_undisputed
-- Only memories that are in no other open dispute change.
UPDATE memories SET status = 'active'
WHERE namespace = :namespace AND status = 'disputed' AND id IN (:ids...)
  AND NOT EXISTS (SELECT 1 FROM disputes d
    WHERE d.namespace = :namespace AND d.memory_id = memories.id AND d.closed_at IS NULL)

-- query: withdraw_disputes
UPDATE disputes SET closed_at = :now
WHERE namespace = :namespace AND closed_at IS NULL AND question_id IN (:ids...)

-- query: reopen_disputes
UPDATE disputes SET closed_at = NULL WHERE namespace = :namespace AND question_id IN (:ids...)

-- query: open_disputes
-- The sides of the longest waiting disputes.
WITH waiting AS (
  SELECT question_id, min(opened_at) AS since FROM disputes
  WHERE namespace = :namespace AND closed_at IS NULL
  GROUP BY question_id ORDER BY since, question_id LIMIT :limit OFFSET :offset
)
SELECT d.question_id, d.memory_id, d.side, d.opened_at
FROM waiting w JOIN disputes d ON d.namespace = :namespace AND d.question_id = w.question_id
WHERE d.closed_at IS NULL
ORDER BY w.since, d.question_id, d.memory_id

-- query: dispute
SELECT question_id, memory_id, side, opened_at FROM disputes
WHERE namespace = :namespace AND question_id = :question_id AND closed_at IS NULL
ORDER BY memory_id

-- query: sides_of_dispute
SELECT memory_id, side FROM disputes
WHERE namespace = :namespace AND question_id = :question_id ORDER BY side, memory_id

-- query: ended_disputes
-- The open disputes of which a whole side is not believed any more: nothing is left to ask.
SELECT d.question_id
FROM disputes d
LEFT JOIN memories m
  ON m.namespace = :namespace AND m.id = d.memory_id AND m.retired_at IS NULL
WHERE d.namespace = :namespace AND d.closed_at IS NULL
GROUP BY d.question_id
HAVING count(CASE WHEN d.side = 'new' THEN m.id END) = 0
  OR count(CASE WHEN d.side = 'existing' THEN m.id END) = 0
ORDER BY d.question_id

-- query: disputed_with
-- The memories that contradict each of these in open disputes. For a past moment the events decide
-- which were open.
SELECT d.memory_id, o.memory_id AS other_id, d.question_id
FROM disputes d JOIN disputes o ON o.namespace = :namespace AND o.question_id = d.question_id
  AND o.side <> d.side AND (:past OR o.closed_at IS NULL)
WHERE d.namespace = :namespace AND d.memory_id IN (:ids...) AND (:past OR d.closed_at IS NULL)
ORDER BY d.memory_id, other_id

-- query: relate
INSERT INTO relations
  (namespace, from_id, to_id, kind, reason, confidence, made_by, made_at)
VALUES (:namespace, :from_id, :to_id, :kind, :reason, :confidence, :made_by, :made_at)
ON CONFLICT (namespace, from_id, to_id, kind) DO UPDATE
SET reason = excluded.reason, confidence = excluded.confidence

-- query: relations_between
SELECT from_id, to_id, kind, reason, confidence, made_by, made_at FROM relations
WHERE namespace = :namespace AND from_id IN (:from_ids...) AND to_id IN (:to_ids...)

-- query: relations_of
SELECT from_id, to_id, kind, reason, confidence, made_by, made_at FROM relations
WHERE namespace = :namespace AND from_id IN (:ids...)
UNION
SELECT from_id, to_id, kind, reason, confidence, made_by, made_at FROM relations
WHERE namespace = :namespace AND to_id IN (:ids...)
ORDER BY made_at DESC, from_id, to_id, kind LIMIT :limit
