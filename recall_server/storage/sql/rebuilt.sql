-- query: keep_rebuilt
-- The next batch, unless something was erased since it was derived.
INSERT INTO rebuilt (
  namespace, number, release, last_event, index_version, memory_id, episode_id, derived
)
SELECT n.namespace, COALESCE((SELECT max(r.number) + 1 FROM rebuilt r
  WHERE r.namespace = :namespace), 0), :release, :last_event, :index_version, :memory_id,
  :episode_id, :derived
FROM namespaces n WHERE n.namespace = :namespace AND n.erase_epoch = :erase_epoch
RETURNING number

-- query: last_rebuilt
SELECT memory_id, episode_id, release FROM rebuilt WHERE namespace = :namespace
ORDER BY number DESC LIMIT 1

-- query: numbers_of_rebuilt
SELECT number FROM rebuilt WHERE namespace = :namespace ORDER BY number

-- query: rebuilt_batch
SELECT last_event, index_version, derived FROM rebuilt WHERE namespace = :namespace AND number = :number

-- query: discard_rebuilt
DELETE FROM rebuilt WHERE namespace = :namespace

-- query: page_of_memory_ids
-- any scope: a rebuild is of the whole namespace
SELECT id FROM memories WHERE namespace = :namespace AND id > :after ORDER BY id LIMIT :limit

-- query: states_now
-- any scope: a rebuild is of the whole namespace
SELECT m.id, m.status, m.superseded_by, m.valid_until, m.retired_at, m.expires_at, m.confidence,
  m.reinforcements, (SELECT max(c.position) + 1 FROM citations c
    WHERE c.namespace = :namespace AND c.memory_id = m.id) AS citations
FROM memories m WHERE m.namespace = :namespace AND m.id IN (:ids...)

-- query: last_states
-- The state that the last event of each of these memories left.
SELECT e.item_id AS id, e.status, e.superseded_by, e.valid_until, e.retired_at, e.expires_at,
  e.confidence, e.reinforcements, e.citations
FROM memory_events e
WHERE e.namespace = :namespace AND e.item_id IN (:ids...) AND e.status IS NOT NULL AND e.seq = (
  SELECT max(l.seq) FROM memory_events l WHERE l.namespace = :namespace AND l.item_id = e.item_id)

-- query: changed_by_events
-- Each item with an event behind this number, its text if it is not a memory, and the last number.
SELECT item_id, episode_id, max(seq) AS seq FROM memory_events
WHERE namespace = :namespace AND seq > :seq GROUP BY item_id, episode_id

-- query: changed_entries
-- Each item whose entries have changed after this version of the index, and the last version.
SELECT item_id, max(version) AS version FROM documents
WHERE namespace = :namespace AND version > :version GROUP BY item_id

-- query: entries_of
-- The entries by which search finds these items.
SELECT item_id, slot, turn_id, span_start, span_end, heading_start, heading_end, length
FROM documents WHERE namespace = :namespace AND item_id IN (:ids...) AND findable

-- query: withdraw_documents
-- As if these items had never been found by their entries: new ones take their places. Uses the
-- version that count_documents has made.
UPDATE documents SET findable = FALSE, hidden_at = added_at, version = (
  SELECT index_version FROM namespaces WHERE namespace = :namespace)
WHERE namespace = :namespace AND item_id IN (:ids...) AND findable
