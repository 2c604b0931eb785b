-- fragment: cited_then
-- By the last event of the memory until then.
m.at <= :as_of AND c.position < m.citations AND m.seq = (
    SELECT max(l.seq) FROM memory_events l
    WHERE l.namespace = :namespace AND l.item_id = c.memory_id AND l.at <= :as_of)

-- fragment: passage
SELECT d.item_id AS id, d.span_start, d.span_end, d.heading_start, t.episode_id, t.speaker,
  t.said_at, t.importance, t.access_count, e.topic, e.container, e.tags, e.metadata,
  e.recorded_at, e.occurred_at, e.expired_at, e.agent_id,
  substr(e.text, d.span_start + 1, d.span_end - d.span_start) AS text,
  substr(e.text, d.heading_start + 1, d.heading_end - d.heading_start) AS heading,
  (SELECT TRUE FROM forgotten f WHERE f.namespace = :namespace AND f.episode_id = t.episode_id
    LIMIT 1) AS has_forgotten

-- fragment: superseded
-- `began`: when it began to be true; it never was, if it ended then.
SELECT d.item_id AS id, m.superseded_by, COALESCE(m.valid_until, m.retired_at) AS until,
  (SELECT b.valid_from FROM memories b
    WHERE b.namespace = :namespace AND b.id = c.memory_id) AS began

-- fragment: cited_words
-- CROSS JOIN fixes the order of the tables; for the index see citations_of_episodes.
FROM documents d CROSS JOIN turns t ON t.namespace = :namespace AND t.id = d.turn_id
CROSS JOIN citations c INDEXED BY citations_by_episode ON c.namespace = :namespace
  AND c.episode_id = t.episode_id AND c.span_start < d.span_end AND c.span_end > d.span_start

-- fragment: words_cited
FROM documents d
CROSS JOIN LATERAL (
  SELECT * FROM turns WHERE namespace = :namespace AND id = d.turn_id OFFSET 0) t
CROSS JOIN LATERAL (
  SELECT * FROM citations WHERE namespace = :namespace AND episode_id = t.episode_id
    AND span_start < d.span_end AND span_end > d.span_start OFFSET 0) c

-- fragment: of_passages
-- By the ids directly, SQLite would scan all documents: it assumes that a namespace has ten.
d.namespace = :namespace AND d.slot IN (
    SELECT slot FROM documents
    WHERE namespace = :namespace AND item_id IN (:ids...) AND (findable OR :past))

-- query: episode_by_key
-- any scope: a request is compared with the one of the same key by its digest; a limited token has
-- keys of its own
SELECT id, job_id, request_digest FROM episodes
WHERE namespace = :namespace AND idempotency_key = :idempotency_key

-- query: episodes_by_id
-- any scope: for jobs, which work for the namespace and not for a caller
SELECT * FROM episodes WHERE namespace = :namespace AND id IN (:ids...) ORDER BY id

-- query: page_of_texts
-- The texts that can be read, newest first.
SELECT e.* FROM episodes e
WHERE e.namespace = :namespace AND (:id = '' OR e.id = :id)
  AND (:session_id = '' OR e.session_id = :session_id) AND (:topic = '' OR e.topic = :topic)
  AND (e.expired_at IS NULL OR e.expired_at > :as_of)
  AND NOT EXISTS (SELECT 1 FROM forgotten f
    WHERE f.namespace = :namespace AND f.episode_id = e.id AND f.item_id = e.id)
  AND {{untyped_scope:e}}
ORDER BY e.occurred_at DESC, e.id DESC LIMIT :limit OFFSET :offset

-- query: relabel_episode
-- any scope: it was read by its access scope before
UPDATE episodes SET tags = :tags, metadata = :metadata, expired_at = :expires_at,
  stored_bytes = stored_bytes + :more
WHERE namespace = :namespace AND id = :id RETURNING id

-- query: labels_of_memories
-- any scope: with the text that they are from
SELECT count(*) AS memories, COALESCE(sum(m.stored_bytes), 0) AS bytes
FROM citations c JOIN memories m ON m.namespace = c.namespace AND m.id = c.memory_id
WHERE c.namespace = :namespace AND c.episode_id = :id AND c.position = 0 AND m.status <> 'expired'

-- query: memories_from_episode
-- any scope: with the text that they are from
SELECT memory_id AS id FROM citations
WHERE namespace = :namespace AND episode_id = :id AND position = 0 ORDER BY memory_id

-- query: memories_to_relabel
-- any scope: with the text that they are from
-- Those of these memories that have other labels than their text. One that cites another text too
-- keeps its expiry.
SELECT m.id, m.topic, m.session_id, m.agent_id, m.container, m.stored_bytes
FROM citations c JOIN memories m ON m.namespace = c.namespace AND m.id = c.memory_id
JOIN episodes e ON e.namespace = c.namespace AND e.id = c.episode_id
WHERE c.namespace = :namespace AND c.episode_id = :id AND c.position = 0 AND m.status <> 'expired'
  AND (COALESCE(m.tags, '[]') <> COALESCE(e.tags, '[]')
    OR COALESCE(m.metadata, '{}') <> COALESCE(e.metadata, '{}')
    OR (COALESCE(m.expires_at, :never) <> COALESCE(e.expired_at, :never)
      AND NOT EXISTS (SELECT 1 FROM citations o
        WHERE o.namespace = :namespace AND o.memory_id = m.id AND o.episode_id <> :id)))
  AND m.id IN (:ids...)

-- query: labels_of_episode
-- any scope: it was read by its access scope before
SELECT tags, metadata FROM episodes WHERE namespace = :namespace AND id = :id

-- query: relabel_memories
-- any scope: with the text that they are from
UPDATE memories SET tags = e.tags, metadata = e.metadata, stored_bytes = :stored_bytes,
  expires_at = CASE WHEN EXISTS (SELECT 1 FROM citations o WHERE o.namespace = :namespace
      AND o.memory_id = memories.id AND o.episode_id <> :id)
    THEN expires_at ELSE e.expired_at END
FROM episodes e
WHERE e.namespace = :namespace AND e.id = :id
  AND memories.namespace = :namespace AND memories.id IN (:ids...)

-- query: hidden_words
-- any scope: of texts that were read by their access scope before
SELECT episode_id, span_start, span_end FROM turns
WHERE namespace = :namespace AND episode_id IN (:ids...) AND state = 'hidden'

-- query: episodes_in_container
-- A limited token sees only the episodes in its access scope.
SELECT id FROM episodes
WHERE namespace = :namespace AND container <> '' AND container = :container
  AND {{untyped_scope}} LIMIT :limit

-- query: add_turns_of_text
-- In one statement: for thousands of turns, one each takes SQLite twice as long, and Postgres ten
-- times.
-- in: sqlite
INSERT INTO turns (
  namespace, id, episode_id, position, span_start, span_end, speaker, session, said_at,
  importance, state
)
SELECT :namespace, value ->> 0, :episode_id, value ->> 1, value ->> 2, value ->> 3, value ->> 4,
  value ->> 5, value ->> 6, value ->> 7, value ->> 8
FROM json_each(:turns)
-- in: postgres
INSERT INTO turns (
  namespace, id, episode_id, position, span_start, span_end, speaker, session, said_at,
  importance, state
)
SELECT :namespace, t ->> 0, :episode_id, CAST(t ->> 1 AS integer), CAST(t ->> 2 AS integer),
  CAST(t ->> 3 AS integer), t ->> 4, t ->> 5, CAST(t ->> 6 AS timestamptz),
  CAST(t ->> 7 AS double precision), t ->> 8
FROM jsonb_array_elements(:turns) AS t

-- query: forgotten_words
-- any scope: of texts that were read by their access scope before
SELECT episode_id, span_start, span_end FROM forgotten
WHERE namespace = :namespace AND episode_id IN (:ids...)

-- query: memory_was_forgotten
SELECT 1 AS one FROM memory_events INDEXED BY memory_events_forgotten
WHERE namespace = :namespace AND status = 'forgotten' LIMIT 1

-- query: forgotten_words_at
-- any scope: of texts that were read by their access scope before
-- The words cited by memories that were forgotten at that moment, by their events; and the words of
-- passages that were forgotten by then and still are.
-- in: sqlite
SELECT c.episode_id, c.span_start, c.span_end
FROM citations c INDEXED BY citations_by_episode
CROSS JOIN memory_events m INDEXED BY memory_events_forgotten
WHERE c.namespace = :namespace AND c.episode_id IN (:ids...)
  AND m.namespace = :namespace AND m.item_id = c.memory_id AND m.status = 'forgotten'
  AND {{cited_then}}
UNION
SELECT episode_id, span_start, span_end FROM forgotten INDEXED BY forgotten_by_episode
WHERE namespace = :namespace AND episode_id IN (:ids...) AND forgotten_at <= :as_of
  AND substr(item_id, 1, length(episode_id)) = episode_id
-- in: postgres
SELECT c.episode_id, c.span_start, c.span_end
FROM citations c JOIN memory_events m ON m.namespace = c.namespace AND m.item_id = c.memory_id
WHERE c.namespace = :namespace AND c.episode_id IN (:ids...) AND m.status = 'forgotten'
  AND {{cited_then}}
UNION
SELECT episode_id, span_start, span_end FROM forgotten
WHERE namespace = :namespace AND episode_id IN (:ids...) AND forgotten_at <= :as_of
  AND substr(item_id, 1, length(episode_id)) = episode_id

-- query: forget_words
INSERT INTO forgotten (namespace, item_id, episode_id, span_start, span_end, forgotten_at)
VALUES (:namespace, :item_id, :episode_id, :span_start, :span_end, :now)
ON CONFLICT (namespace, item_id, episode_id, span_start, span_end) DO NOTHING

-- query: remember_words
DELETE FROM forgotten WHERE namespace = :namespace AND item_id IN (:item_ids...)

-- query: forgotten_passage
SELECT f.forgotten_at FROM forgotten f
JOIN episodes e ON e.namespace = f.namespace AND e.id = f.episode_id
WHERE f.namespace = :namespace AND f.item_id = :id AND f.episode_id = :episode_id
  AND {{untyped_scope:e}}

-- query: open_turns
-- The only query that makes hidden turns findable again.
UPDATE turns SET state = 'open'
WHERE namespace = :namespace AND id IN (:ids...) AND state = 'hidden'

-- query: passage_items
-- Passages, each with the heading above it.
-- in: sqlite
{{passage}}
FROM documents d
JOIN turns t ON t.namespace = d.namespace AND t.id = d.turn_id
JOIN episodes e ON e.namespace = t.namespace AND e.id = t.episode_id
WHERE {{of_passages}}
  AND (NOT :past OR (d.added_at <= :as_of AND (d.hidden_at IS NULL OR d.hidden_at > :as_of)))
  AND (e.expired_at IS NULL OR e.expired_at > :as_of)
  AND {{turn_scope:e}}
-- in: postgres
{{passage}}
-- Look turns and texts up one by one, by their keys: before the tables are analyzed, a plain join
-- may read all documents once for each turn of the namespace.
FROM documents d
CROSS JOIN LATERAL (
  SELECT * FROM turns WHERE namespace = :namespace AND id = d.turn_id OFFSET 0) t
CROSS JOIN LATERAL (
  SELECT * FROM episodes WHERE namespace = :namespace AND id = t.episode_id OFFSET 0) e
WHERE d.namespace = :namespace AND d.item_id IN (:ids...) AND (d.findable OR :past)
  AND (NOT :past OR (d.added_at <= :as_of AND (d.hidden_at IS NULL OR d.hidden_at > :as_of)))
  AND (e.expired_at IS NULL OR e.expired_at > :as_of)
  AND {{turn_scope:e}}

-- query: expired_passages
-- The passages at these slots whose text has expired, in the form of passage_items. A text that was
-- forgotten or taken back besides is left out. Which texts have expired is read once: to look at
-- the text of each passage takes long, as SQLite reads all of it. For the last slot by the key it
-- would go through all entries: hence the sign.
-- in: sqlite
{{passage}}
FROM documents d
CROSS JOIN turns t ON t.namespace = d.namespace AND t.id = d.turn_id
CROSS JOIN episodes e ON e.namespace = t.namespace AND e.id = t.episode_id
WHERE d.namespace = :namespace AND d.slot IN (:slots...)
  AND t.episode_id IN (
    SELECT id FROM episodes WHERE namespace = :namespace AND expired_at <= :as_of)
  AND d.slot = (SELECT max(+l.slot) FROM documents l
    WHERE l.namespace = :namespace AND l.item_id = d.item_id)
  AND t.state <> 'hidden'
  AND NOT EXISTS (SELECT 1 FROM memory_events x
    WHERE x.namespace = :namespace AND x.item_id = e.id AND x.kind IN ('forgotten', 'undone'))
  AND {{turn_scope:e}}
LIMIT :limit
-- in: postgres
{{passage}}
FROM documents d
CROSS JOIN LATERAL (
  SELECT * FROM turns WHERE namespace = :namespace AND id = d.turn_id OFFSET 0) t
CROSS JOIN LATERAL (
  SELECT * FROM episodes WHERE namespace = :namespace AND id = t.episode_id OFFSET 0) e
WHERE d.namespace = :namespace AND d.slot IN (:slots...)
  AND t.episode_id IN (
    SELECT id FROM episodes WHERE namespace = :namespace AND expired_at <= :as_of)
  AND d.slot = (SELECT max(l.slot) FROM documents l
    WHERE l.namespace = :namespace AND l.item_id = d.item_id)
  AND t.state <> 'hidden'
  AND NOT EXISTS (SELECT 1 FROM memory_events x
    WHERE x.namespace = :namespace AND x.item_id = e.id AND x.kind IN ('forgotten', 'undone'))
  AND {{turn_scope:e}}
LIMIT :limit

-- query: forgotten_besides
-- any scope: of texts that were read by their access scope before
-- The words that are hidden not only because their text has expired.
SELECT episode_id, span_start, span_end FROM forgotten
WHERE namespace = :namespace AND episode_id IN (:ids...) AND item_id <> episode_id

-- query: superseded_words
-- any scope: of texts that were read by their access scope before
-- What superseded the memories that cite words of these passages, the latest last.
-- in: sqlite
{{superseded}}
{{cited_words}}
CROSS JOIN memories m ON m.namespace = :namespace AND m.id = c.memory_id
WHERE {{of_passages}} AND m.status = 'superseded'
ORDER BY until, m.superseded_by
-- in: postgres
{{superseded}}
{{words_cited}}
CROSS JOIN LATERAL (SELECT * FROM memories
  WHERE namespace = :namespace AND id = c.memory_id OFFSET 0) m
WHERE d.namespace = :namespace AND d.item_id IN (:ids...) AND (d.findable OR :past)
  AND m.status = 'superseded'
ORDER BY until, m.superseded_by

-- query: superseded_words_at
-- any scope: of texts that were read by their access scope before
-- The same as of a past moment, by the events.
-- in: sqlite
{{superseded}}
{{cited_words}}
CROSS JOIN memory_events m ON m.namespace = :namespace AND m.item_id = c.memory_id
WHERE {{of_passages}} AND m.status = 'superseded' AND {{cited_then}}
ORDER BY until, m.superseded_by
-- in: postgres
{{superseded}}
{{words_cited}}
CROSS JOIN LATERAL (SELECT * FROM memory_events
  WHERE namespace = :namespace AND item_id = c.memory_id OFFSET 0) m
WHERE d.namespace = :namespace AND d.item_id IN (:ids...) AND (d.findable OR :past)
  AND m.status = 'superseded'
  AND {{cited_then}}
ORDER BY until, m.superseded_by

-- query: turns_said
-- Turns that are not held back, whether a memory cites them or not.
SELECT t.id, t.episode_id, t.speaker, t.span_start,
  substr(e.text, t.span_start + 1, t.span_end - t.span_start) AS text,
  (SELECT TRUE FROM forgotten f WHERE f.namespace = :namespace AND f.episode_id = t.episode_id
    LIMIT 1) AS has_forgotten
FROM turns t JOIN episodes e ON e.namespace = t.namespace AND e.id = t.episode_id
WHERE t.namespace = :namespace AND t.state <> 'hidden' AND t.id IN (:ids...)
  AND (e.expired_at IS NULL OR e.expired_at > :as_of)
  AND {{turn_scope:e}}
