-- fragment: cited
SELECT m.*, c.episode_id, c.span_start, c.span_end
FROM memories m JOIN citations c
  ON c.namespace = m.namespace AND c.memory_id = m.id AND c.position = 0

-- fragment: quoted
SELECT m.*, c.episode_id, c.span_start, c.span_end, t.speaker,
  substr(e.text, c.span_start + 1, c.span_end - c.span_start) AS quote,
  {{unreconciled:m}} AS unreconciled

-- fragment: first_citation
JOIN citations c ON c.namespace = m.namespace AND c.memory_id = m.id AND c.position = 0
JOIN episodes e ON e.namespace = c.namespace AND e.id = c.episode_id
LEFT JOIN turns t ON t.namespace = c.namespace AND t.episode_id = c.episode_id
  AND t.span_start <= c.span_start AND c.span_start < t.span_end

-- fragment: forward
-- :depth ends a cycle. The last has no successor: a null id.
WITH RECURSIVE forward (id, depth) AS (
  SELECT id, 0 FROM memories WHERE namespace = :namespace AND id IN (:ids...)
  UNION
  SELECT m.superseded_by, f.depth + 1 FROM memories m JOIN forward f ON m.id = f.id
  WHERE m.namespace = :namespace AND f.depth < :depth
)

-- fragment: forward_at
-- The same as of a past moment, by the events.
WITH RECURSIVE forward (id, depth) AS (
  SELECT id, 0 FROM memories WHERE namespace = :namespace AND id IN (:ids...)
  UNION
  SELECT e.superseded_by, f.depth + 1 FROM memory_events e JOIN forward f ON e.item_id = f.id
  WHERE e.namespace = :namespace AND f.depth < :depth
    AND e.seq = (SELECT max(l.seq) FROM memory_events l
      WHERE l.namespace = :namespace AND l.item_id = e.item_id AND l.at <= :as_of)
)

-- fragment: of_turn
-- The passages of the turn of a citation. An entry that was hidden as it was added was replaced.
WHERE d.namespace = :namespace AND d.turn_id = t.id
  AND (d.hidden_at IS NULL OR d.hidden_at > d.added_at)

-- fragment: then
-- Memories in these states as of a moment, by the last event of each until then.
FROM memories m
JOIN memory_events e ON e.namespace = m.namespace AND e.item_id = m.id AND e.seq = (
  SELECT max(l.seq) FROM memory_events l
  WHERE l.namespace = :namespace AND l.item_id = m.id AND l.at <= :as_of)
WHERE m.namespace = :namespace AND e.status IN (:statuses...)
  -- Of these, none is found any more before it expires.
  AND (e.status IN ('expired', 'forgotten', 'quarantined')
    OR e.expires_at IS NULL OR e.expires_at > :as_of)
  AND (:any_truth OR (m.valid_from <= :true_at
    AND (e.valid_until IS NULL OR e.valid_until > :true_at)))
  AND (:type = '' OR m.type = :type) AND (:topic = '' OR m.topic = :topic)
  AND (NOT :unreconciled OR EXISTS (SELECT 1 FROM citations c
    JOIN episodes e ON e.namespace = c.namespace AND e.id = c.episode_id
    WHERE c.namespace = :namespace AND c.memory_id = m.id AND c.position = 0
      AND {{unreconciled:m}}))
  AND {{scope:m}}

-- query: add_citation
-- in: sqlite
INSERT INTO citations (namespace, memory_id, position, episode_id, span_start, span_end)
SELECT :namespace, :memory_id,
  (SELECT COALESCE(max(c.position) + 1, 0) FROM citations c
    WHERE c.namespace = :namespace AND c.memory_id = :memory_id),
  :episode_id, :span_start, :span_end
-- in: postgres
INSERT INTO citations (namespace, memory_id, position, episode_id, span_start, span_end)
SELECT :namespace, r.memory_id,
  (SELECT COALESCE(max(c.position) + 1, 0) FROM citations c
    WHERE c.namespace = :namespace AND c.memory_id = r.memory_id)
    + row_number() OVER (PARTITION BY r.memory_id ORDER BY r.place) - 1,
  r.episode_id, r.span_start, r.span_end
FROM ROWS FROM (jsonb_to_recordset(:all_rows) AS (
  memory_id text, episode_id text, span_start integer, span_end integer
)) WITH ORDINALITY AS r (memory_id, episode_id, span_start, span_end, place)

-- query: retire_memories
-- Only active memories can be retired; a second attempt changes nothing and returns no row.
UPDATE memories
SET status = :status, retired_at = :now, superseded_by = :superseded_by,
  valid_until = COALESCE(valid_until, :valid_until)
WHERE namespace = :namespace AND id IN (:ids...) AND retired_at IS NULL AND status IN (:before...)
RETURNING id

-- query: end_memory_earlier
UPDATE memories SET superseded_by = :by, valid_until = :valid_until
WHERE namespace = :namespace AND id = :id AND status = 'superseded' AND valid_until > :valid_until
RETURNING id

-- query: memories_to_expire
-- any scope: for jobs, which work for the namespace and not for a caller
-- The memories that cite this text and whose time is over.
SELECT id FROM memories
WHERE namespace = :namespace AND status IN (:before...) AND expires_at <= :now
  AND id IN (SELECT memory_id FROM citations
    WHERE namespace = :namespace AND episode_id = :episode_id)
ORDER BY id LIMIT :limit

-- query: expire_memories
-- any scope: for jobs, which work for the namespace and not for a caller
UPDATE memories SET status = 'expired', retired_at = COALESCE(retired_at, :now)
WHERE namespace = :namespace AND id IN (:ids...)

-- query: forget_memories
UPDATE memories SET status = 'forgotten', retired_at = :now
WHERE namespace = :namespace AND id IN (:ids...) AND status IN (:before...)
RETURNING id

-- query: restore_memory
UPDATE memories SET status = :status, retired_at = :retired_at, superseded_by = :superseded_by,
  valid_until = :valid_until
WHERE namespace = :namespace AND id = :id AND status IN ('forgotten', 'quarantined')
RETURNING id

-- query: undo_memories
-- Sets memories to earlier states, whatever their states are now. In one statement, as it takes a
-- third of the time of one for each.
-- in: sqlite
-- The namespace comes from the states, so that SQLite looks each memory up by its key.
WITH states AS MATERIALIZED (
  SELECT :namespace AS of_namespace, value ->> 0 AS of_id, value AS state
  FROM json_each(:states)
)
UPDATE memories SET status = state ->> 1, retired_at = state ->> 2, superseded_by = state ->> 3,
  valid_until = state ->> 4, expires_at = state ->> 5, confidence = state ->> 6,
  reinforcements = state ->> 7
FROM states WHERE namespace = of_namespace AND id = of_id
-- in: postgres
UPDATE memories SET status = s ->> 1, retired_at = CAST(s ->> 2 AS timestamptz),
  superseded_by = s ->> 3, valid_until = CAST(s ->> 4 AS timestamptz),
  expires_at = CAST(s ->> 5 AS timestamptz), confidence = CAST(s ->> 6 AS double precision),
  reinforcements = CAST(s ->> 7 AS bigint)
FROM jsonb_array_elements(:states) s WHERE namespace = :namespace AND id = s ->> 0

-- query: undo_added_memories
UPDATE memories SET status = 'forgotten', retired_at = :now
WHERE namespace = :namespace AND id IN (:ids...)

-- query: undo_citations
DELETE FROM citations
-- Those at the positions from :kept on, and in :places: each a memory and a position.
WHERE namespace = :namespace AND memory_id IN (:ids...)
  AND (position >= CAST(:kept ->> memory_id AS INTEGER)
    OR memory_id || ' ' || CAST(position AS TEXT) IN (:places...))
RETURNING memory_id, position, episode_id, span_start, span_end

-- query: undo_dropped_citation
INSERT INTO citations (namespace, memory_id, position, episode_id, span_start, span_end)
VALUES (:namespace, :id, :position, :episode_id, :span_start, :span_end)

-- query: reinforce_memories
-- In one statement, as undo_memories.
-- in: sqlite
WITH given AS MATERIALIZED (
  SELECT :namespace AS of_namespace, value ->> 0 AS of_id, value ->> 1 AS more, value ->> 2 AS upto,
    value ->> 3 AS of_superseded
  FROM json_each(:given)
)
UPDATE memories SET reinforcements = reinforcements + more,
  expires_at = CASE WHEN upto IS NULL THEN NULL WHEN expires_at < upto THEN upto
    ELSE expires_at END
FROM given WHERE namespace = of_namespace AND id = of_id
  AND CASE WHEN of_superseded THEN status = 'superseded' ELSE retired_at IS NULL END
RETURNING id
-- in: postgres
UPDATE memories SET reinforcements = reinforcements + CAST(g ->> 1 AS bigint),
  expires_at = CASE WHEN g ->> 2 IS NULL THEN NULL
    WHEN expires_at < CAST(g ->> 2 AS timestamptz) THEN CAST(g ->> 2 AS timestamptz)
    ELSE expires_at END
FROM jsonb_array_elements(:given) g WHERE namespace = :namespace AND id = g ->> 0
  AND CASE WHEN CAST(g ->> 3 AS boolean) THEN status = 'superseded' ELSE retired_at IS NULL END
RETURNING id

-- query: memories_about
-- The active memories of this attribute of this entity, newest first, as the index has them.
{{cited}}
WHERE m.namespace = :namespace AND m.entity_key = :entity_key
  AND m.attribute_key = :attribute_key AND m.retired_at IS NULL
  AND {{scope:m}}
ORDER BY m.recorded_at DESC, m.id DESC LIMIT :limit

-- query: memories_of_fact
-- All memories of this attribute of this entity that are neither forgotten nor quarantined, the
-- last recorded first.
{{quoted}}
FROM memories m
{{first_citation}}
WHERE m.namespace = :namespace AND m.entity_key = :entity_key
  AND m.attribute_key = :attribute_key
  -- For a past moment the events decide.
  AND CASE WHEN :past THEN m.recorded_at <= :as_of
    ELSE m.status NOT IN ('forgotten', 'quarantined') END
  AND {{scope:m}}
ORDER BY m.recorded_at DESC, m.id DESC
LIMIT :limit

-- query: memories_of_value
-- The active memories of this entity that may have this value, newest first, as the index has them.
{{cited}}
WHERE m.namespace = :namespace AND m.entity_key = :entity_key
  AND m.value_key = :value_key AND m.retired_at IS NULL
  AND {{scope:m}}
ORDER BY m.recorded_at DESC, m.id DESC LIMIT :limit

-- query: citations
SELECT memory_id, position, episode_id, span_start, span_end FROM citations
WHERE namespace = :namespace AND memory_id IN (:ids...)

-- query: repetitions
-- any scope: for memories that were read by their access scope before
SELECT c.memory_id, c.episode_id, c.span_start, c.span_end, e.session_id, e.agent_id, t.speaker,
  COALESCE(t.said_at, e.occurred_at) AS said_at,
  substr(e.text, c.span_start + 1, c.span_end - c.span_start) AS quote
FROM citations c
JOIN episodes e ON e.namespace = c.namespace AND e.id = c.episode_id
LEFT JOIN turns t ON t.namespace = c.namespace AND t.episode_id = c.episode_id
  AND t.span_start <= c.span_start AND c.span_start < t.span_end
WHERE c.namespace = :namespace AND c.memory_id IN (:ids...) AND c.position > 0
ORDER BY said_at, c.memory_id, c.position

-- query: witnesses
-- any scope: for memories that were read by their access scope before
-- The speakers of the words that memories cite: a row for each turn that a citation overlaps.
SELECT c.memory_id, c.position, c.episode_id, c.span_start, c.span_end, e.session_id, e.agent_id,
  t.speaker
FROM citations c
JOIN episodes e ON e.namespace = c.namespace AND e.id = c.episode_id
LEFT JOIN turns t ON t.namespace = c.namespace AND t.episode_id = c.episode_id
  AND t.span_start < c.span_end AND c.span_start < t.span_end
WHERE c.namespace = :namespace AND c.memory_id IN (:ids...)

-- query: memories_by_id
{{quoted}}
FROM memories m
{{first_citation}}
WHERE m.namespace = :namespace AND m.id IN (:ids...)
  AND {{scope:m}}

-- query: memories_by_id_unquoted
-- For many memories of one text: a quote is read from its beginning on, for each memory again.
{{cited}}
WHERE m.namespace = :namespace AND m.id IN (:ids...)
  AND {{scope:m}}

-- query: memory_items
-- The columns that a hit needs, with the words of the first citation and those of the passages that
-- it touches, unless their turn is hidden. To cut the turn anew would take long.
WITH wanted AS MATERIALIZED (
  SELECT m.id, m.text, m.type, m.topic, m.status, m.container, m.tags, m.metadata, m.attribute,
    m.recorded_at, m.valid_from, m.valid_until, m.superseded_by, m.expires_at, m.said_at,
    m.importance, m.access_count, m.agent_id, c.episode_id, c.span_start, c.span_end, t.speaker,
    (SELECT min(d.span_start) FROM documents d {{of_turn}}
      AND d.span_end > c.span_start AND d.span_start < c.span_end
      AND d.span_start >= COALESCE((SELECT max(d.span_start) FROM documents d {{of_turn}}
        AND d.span_start <= c.span_start), 0)) AS quote_start,
    (SELECT d.span_end FROM documents d {{of_turn}} AND d.span_start < c.span_end
      ORDER BY d.span_start DESC LIMIT 1) AS quote_end,
    {{unreconciled:m}} AS unreconciled
  FROM memories m
  {{first_citation}}
    AND (:past OR t.state <> 'hidden')
  WHERE m.namespace = :namespace
    -- For a past moment the events decide.
    AND (:past OR (m.status IN ('active', 'disputed', 'superseded')
      AND (m.expires_at IS NULL OR m.expires_at > :as_of)))
    AND m.id IN (:ids...)
    AND {{scope:m}}
)
SELECT w.*, substr(e.text, w.span_start + 1, w.span_end - w.span_start) AS cited,
  substr(e.text, w.quote_start + 1, w.quote_end - w.quote_start) AS quote,
  (SELECT TRUE FROM forgotten f WHERE f.namespace = :namespace AND f.episode_id = w.episode_id
    LIMIT 1) AS has_forgotten
FROM wanted w
JOIN episodes e ON e.namespace = :namespace AND e.id = w.episode_id

-- query: memories_of_topic
-- Memories that expire are not merged with lasting ones, and disputed ones are not merged at all.
SELECT m.id FROM memories m
WHERE m.namespace = :namespace AND m.status = 'active' AND m.topic = :topic
  AND m.expires_at IS NULL
  AND {{scope:m}}
ORDER BY m.recorded_at, m.id LIMIT :limit

-- query: active_memories
{{cited}}
WHERE m.namespace = :namespace AND m.retired_at IS NULL
  AND m.id IN (:ids...)
  AND {{scope:m}}

-- query: believed_memories
-- The believed memories that do not expire, in the order of their ids.
{{cited}}
WHERE m.namespace = :namespace AND m.id > :after AND m.retired_at IS NULL
  AND m.expires_at IS NULL AND {{scope:m}}
ORDER BY m.id LIMIT :limit

-- query: active_texts
SELECT id, text FROM memories
WHERE namespace = :namespace AND retired_at IS NULL AND id IN (:ids...)
  AND {{scope:memories}}

-- query: beginnings_of_texts
-- The characters that a line shows, of memories in a state that lists show.
SELECT id, substr(text, 1, :chars) AS text FROM memories
WHERE namespace = :namespace AND id IN (:ids...) AND NOT status IN (:unseen...)
  AND {{scope:memories}}

-- query: page_of_memories
-- Newest first; the empty string stands for "any". The page is cut before the joins.
WITH page AS (
  SELECT * FROM memories
  WHERE namespace = :namespace AND retired_at IS NULL
    AND (expires_at IS NULL OR expires_at > :as_of)
    AND (:type = '' OR type = :type) AND (:topic = '' OR topic = :topic)
    AND (:after_id = '' OR (recorded_at, id) < (:after_at, :after_id))
    AND {{scope:memories}}
  ORDER BY recorded_at DESC, id DESC
  LIMIT :limit OFFSET :offset
)
{{quoted}}
FROM page m
{{first_citation}}
ORDER BY m.recorded_at DESC, m.id DESC

-- query: count_of_memories
-- If only topics and types are limited, the stored counts are enough.
SELECT type, sum(memories) AS memories FROM memory_counts
WHERE {{counted_scope}} AND namespace = :namespace
  AND (:type = '' OR type = :type) AND (:topic = '' OR topic = :topic)
  AND (:any_topic OR topic IN (:topics...)) AND (:any_type OR type IN (:types...))
GROUP BY type
UNION ALL
SELECT type, count(*) FROM memories
WHERE NOT {{counted_scope}} AND namespace = :namespace AND retired_at IS NULL
  AND (:type = '' OR type = :type) AND (:topic = '' OR topic = :topic)
  AND {{scope:memories}}
GROUP BY type

-- query: count_by_status
SELECT status, count(*) AS memories FROM memories
WHERE namespace = :namespace AND {{scope:memories}} GROUP BY status

-- query: page_then
SELECT m.id
{{then}}
  AND (:after_id = '' OR (m.recorded_at, m.id) < (:after_at, :after_id))
ORDER BY e.status = 'expired', m.recorded_at DESC, m.id DESC
LIMIT :limit OFFSET :offset

-- query: expired_memories
-- The memories that have expired, the last recorded first.
{{quoted}}
FROM (
  SELECT * FROM memories m
  WHERE m.namespace = :namespace AND m.status = 'expired' AND {{scope:m}}
  ORDER BY m.recorded_at DESC, m.id DESC LIMIT :limit) m
{{first_citation}}
ORDER BY m.recorded_at DESC, m.id DESC

-- query: counts_then
SELECT m.type, count(*) AS memories
{{then}}
GROUP BY m.type

-- query: count_by_status_then
SELECT e.status, count(*) AS memories
{{then}}
GROUP BY e.status

-- query: successors
-- For each of these memories, and of those that superseded them, directly or not: what superseded
-- it. The last has no successor: a null id. Only what search finds, was true at :true_at and began before :before.
WITH RECURSIVE forward (id) AS (
  SELECT id FROM memories WHERE namespace = :namespace AND id IN (:ids...)
  UNION
  SELECT m.superseded_by FROM forward f JOIN memories m ON m.namespace = :namespace AND m.id = f.id
)
SELECT m.id, CASE WHEN :any_truth THEN m.superseded_by END AS superseded_by
FROM (SELECT id FROM forward LIMIT :limit) f
CROSS JOIN memories m
WHERE m.namespace = :namespace AND m.id = f.id
  AND m.status IN ('active', 'disputed', 'superseded')
  AND (m.expires_at IS NULL OR m.expires_at > :as_of)
  AND m.valid_from < :before
  AND (:any_truth OR (m.valid_from <= :true_at
    AND (m.valid_until IS NULL OR m.valid_until > :true_at)))
  AND {{scope:m}}

-- query: successors_at
-- The same as of a past moment, by the last event of each memory until then.
WITH RECURSIVE forward (id) AS (
  SELECT id FROM memories WHERE namespace = :namespace AND id IN (:ids...)
  UNION
  SELECT e.superseded_by FROM forward f JOIN memory_events e
    ON e.namespace = :namespace AND e.item_id = f.id
  WHERE e.seq = (SELECT max(l.seq) FROM memory_events l
    WHERE l.namespace = :namespace AND l.item_id = e.item_id AND l.at <= :as_of)
)
SELECT m.id, CASE WHEN :any_truth THEN e.superseded_by END AS superseded_by
FROM (SELECT id FROM forward LIMIT :limit) f
CROSS JOIN memories m
CROSS JOIN memory_events e
WHERE m.namespace = :namespace AND m.id = f.id
  AND e.namespace = :namespace AND e.item_id = m.id
  AND e.seq = (SELECT max(l.seq) FROM memory_events l
    WHERE l.namespace = :namespace AND l.item_id = m.id AND l.at <= :as_of)
  AND e.status IN ('active', 'disputed', 'superseded')
  AND (e.expires_at IS NULL OR e.expires_at > :as_of)
  AND m.valid_from < :before
  AND (:any_truth OR (m.valid_from <= :true_at
    AND (e.valid_until IS NULL OR e.valid_until > :true_at)))
  AND {{scope:m}}

-- query: lineage
-- any scope: ids only; what they stand for is read by memories_by_id
-- These memories, and those that they supersede or are superseded by, directly or not.
{{forward}}, chain (id, depth) AS (
  SELECT id, 0 FROM forward
  UNION
  SELECT m.id, c.depth + 1 FROM memories m JOIN chain c ON m.superseded_by = c.id
  WHERE m.namespace = :namespace AND c.depth < :depth
)
SELECT DISTINCT id FROM chain WHERE id IS NOT NULL

-- query: lineage_at
-- any scope: ids only; what they stand for is read by memories_by_id
-- CROSS JOIN fixes the order of the tables for SQLite.
{{forward_at}}, chain (id, depth) AS (
  SELECT id, 0 FROM forward
  UNION
  SELECT m.id, c.depth + 1 FROM chain c CROSS JOIN memory_events e CROSS JOIN memories m
  WHERE e.namespace = :namespace AND e.superseded_by = c.id AND c.depth < :depth
    AND m.namespace = :namespace AND m.id = e.item_id
    AND e.seq = (SELECT max(l.seq) FROM memory_events l
      WHERE l.namespace = :namespace AND l.item_id = e.item_id AND l.at <= :as_of)
)
SELECT DISTINCT id FROM chain WHERE id IS NOT NULL

-- query: memories_of_episode
-- any scope: for jobs, which work for the namespace and not for a caller
SELECT m.*, c.episode_id, c.span_start, c.span_end
FROM citations c JOIN memories m
  ON m.namespace = c.namespace AND m.id = c.memory_id
WHERE c.namespace = :namespace AND c.episode_id = :episode_id AND c.position = 0
  AND m.retired_at IS NULL
ORDER BY c.span_start, m.id

-- query: memories_of_episode_alone
-- any scope: with the text that they are from
-- The active memories that no other text states.
SELECT m.id FROM citations c JOIN memories m ON m.namespace = c.namespace AND m.id = c.memory_id
WHERE c.namespace = :namespace AND c.episode_id = :episode_id AND c.position = 0
  AND m.retired_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM citations o
    WHERE o.namespace = :namespace AND o.memory_id = m.id AND o.episode_id <> :episode_id)
ORDER BY c.span_start, m.id LIMIT :limit

-- query: memories_with_terms
-- The believed memories that share the most terms. :shared has the number of terms of each entry,
-- by slot.
-- in: sqlite
SELECT m.id
FROM json_each(:shared) s
CROSS JOIN documents d ON d.namespace = :namespace AND d.slot = CAST(s.key AS INTEGER) AND d.findable
JOIN memories m ON m.namespace = :namespace AND m.id = d.item_id AND m.retired_at IS NULL
WHERE (m.expires_at IS NULL OR m.expires_at > :as_of)
  AND {{scope:m}}
ORDER BY CAST(s.value AS INTEGER) DESC, m.recorded_at DESC, m.id LIMIT :limit
-- in: postgres
SELECT m.id
FROM jsonb_each_text(:shared) s
-- Look entries up one by one, by their key: a plain join would scan all entries of the namespace.
CROSS JOIN LATERAL (
  SELECT item_id FROM documents
  WHERE namespace = :namespace AND slot = CAST(s.key AS bigint) AND findable LIMIT 1) d
JOIN memories m ON m.namespace = :namespace AND m.id = d.item_id AND m.retired_at IS NULL
WHERE (m.expires_at IS NULL OR m.expires_at > :as_of)
  AND {{scope:m}}
ORDER BY CAST(s.value AS bigint) DESC, m.recorded_at DESC, m.id LIMIT :limit
