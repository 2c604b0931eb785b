-- any scope: ids only; what they stand for is read by its access scope

-- query: open_proposal
INSERT INTO proposals (namespace, id, memory_id, side, kind, made_by, opened_at)
VALUES (:namespace, :id, :memory_id, :side, :kind, :made_by, :opened_at)

-- query: close_proposal
UPDATE proposals SET closed_at = :now, choice = :choice, decided_by = :decided_by
WHERE namespace = :namespace AND id = :id AND closed_at IS NULL
RETURNING memory_id

-- query: withdraw_proposals
-- A proposal is closed as a whole if one of the memories that it would add is withdrawn.
UPDATE proposals SET closed_at = :now
WHERE namespace = :namespace AND closed_at IS NULL AND id IN (
  SELECT id FROM proposals
  WHERE namespace = :namespace AND memory_id IN (:ids...) AND side = 'new')

-- query: withdraw_proposals_of_text
UPDATE proposals SET closed_at = :now
WHERE namespace = :namespace AND closed_at IS NULL AND id IN (
  SELECT p.id FROM citations c JOIN proposals p
    ON p.namespace = :namespace AND p.memory_id = c.memory_id AND p.side = 'new'
  WHERE c.namespace = :namespace AND c.episode_id = :episode_id)

-- query: closed_proposals_about
SELECT DISTINCT memory_id, closed_at FROM proposals
WHERE namespace = :namespace AND memory_id IN (:ids...) AND closed_at IS NOT NULL
ORDER BY memory_id, closed_at

-- query: reopen_proposals
-- The answer stays, for an undo of this undo.
UPDATE proposals SET closed_at = NULL
WHERE namespace = :namespace AND closed_at = :closed_at AND id IN (
  SELECT id FROM proposals
  WHERE namespace = :namespace AND memory_id = :memory_id AND closed_at = :closed_at)

-- query: close_reopened_proposals
UPDATE proposals SET closed_at = :now
WHERE namespace = :namespace AND closed_at IS NULL AND choice IS NOT NULL AND id IN (
  SELECT id FROM proposals WHERE namespace = :namespace AND memory_id IN (:ids...))

-- query: open_proposals
-- The memories of the longest waiting proposals.
WITH waiting AS (
  SELECT id, min(opened_at) AS since FROM proposals
  WHERE namespace = :namespace AND closed_at IS NULL
  GROUP BY id ORDER BY since, id LIMIT :limit OFFSET :offset
)
SELECT p.* FROM waiting w
JOIN proposals p ON p.namespace = :namespace AND p.id = w.id
ORDER BY w.since, p.id, p.side, p.memory_id

-- query: proposal
SELECT * FROM proposals WHERE namespace = :namespace AND id = :id ORDER BY side, memory_id

-- query: open_proposal_to_forget
SELECT id FROM proposals
WHERE namespace = :namespace AND memory_id = :memory_id AND side = 'target' AND kind = 'forget'
  AND closed_at IS NULL
ORDER BY opened_at, id LIMIT 1

-- query: unaccepted_memory
SELECT 1 AS one FROM proposals
WHERE namespace = :namespace AND memory_id = :memory_id AND side = 'new'
  AND (closed_at IS NULL OR COALESCE(choice, '') <> 'accept') LIMIT 1
