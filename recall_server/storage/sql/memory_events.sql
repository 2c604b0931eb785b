-- query: number_events
-- Locks the row of the namespace, so that the numbers are in the order of the changes.
UPDATE namespaces SET last_event = last_event + :count, stored_bytes = stored_bytes + :bytes
WHERE namespace = :namespace
RETURNING last_event, EXISTS (
  SELECT 1 FROM webhooks w WHERE w.namespace = :namespace AND w.state = 'active') AS has_webhooks

-- query: add_events
-- any scope: of what the transaction has changed
-- The numbers come from number_events. The state of a memory is the one that the transaction
-- leaves.
-- in: sqlite
INSERT INTO memory_events (
  namespace, seq, change_id, operation, accessor, item_id, kind, at, episode_id, reason, dropped,
  status, superseded_by, valid_until, retired_at, expires_at, confidence, reinforcements, citations,
  digest, answer
)
SELECT n.namespace, n.last_event - :count + 1 + e.key, :change_id, :operation, :accessor,
  e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3, e.value ->> 4, e.value -> 5,
  m.status, m.superseded_by, m.valid_until, m.retired_at, m.expires_at, m.confidence,
  m.reinforcements, (
    SELECT max(c.position) + 1 FROM citations c
    WHERE c.namespace = :namespace AND c.memory_id = m.id), e.value ->> 6, e.value ->> 7
FROM namespaces n CROSS JOIN json_each(:events) e
LEFT JOIN memories m ON m.namespace = :namespace AND m.id = e.value ->> 0
WHERE n.namespace = :namespace
-- in: postgres
INSERT INTO memory_events (
  namespace, seq, change_id, operation, accessor, item_id, kind, at, episode_id, reason, dropped,
  status, superseded_by, valid_until, retired_at, expires_at, confidence, reinforcements, citations,
  digest, answer
)
SELECT n.namespace, n.last_event - :count + e.place, :change_id, :operation, :accessor,
  e.value ->> 0, e.value ->> 1, CAST(e.value ->> 2 AS timestamptz), e.value ->> 3, e.value ->> 4,
  NULLIF(e.value -> 5, 'null'),
  m.status, m.superseded_by, m.valid_until, m.retired_at, m.expires_at, m.confidence,
  m.reinforcements, (
    SELECT max(c.position) + 1 FROM citations c
    WHERE c.namespace = :namespace AND c.memory_id = m.id), e.value ->> 6, e.value ->> 7
FROM namespaces n CROSS JOIN jsonb_array_elements(:events) WITH ORDINALITY AS e (value, place)
LEFT JOIN memories m ON m.namespace = :namespace AND m.id = e.value ->> 0
WHERE n.namespace = :namespace

-- query: count_changed_memories
-- any scope: of what the transaction has changed
-- Adds what each memory counts now, less what it counted at its last event. :erased is 1 if the
-- memories are about to be deleted.
INSERT INTO memory_counts (namespace, type, topic, memories)
SELECT :namespace, type, topic, sum(more)
FROM (
  SELECT m.type, m.topic,
    CASE WHEN :erased = 0 AND m.retired_at IS NULL THEN 1 ELSE 0 END - COALESCE((
      SELECT CASE WHEN e.retired_at IS NULL THEN 1 ELSE 0 END FROM memory_events e
      WHERE e.namespace = :namespace AND e.item_id = m.id ORDER BY e.seq DESC LIMIT 1), 0) AS more
  FROM memories m WHERE m.namespace = :namespace AND m.id IN (:ids...)
) AS changed
WHERE more <> 0
GROUP BY type, topic
ON CONFLICT (namespace, type, topic)
DO UPDATE SET memories = memory_counts.memories + excluded.memories

-- query: remove_empty_counts
-- any scope: of what the transaction has changed
-- Deletes the counts of topics without memories: a topic may be somebody's name.
DELETE FROM memory_counts
WHERE namespace = :namespace AND memories = 0 AND (type, topic) IN (
  SELECT type, topic FROM memories WHERE namespace = :namespace AND id IN (:ids...))

-- query: events_of_items
-- "+seq" makes SQLite sort: in the order of the key it would scan all events of the namespace.
SELECT * FROM memory_events WHERE namespace = :namespace AND item_id IN (:ids...) ORDER BY +seq

-- query: latest_events_of_items
SELECT * FROM memory_events
WHERE namespace = :namespace AND item_id IN (:ids...) AND (NOT :past OR at <= :as_of)
ORDER BY +seq DESC LIMIT :limit

-- query: events_of_relations
SELECT * FROM memory_events
WHERE namespace = :namespace AND item_id IN (:ids...) AND kind IN ('related', 'undone')
  AND (NOT :past OR at <= :as_of)
ORDER BY +seq

-- query: states_at
-- The last event of each of these memories at or before :as_of.
SELECT * FROM memory_events e
WHERE namespace = :namespace AND item_id IN (:ids...) AND status IS NOT NULL AND seq = (
  SELECT max(l.seq) FROM memory_events l
  WHERE l.namespace = :namespace AND l.item_id = e.item_id AND l.at <= :as_of)

-- query: items_of_change
SELECT item_id FROM memory_events WHERE namespace = :namespace AND change_id = :change_id
GROUP BY item_id ORDER BY min(seq)

-- query: items_changed_later
WITH own AS (
  SELECT item_id, max(seq) AS last FROM memory_events
  WHERE namespace = :namespace AND change_id = :change_id GROUP BY item_id
)
-- Without statistics PostgreSQL would turn EXISTS into a join of all rows with all.
SELECT item_id FROM own WHERE last < (SELECT max(l.seq) FROM memory_events l
  WHERE l.namespace = :namespace AND l.item_id = own.item_id)
ORDER BY item_id

-- query: memories_changed_after
SELECT DISTINCT item_id FROM memory_events
WHERE namespace = :namespace AND seq > :seq AND status IS NOT NULL ORDER BY item_id

-- query: basis_of_plans
-- A text that is added changes nothing that a plan of memories has read.
SELECT n.erase_epoch, n.last_event, n.conflict_policy,
  EXISTS (SELECT 1 FROM memory_events e WHERE e.namespace = n.namespace AND e.seq > :seq
    AND NOT (e.status IS NULL AND e.kind = 'added')) AS changed
FROM namespaces n WHERE n.namespace = :namespace

-- query: words_shown_by_change
SELECT * FROM memory_events
WHERE namespace = :namespace AND change_id = :change_id AND status IS NULL
  AND kind IN ('added', 'imported', 'released')
ORDER BY seq

-- query: counts_of_change
SELECT kind, count(*) AS events FROM memory_events
WHERE namespace = :namespace AND change_id = :change_id GROUP BY kind

-- query: undone_of_items
SELECT * FROM memory_events INDEXED BY memory_events_undone
WHERE namespace = :namespace AND kind = 'undone' AND item_id IN (:ids...)

-- query: event_numbered
SELECT * FROM memory_events WHERE namespace = :namespace AND seq = :seq

-- query: statuses_since
-- The states of memories that the events behind :seq left, and those before them.
SELECT e.seq, e.status, (
  SELECT b.status FROM memory_events b
  WHERE b.namespace = :namespace AND b.item_id = e.item_id AND b.seq < e.seq
  ORDER BY b.seq DESC LIMIT 1) AS status_before
FROM memory_events e
WHERE e.namespace = :namespace AND e.seq > :seq AND e.status IS NOT NULL
ORDER BY e.seq

-- query: page_of_events
SELECT * FROM memory_events WHERE namespace = :namespace AND seq < :before
ORDER BY seq DESC LIMIT :limit

-- query: count_events_of_memory
-- And the bytes of the answers that they keep.
-- in: sqlite
SELECT count(*) AS events, COALESCE(sum(length(CAST(answer AS BLOB))), 0) AS bytes
FROM memory_events WHERE namespace = :namespace AND item_id IN (:ids...)
-- in: postgres
SELECT count(*) AS events, COALESCE(sum(octet_length(answer)), 0) AS bytes
FROM memory_events WHERE namespace = :namespace AND item_id IN (:ids...)

-- query: count_events_of_passage
SELECT count(*) AS events, 0 AS bytes FROM memory_events WHERE namespace = :namespace AND item_id IN (:ids...)

-- query: count_events_of_episode
SELECT count(*) AS events, 0 AS bytes FROM memory_events
WHERE namespace = :namespace AND episode_id IN (:ids...)

-- query: drop_answers
UPDATE memory_events SET answer = NULL
WHERE namespace = :namespace AND item_id IN (:ids...) AND answer IS NOT NULL

-- query: unlink_events
UPDATE memory_events SET superseded_by = NULL
WHERE namespace = :namespace AND superseded_by IN (:ids...)
