-- query: findable_memories
-- any scope: the word index holds all items; what is shown of them is read again
-- The words that these memories are found by, in any state: what was added to the index must be
-- removable again.
SELECT m.id, m.text, m.attribute, (
  SELECT t.speaker FROM turns t
  WHERE t.namespace = :namespace AND t.episode_id = c.episode_id
    AND t.span_start <= c.span_start AND c.span_start < t.span_end
  ORDER BY t.span_start DESC LIMIT 1) AS speaker
FROM memories m
LEFT JOIN citations c ON c.namespace = :namespace AND c.memory_id = m.id AND c.position = 0
WHERE m.namespace = :namespace AND m.id IN (:ids...)

-- query: memories_to_index
-- any scope: the word index holds all items; what is shown of them is read again
SELECT id FROM memories WHERE namespace = :namespace AND status IN ('active', 'disputed', 'superseded')
  AND id > :after
ORDER BY id LIMIT :limit

-- query: episodes_to_index
-- any scope: the word index holds all items; what is shown of them is read again
SELECT id FROM episodes WHERE namespace = :namespace AND id > :after ORDER BY id LIMIT :limit

-- query: found_among
-- any scope: the word index holds all items; what is shown of them is read again
SELECT item_id AS id FROM documents
WHERE namespace = :namespace AND item_id IN (:ids...) AND findable

-- query: places_of_items
-- any scope: an undo hides what a change has shown
-- Of the last entry of each passage, hidden ones too.
SELECT item_id, span_start, span_end FROM documents INDEXED BY documents_by_item
WHERE namespace = :namespace AND item_id IN (:ids...) AND turn_id IS NOT NULL ORDER BY +slot

-- query: page_of_items
SELECT slot, item_id FROM documents
WHERE namespace = :namespace AND slot > :after AND findable
ORDER BY slot LIMIT :limit

-- query: stale_word_indexes
-- across namespaces: each is made anew when the server starts
SELECT namespace FROM namespaces WHERE words_stale ORDER BY namespace

-- query: renew_word_index
-- Returns no row if another server has done it meanwhile.
UPDATE namespaces SET words_stale = FALSE, documents = 0, words = 0,
  index_version = index_version + 1
WHERE namespace = :namespace AND words_stale
RETURNING namespace

-- query: hidden_slots
SELECT slot FROM documents WHERE namespace = :namespace AND NOT findable

-- query: terms_behind
SELECT term FROM terms WHERE namespace = :namespace AND term > :after ORDER BY term LIMIT :limit

-- query: clear_postings
DELETE FROM postings WHERE namespace = :namespace

-- query: clear_documents
-- Hides the entries as if they had never been found: new ones take their places.
UPDATE documents SET findable = FALSE, hidden_at = added_at, version = (
  SELECT index_version FROM namespaces WHERE namespace = :namespace)
WHERE namespace = :namespace AND findable

-- query: clear_terms
DELETE FROM terms WHERE namespace = :namespace

-- query: keep_hidden_terms
-- Hidden entries keep the words that they were found by.
-- in: sqlite
INSERT INTO terms (namespace, term, documents, last_slot, found)
SELECT n.namespace, k.key, 0, n.last_slot, k.value
FROM namespaces n CROSS JOIN json_each(:kept) k WHERE n.namespace = :namespace
-- in: postgres
INSERT INTO terms (namespace, term, documents, last_slot, found)
SELECT n.namespace, k.key, 0, n.last_slot, k.value
FROM namespaces n CROSS JOIN jsonb_each_text(:kept) AS k WHERE n.namespace = :namespace

-- query: backdate_documents
-- Sets each entry to the moment when the entry that it replaces was added.
UPDATE documents SET added_at = o.added_at
FROM documents o
WHERE documents.namespace = :namespace AND documents.item_id IN (:ids...) AND documents.findable
  AND o.namespace = :namespace AND o.item_id = documents.item_id AND o.hidden_at = o.added_at
  AND o.slot = (
    SELECT max(b.slot) FROM documents b
    WHERE b.namespace = :namespace AND b.item_id = documents.item_id
      AND b.slot < documents.slot)

-- query: slots_of_facts
-- All entries of the memories of these attributes of a subject, of the last recorded ones.
SELECT d.slot FROM (
  SELECT m.id FROM memories m
  WHERE m.namespace = :namespace AND m.entity_key IN (:names...)
    AND m.attribute_key IN (:attributes...)
    AND (NOT :past OR m.recorded_at <= :as_of)
    AND {{scope:m}}
  ORDER BY m.recorded_at DESC, m.id DESC LIMIT :limit) m
JOIN documents d ON d.namespace = :namespace AND d.item_id = m.id

-- query: placed
-- The columns that ranking needs of the items at these slots, without texts, which are stored apart
-- from the row. The turn of a memory is looked up before the join: otherwise Postgres would look it
-- up for each turn of an episode.
WITH wanted AS MATERIALIZED (
  SELECT slot, item_id, turn_id, span_start, span_end FROM documents
  WHERE namespace = :namespace AND slot IN (:slots...)
), cited AS MATERIALIZED (
  SELECT w.slot, m.id, m.type, m.said_at, m.recorded_at, m.valid_from, m.importance,
    m.access_count, m.entity_key, m.attribute_key, c.episode_id, c.span_start, c.span_end, (
      SELECT s.id FROM turns s
      WHERE s.namespace = :namespace AND s.episode_id = c.episode_id
        AND s.span_start <= c.span_start
      ORDER BY s.span_start DESC LIMIT 1) AS turn_id
  FROM wanted w
  JOIN memories m ON m.namespace = :namespace AND m.id = w.item_id
  LEFT JOIN citations c ON c.namespace = :namespace AND c.memory_id = m.id AND c.position = 0
  WHERE w.turn_id IS NULL
    AND {{scope:m}}
)
SELECT cited.slot, cited.id, TRUE AS memory, cited.type, cited.said_at, cited.recorded_at,
  cited.valid_from, cited.importance, cited.access_count, cited.entity_key, cited.attribute_key,
  cited.episode_id, cited.span_start, cited.span_end, e.session_id, t.session, t.position
FROM cited
LEFT JOIN episodes e ON e.namespace = :namespace AND e.id = cited.episode_id
LEFT JOIN turns t
  ON t.namespace = :namespace AND t.id = cited.turn_id AND cited.span_start < t.span_end
UNION ALL
SELECT w.slot, w.item_id, FALSE, NULL, COALESCE(t.said_at, e.occurred_at), e.recorded_at,
  COALESCE(t.said_at, e.occurred_at), t.importance, t.access_count, NULL, NULL, t.episode_id,
  w.span_start, w.span_end, e.session_id, t.session, t.position
FROM wanted w
JOIN turns t ON t.namespace = :namespace AND t.id = w.turn_id
JOIN episodes e ON e.namespace = :namespace AND e.id = t.episode_id
WHERE {{turn_scope:e}}
