-- query: number_events
-- Locks the row of the namespace, so that the numbers are in the order of the changes.
UPDATE namespaces SET last_event = last_event + :count, stored_bytes = stored_bytes + :bytes
WHERE namespace = :namespace
RETURNING last_event, EXISTS (
  SELECT 1 FROM webhooks w WHERE w.namespace = :namespace AND w.state = 'active') AS has_webhooks

-- query: add_events
-- any scope: of what the transaction has changed
-- The numbers come from number_events. The state of a memory is the one that the transaction
-- leaves. Events that differ in their items alone are one entry: reading an entry takes as long as
-- writing an event.
-- in: sqlite
WITH alike AS MATERIALIZED (
  SELECT value ->> 0 AS place, value ->> 1 AS kind, value ->> 2 AS at, value ->> 3 AS episode_id,
    value ->> 4 AS reason, value -> 5 AS dropped, value ->> 6 AS digest, value ->> 7 AS answer,
    value -> 8 AS items
  FROM json_each(:events)
)
INSERT INTO memory_events (
  namespace, seq, change_id, operation, accessor, item_id, kind, at, episode_id, reason, dropped,
  status, superseded_by, valid_until, retired_at, expires_at, confidence, reinforcements, citations,
  digest, answer
)
SELECT n.namespace, n.last_event - :count + 1 + a.place + i.key, :change_id, :operation, :accessor,
  i.value, a.kind, a.at, a.episode_id, a.reason, a.dropped,
  m.status, m.superseded_by, m.valid_until, m.retired_at, m.expires_at, m.confidence,
  m.reinforcements, (
    SELECT max(c.position) + 1 FROM citations c
    WHERE c.namespace = :namespace AND c.memory_id = m.id), a.digest, a.answer
FROM namespaces n CROSS JOIN alike a CROSS JOIN json_each(a.items) i
LEFT JOIN memories m ON m.namespace = :namespace AND m.id = i.value
WHERE n.namespace = :namespace
-- in: postgres
INSERT INTO memory_events (
  namespace, seq, change_id, operation, accessor, item_id, kind, at, episode_id, reason, dropped,
  status, superseded_by, valid_until, retired_at, expires_at, confidence, reinforcements, citations,
  digest, answer
)
SELECT n.namespace, n.last_event - :count + CAST(a ->> 0 AS bigint) + i.place, :change_id,
  :operation, :accessor, i.id, a ->> 1, CAST(a ->> 2 AS timestamptz), a ->> 3, a ->> 4,
  NULLIF(a -> 5, 'null'),
  m.status, m.superseded_by, m.valid_until, m.retired_at, m.expires_at, m.confidence,
  m.reinforcements, (
    SELECT max(c.position) + 1 FROM citations c
    WHERE c.namespace = :namespace AND c.memory_id = m.id), a ->> 6, a ->> 7
FROM namespaces n CROSS JOIN jsonb_array_elements(:events) a
CROSS JOIN jsonb_array_elements_text(a -> 8) WITH ORDINALITY AS i (id, place)
LEFT JOIN memories m ON m.namespace = :namespace AND m.id = i.id
WHERE n.namespace = :namespace

-- query: count_changed_memories
-- any scope: of what the transaction has changed
-- Adds what each memory counts now, less what it counted at its last event. :erased is 1 if the
-- memories are about to be deleted. The index of events has their statuses.
INSERT INTO memory_counts (namespace, type, topic, memories)
SELECT :namespace, type, topic, sum(more)
FROM (
  SELECT m.type, m.topic,
    CASE WHEN :erased = 0 AND m.retired_at IS NULL THEN 1 ELSE 0 END - COALESCE((
      SELECT CASE WHEN e.status IN ('active', 'disputed') THEN 1 ELSE 0 END FROM memory_events e
      WHERE e.namespace = :namespace AND e.item_id = m.id ORDER BY e.seq DESC LIMIT 1), 0) AS more
  FROM memories m WHERE m.namespace = :namespace AND m.id IN (:ids...)
) AS changed
WHERE more <> 0
GROUP BY type, topic
ON CONFLICT (namespace, type, topic)
DO UPDATE SET memories = memory_counts.memories + excluded.memories

-- query: more_counts
-- any scope: of what a change is about to change
SELECT type, topic, sum(more) AS more
FROM (
  SELECT type, topic, CASE WHEN id IN (:believed...) THEN 1 ELSE 0 END
    - CASE WHEN retired_at IS NULL THEN 1 ELSE 0 END AS more
  FROM memories WHERE namespace = :namespace AND id IN (:ids...)
) AS changed
WHERE more <> 0
GROUP BY type, topic

-- query: correct_count
INSERT INTO memory_counts (namespace, type, topic, memories)
VALUES (:namespace, :type, :topic, :more)
ON CONFLICT (namespace, type, topic) DO UPDATE SET memories = memory_counts.memories + excluded.memories

-- query: remove_zero_counts
DELETE FROM memory_counts WHERE namespace = :namespace AND memories = 0

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
WHERE namespace = :namespace AND item_id IN (:ids...)
  AND kind IN ('related', 'disputed', 'settled', 'undone') AND (NOT :past OR at <= :as_of)
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
