-- query: episodes_of_source
-- any scope: an operator asks
-- The empty string stands for any. Only operators ask this, and seldom, so there is no index by
-- agent.
SELECT id FROM episodes
WHERE namespace = :namespace AND (:episode_id = '' OR id = :episode_id)
  AND (:session_id = '' OR session_id = :session_id) AND (:agent_id = '' OR agent_id = :agent_id)
ORDER BY id

-- query: superseded_by
-- any scope: an operator asks
SELECT id, superseded_by FROM memories
WHERE namespace = :namespace AND superseded_by IN (:ids...) ORDER BY id

-- query: believe_again
-- valid_until is cleared, since it came from the superseding memory.
UPDATE memories
SET status = 'active', retired_at = NULL, superseded_by = NULL, valid_until = NULL
WHERE namespace = :namespace AND id IN (:ids...)

-- query: relink_memory
UPDATE memories SET superseded_by = :by WHERE namespace = :namespace AND id = :id

-- query: drop_citation
DELETE FROM citations
WHERE namespace = :namespace AND memory_id = :id AND position = :position

-- query: set_reinforcements
UPDATE memories SET reinforcements = :reinforcements WHERE namespace = :namespace AND id = :id

-- query: quarantine_memories
-- Their earlier states stay in their events.
UPDATE memories SET status = 'quarantined', retired_at = COALESCE(retired_at, :now)
WHERE namespace = :namespace AND id IN (:ids...)

-- query: turns_to_reject
-- A turn that was imported as hidden (no row in quarantine) stays hidden for good.
SELECT t.id, t.episode_id, t.span_start, t.span_end
FROM turns t LEFT JOIN quarantine q ON q.namespace = :namespace AND q.item_id = t.id
WHERE t.namespace = :namespace AND t.episode_id IN (:ids...)
  AND (t.state <> 'hidden' OR q.state <> 'rejected')
ORDER BY t.episode_id, t.position

-- query: reject_turns
-- Earlier reasons stay, but an earlier release is overwritten.
INSERT INTO quarantine (
  namespace, item_id, episode_id, reasons, state, held_at, decided_by, decided_at
)
SELECT t.namespace, t.id, t.episode_id, :reasons, 'rejected', :now, :decided_by, :now
FROM turns t WHERE t.namespace = :namespace AND t.id IN (:turns...)
ON CONFLICT (namespace, item_id) DO UPDATE
SET state = 'rejected', decided_by = excluded.decided_by, decided_at = excluded.decided_at

-- query: forget_run_events
DELETE FROM run_events WHERE namespace = :namespace AND run_id = :id AND seq IN (:seqs...)
