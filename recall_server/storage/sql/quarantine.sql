-- query: hold_turns
INSERT INTO quarantine (namespace, item_id, episode_id, reasons, state, held_at)
SELECT namespace, id, episode_id, :reasons, 'held', :held_at FROM turns
WHERE namespace = :namespace AND id IN (:ids...)

-- query: quarantined
-- any scope: the operation is refused to tokens with limits
-- The newest first, without those whose text was undone or has expired. The page is cut before the
-- words are joined.
WITH page AS (
  SELECT * FROM quarantine q WHERE namespace = :namespace AND state = :state
    AND NOT EXISTS (SELECT 1 FROM forgotten f
      WHERE f.namespace = :namespace AND f.item_id = q.episode_id)
  ORDER BY held_at DESC, item_id DESC LIMIT :limit OFFSET :offset
)
SELECT p.*, t.speaker, t.said_at, t.span_start, t.span_end, e.topic, e.source, e.agent_id,
  substr(e.text, t.span_start + 1, t.span_end - t.span_start) AS text
FROM page p
JOIN turns t ON t.namespace = p.namespace AND t.id = p.item_id
JOIN episodes e ON e.namespace = p.namespace AND e.id = p.episode_id
ORDER BY p.held_at DESC, p.item_id DESC

-- query: quarantined_count
SELECT count(*) AS turns FROM quarantine q WHERE namespace = :namespace AND state = :state
  AND NOT EXISTS (SELECT 1 FROM forgotten f
    WHERE f.namespace = :namespace AND f.item_id = q.episode_id)

-- query: quarantined_turn
SELECT q.*, t.position FROM quarantine q
JOIN turns t ON t.namespace = q.namespace AND t.id = q.item_id
WHERE q.namespace = :namespace AND q.item_id = :item_id

-- query: hide_turns
UPDATE turns SET state = 'hidden' WHERE namespace = :namespace AND id IN (:ids...)

-- query: undo_decision
-- Restores an earlier decision, with its author.
INSERT INTO quarantine (
  namespace, item_id, episode_id, reasons, state, held_at, decided_by, decided_at
) VALUES (
  :namespace, :item_id, :episode_id, :reasons, :state, :at, :decided_by, :decided_at
)
ON CONFLICT (namespace, item_id) DO UPDATE
SET state = excluded.state, decided_by = excluded.decided_by, decided_at = excluded.decided_at

-- query: undo_holds
DELETE FROM quarantine WHERE namespace = :namespace AND item_id IN (:ids...)

-- query: decide_quarantined
-- A second decision changes nothing and returns no row.
UPDATE quarantine SET state = :state, decided_by = :decided_by, decided_at = :decided_at
WHERE namespace = :namespace AND item_id = :item_id AND state = 'held'
RETURNING item_id
