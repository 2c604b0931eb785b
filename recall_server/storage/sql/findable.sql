-- query: findable
-- any scope: the word index holds all items; what is shown of them is read again
-- The words that these items are found by: memories by their own words and those of the turn that they rest on
-- first, turns by theirs. In whatever state they are: what was put into an index must come out.
-- The turn is looked up before it is joined: Postgres would look it up for each turn of an episode.
WITH cited AS MATERIALIZED (
  SELECT m.id, m.text, m.attribute, c.episode_id, c.span_start, (
    SELECT s.id FROM turns s
    WHERE s.namespace = :namespace AND s.episode_id = c.episode_id
      AND s.span_start <= c.span_start
    ORDER BY s.span_start DESC LIMIT 1) AS turn_id
  FROM memories m
  LEFT JOIN citations c ON c.namespace = m.namespace AND c.memory_id = m.id AND c.position = 0
  WHERE m.namespace = :namespace AND m.id IN (:ids...)
)
SELECT cited.id, cited.text, cited.attribute, t.speaker,
  substr(e.text, t.span_start + 1, t.span_end - t.span_start) AS said
FROM cited
LEFT JOIN episodes e ON e.namespace = :namespace AND e.id = cited.episode_id
LEFT JOIN turns t
  ON t.namespace = :namespace AND t.id = cited.turn_id AND cited.span_start < t.span_end
UNION ALL
SELECT t.id, NULL, NULL, t.speaker,
  substr(e.text, t.span_start + 1, t.span_end - t.span_start)
FROM turns t JOIN episodes e ON e.namespace = t.namespace AND e.id = t.episode_id
WHERE t.namespace = :namespace AND t.id IN (:ids...)

-- query: found_memories
-- any scope: the word index holds all items; what is shown of them is read again
-- The memories that search finds, page by page.
SELECT id FROM memories WHERE namespace = :namespace AND retired_at IS NULL AND id > :after
ORDER BY id LIMIT :limit

-- query: found_turns
-- The turns that search finds by themselves, page by page.
SELECT id FROM turns WHERE namespace = :namespace AND state = 'open' AND id > :after
ORDER BY id LIMIT :limit

-- query: found_among
-- any scope: the word index holds all items; what is shown of them is read again
SELECT id FROM memories
WHERE namespace = :namespace AND retired_at IS NULL AND id IN (:ids...)
UNION ALL
SELECT id FROM turns WHERE namespace = :namespace AND state = 'open' AND id IN (:ids...)

-- query: items_of_episode
SELECT memory_id AS id FROM citations
WHERE namespace = :namespace AND episode_id = :episode_id AND position = 0
UNION ALL
SELECT id FROM turns
WHERE namespace = :namespace AND episode_id = :episode_id AND state = 'open'

-- query: memories_resting_on
-- any scope: the word index holds all items; what is shown of them is read again
-- The active memories that are found by the words of one of these turns too.
-- in: sqlite
-- It takes a CROSS JOIN in the order in which it stands. By itself it would go through all memories
-- or citations: knowing nothing of a namespace, it thinks that one has ten.
SELECT DISTINCT m.id
FROM turns t CROSS JOIN citations c INDEXED BY citations_by_episode CROSS JOIN memories m
WHERE t.namespace = :namespace AND t.id IN (:ids...)
  AND c.namespace = :namespace AND c.episode_id = t.episode_id AND c.position = 0
  AND c.span_start >= t.span_start AND c.span_start < t.span_end
  AND m.namespace = :namespace AND m.id = c.memory_id AND m.retired_at IS NULL
-- in: postgres
SELECT DISTINCT m.id FROM turns t CROSS JOIN citations c CROSS JOIN memories m
WHERE t.namespace = :namespace AND t.id IN (:ids...)
  AND c.namespace = :namespace AND c.episode_id = t.episode_id AND c.position = 0
  AND c.span_start >= t.span_start AND c.span_start < t.span_end
  AND m.namespace = :namespace AND m.id = c.memory_id AND m.retired_at IS NULL

-- query: stale_word_indexes
-- across namespaces: each is made anew when the server starts
SELECT namespace FROM namespaces WHERE words_stale ORDER BY namespace

-- query: renew_word_index
-- Nothing where another server has done it meanwhile.
UPDATE namespaces SET words_stale = FALSE, documents = 0, words = 0,
  index_version = index_version + 1
WHERE namespace = :namespace AND words_stale
RETURNING namespace

-- query: clear_documents
UPDATE documents SET findable = FALSE, version = (
  SELECT index_version FROM namespaces WHERE namespace = :namespace)
WHERE namespace = :namespace AND findable

-- query: clear_postings
DELETE FROM postings WHERE namespace = :namespace

-- query: clear_terms
DELETE FROM terms WHERE namespace = :namespace

-- query: placed
-- The columns that ranking needs of the items at these slots: no text, which lies far from the row.
-- The turn of a memory is looked up as in findable.
WITH wanted AS MATERIALIZED (
  SELECT slot, item_id FROM documents
  WHERE namespace = :namespace AND slot IN (:slots...) AND findable
), cited AS MATERIALIZED (
  SELECT w.slot, m.id, m.recorded_at, m.valid_from, m.importance, m.access_count, c.episode_id,
    c.span_start, (
      SELECT s.id FROM turns s
      WHERE s.namespace = :namespace AND s.episode_id = c.episode_id
        AND s.span_start <= c.span_start
      ORDER BY s.span_start DESC LIMIT 1) AS turn_id
  FROM wanted w
  JOIN memories m ON m.namespace = :namespace AND m.id = w.item_id
  LEFT JOIN citations c ON c.namespace = :namespace AND c.memory_id = m.id AND c.position = 0
  WHERE m.retired_at IS NULL
    AND {{scope:m}}
)
SELECT cited.slot, cited.id, TRUE AS memory, cited.recorded_at, cited.valid_from, cited.importance,
  cited.access_count, cited.episode_id, e.session_id, t.session, t.position
FROM cited
LEFT JOIN episodes e ON e.namespace = :namespace AND e.id = cited.episode_id
LEFT JOIN turns t
  ON t.namespace = :namespace AND t.id = cited.turn_id AND cited.span_start < t.span_end
UNION ALL
SELECT w.slot, t.id, FALSE, e.recorded_at, COALESCE(t.said_at, e.occurred_at), t.importance,
  t.access_count, t.episode_id, e.session_id, t.session, t.position
FROM wanted w
JOIN turns t ON t.namespace = :namespace AND t.id = w.item_id
JOIN episodes e ON e.namespace = :namespace AND e.id = t.episode_id
WHERE t.state = 'open'
  AND {{untyped_scope:e}}
