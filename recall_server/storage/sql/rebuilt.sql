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

-- query: found_since
-- Since when each of these memories has been in states that search finds.
SELECT e.item_id, min(e.at) AS at FROM memory_events e
WHERE e.namespace = :namespace AND e.item_id IN (:ids...) AND e.status IN (:statuses...)
  AND e.seq > COALESCE((
    SELECT max(l.seq) FROM memory_events l
    WHERE l.namespace = :namespace AND l.item_id = e.item_id
      AND NOT (l.status IN (:statuses...))), 0)
GROUP BY e.item_id

-- query: records_now
-- any scope: a rebuild is of the whole namespace
SELECT id, text, type, topic, container, layer, entity, attribute, value, negated, said_at,
  valid_from, entity_key, attribute_key, value_key
FROM memories WHERE namespace = :namespace AND id IN (:ids...)

-- query: recorded_of
-- The events of these memories that recorded words, citations or relations, or dropped citations
-- or gave them back.
SELECT item_id, seq, at, change_id, kind, reason, digest, citations, dropped, answer
FROM memory_events
WHERE namespace = :namespace AND item_id IN (:ids...) AND status IS NOT NULL
  AND (digest IS NOT NULL OR dropped IS NOT NULL OR answer IS NOT NULL
    OR kind IN ('added', 'imported', 'undone'))
ORDER BY +seq

-- query: texts_of_changes
-- any scope: a rebuild is of the whole namespace
SELECT id, job_id AS change_id FROM episodes
WHERE namespace = :namespace AND job_id IN (:changes...)
UNION
SELECT episode_id, change_id FROM memory_events
WHERE namespace = :namespace AND change_id IN (:changes...) AND episode_id IS NOT NULL

-- query: give_digest
UPDATE memory_events SET digest = :digest
WHERE namespace = :namespace AND seq = :seq AND digest IS NULL

-- query: memories_with_events
SELECT DISTINCT item_id AS id FROM memory_events
WHERE namespace = :namespace AND item_id > :after AND status IS NOT NULL
ORDER BY item_id LIMIT :limit

-- query: stated_relations
SELECT item_id, change_id, reason FROM memory_events
WHERE namespace = :namespace AND kind = 'related' ORDER BY seq

-- query: all_relations
SELECT from_id, to_id, kind, reason, confidence, made_by, made_at FROM relations
WHERE namespace = :namespace ORDER BY from_id, to_id, kind

-- query: added_at
SELECT item_id, kind, at FROM memory_events
WHERE namespace = :namespace AND item_id IN (:ids...) AND kind IN ('added', 'imported')

-- query: all_counts
SELECT type, topic, memories FROM memory_counts WHERE namespace = :namespace

-- query: events_of_disputes
-- All events that opened or ended disputes, or took back changes of these memories.
SELECT * FROM memory_events WHERE namespace = :namespace AND kind IN ('disputed', 'settled', 'undone')
  AND item_id IN (SELECT item_id FROM memory_events
    WHERE namespace = :namespace AND kind IN ('disputed', 'settled') AND status IS NOT NULL)
ORDER BY +seq

-- query: all_disputes
SELECT question_id, memory_id, side, opened_at, closed_at FROM disputes WHERE namespace = :namespace

-- query: remove_dispute
DELETE FROM disputes
WHERE namespace = :namespace AND question_id = :question_id AND memory_id = :memory_id

-- query: write_dispute
INSERT INTO disputes (namespace, question_id, memory_id, side, opened_at, closed_at)
VALUES (:namespace, :question_id, :memory_id, :side, :opened_at, :closed_at)

-- query: other_labels
-- any scope: a rebuild is of the whole namespace
-- Those of these memories that have other labels than the text that they cite first. A merged one
-- has those of several, a person's is nobody else's, and an expired one keeps its own.
SELECT m.id, e.session_id, e.agent_id, e.tags, e.metadata
FROM memories m
JOIN citations c ON c.namespace = :namespace AND c.memory_id = m.id AND c.position = 0
JOIN episodes e ON e.namespace = :namespace AND e.id = c.episode_id
WHERE m.namespace = :namespace AND m.id IN (:ids...) AND m.status <> 'expired'
  AND m.extractor <> 'person' AND replace(m.extractor, '/merge/', '') = m.extractor AND NOT (
    COALESCE(m.session_id, '') = COALESCE(e.session_id, '')
    AND COALESCE(m.agent_id, '') = COALESCE(e.agent_id, '')
    AND COALESCE(m.tags, '[]') = COALESCE(e.tags, '[]')
    AND COALESCE(m.metadata, '{}') = COALESCE(e.metadata, '{}'))

-- query: write_labels
-- any scope: a rebuild is of the whole namespace
UPDATE memories SET session_id = :session_id, agent_id = :agent_id, tags = :tags,
  metadata = :metadata
WHERE namespace = :namespace AND id = :id

-- query: write_record
-- any scope: a rebuild is of the whole namespace
UPDATE memories SET text = :text, type = :type, topic = :topic, container = :container,
  layer = :layer, entity = :entity, attribute = :attribute, value = :value, negated = :negated,
  said_at = :said_at, valid_from = :valid_from
WHERE namespace = :namespace AND id = :id

-- query: write_keys
-- any scope: a rebuild is of the whole namespace
UPDATE memories SET entity_key = :entity_key, attribute_key = :attribute_key, value_key = :value_key
WHERE namespace = :namespace AND id = :id

-- query: remove_citations
DELETE FROM citations WHERE namespace = :namespace AND memory_id = :id

-- query: remove_relation
DELETE FROM relations
WHERE namespace = :namespace AND from_id = :from_id AND to_id = :to_id AND kind = :kind

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
