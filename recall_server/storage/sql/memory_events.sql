-- query: number_events
-- Under the lock of the namespace, so that the numbers are in the order of the changes.
UPDATE namespaces SET last_event = last_event + :count WHERE namespace = :namespace

-- query: add_events
-- any scope: of what the transaction has changed
-- Numbered by number_events; the state of a memory is the one that the transaction leaves it in.
-- in: sqlite
INSERT INTO memory_events (
  namespace, seq, change_id, operation, accessor, item_id, kind, at, episode_id, reason, dropped,
  status, superseded_by, valid_until, retired_at, expires_at, confidence, reinforcements, citations
)
SELECT n.namespace, n.last_event - :count + 1 + e.key, :change_id, :operation, :accessor,
  e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3, e.value ->> 4, e.value -> 5,
  m.status, m.superseded_by, m.valid_until, m.retired_at, m.expires_at, m.confidence,
  m.reinforcements, (
    SELECT max(c.position) + 1 FROM citations c
    WHERE c.namespace = :namespace AND c.memory_id = m.id)
FROM namespaces n CROSS JOIN json_each(:events) e
LEFT JOIN memories m ON m.namespace = :namespace AND m.id = e.value ->> 0
WHERE n.namespace = :namespace
-- in: postgres
INSERT INTO memory_events (
  namespace, seq, change_id, operation, accessor, item_id, kind, at, episode_id, reason, dropped,
  status, superseded_by, valid_until, retired_at, expires_at, confidence, reinforcements, citations
)
SELECT n.namespace, n.last_event - :count + e.place, :change_id, :operation, :accessor,
  e.value ->> 0, e.value ->> 1, CAST(e.value ->> 2 AS timestamptz), e.value ->> 3, e.value ->> 4,
  NULLIF(e.value -> 5, 'null'),
  m.status, m.superseded_by, m.valid_until, m.retired_at, m.expires_at, m.confidence,
  m.reinforcements, (
    SELECT max(c.position) + 1 FROM citations c
    WHERE c.namespace = :namespace AND c.memory_id = m.id)
FROM namespaces n CROSS JOIN jsonb_array_elements(:events) WITH ORDINALITY AS e (value, place)
LEFT JOIN memories m ON m.namespace = :namespace AND m.id = e.value ->> 0
WHERE n.namespace = :namespace

-- query: events_of_items
-- Sorted by itself: in the order of the key SQLite would go through all events of the namespace.
SELECT * FROM memory_events WHERE namespace = :namespace AND item_id IN (:ids...) ORDER BY +seq

-- query: states_at
-- The last one of each of these memories before or at :as_of.
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
-- Of EXISTS PostgreSQL would make a join of all with all, as long as it has no statistics.
SELECT item_id FROM own WHERE last < (SELECT max(l.seq) FROM memory_events l
  WHERE l.namespace = :namespace AND l.item_id = own.item_id)
ORDER BY item_id

-- query: words_shown_by_change
SELECT * FROM memory_events
WHERE namespace = :namespace AND change_id = :change_id AND status IS NULL
  AND kind IN ('added', 'imported', 'released')
ORDER BY seq

-- query: counts_of_change
SELECT kind, count(*) AS events FROM memory_events
WHERE namespace = :namespace AND change_id = :change_id GROUP BY kind

-- query: undone_of_items
-- in: sqlite
SELECT * FROM memory_events INDEXED BY memory_events_undone
WHERE namespace = :namespace AND kind = 'undone' AND item_id IN (:ids...)
-- in: postgres
SELECT * FROM memory_events
WHERE namespace = :namespace AND kind = 'undone' AND item_id IN (:ids...)

-- query: page_of_events
SELECT * FROM memory_events WHERE namespace = :namespace AND seq < :before
ORDER BY seq DESC LIMIT :limit

-- query: unlink_events
UPDATE memory_events SET superseded_by = NULL
WHERE namespace = :namespace AND superseded_by IN (:ids...)
