-- fragment: vectors_found
FROM documents d JOIN embeddings e
  ON e.namespace = d.namespace AND e.item_id = d.item_id AND e.document = d.slot
WHERE d.namespace = :namespace AND d.findable AND e.model = :model

-- query: count_documents
-- Every change of the index runs this first. Its row lock keeps two changes from deadlocking on
-- terms, and makes the versions of a namespace become visible in their order.
UPDATE namespaces SET documents = documents + :documents, words = words + :words,
  last_slot = last_slot + :slots, index_version = index_version + 1,
  stored_bytes = stored_bytes + :hidden_bytes
WHERE namespace = :namespace

-- query: add_documents
-- Uses the slots and the version that count_documents has reserved.
-- in: sqlite
INSERT INTO documents (
  namespace, slot, item_id, turn_id, span_start, span_end, heading_start, heading_end, length,
  added_at, version
)
SELECT n.namespace, n.last_slot - :count + 1 + i.key, i.value ->> 0, i.value ->> 2, i.value ->> 3,
  i.value ->> 4, i.value ->> 5, i.value ->> 6, i.value ->> 1, :now, n.index_version
FROM namespaces n CROSS JOIN json_each(:entries) i WHERE n.namespace = :namespace
-- in: postgres
INSERT INTO documents (
  namespace, slot, item_id, turn_id, span_start, span_end, heading_start, heading_end, length,
  added_at, version
)
SELECT n.namespace, n.last_slot - :count + i.place, i.value ->> 0, i.value ->> 2,
  CAST(i.value ->> 3 AS integer), CAST(i.value ->> 4 AS integer), CAST(i.value ->> 5 AS integer),
  CAST(i.value ->> 6 AS integer), CAST(i.value ->> 1 AS bigint), :now, n.index_version
FROM namespaces n CROSS JOIN jsonb_array_elements(:entries) WITH ORDINALITY AS i (value, place)
WHERE n.namespace = :namespace

-- query: close_lists
-- Copies the open lists of these terms that are long to postings, since an update rewrites the
-- whole row. add_postings, which compares the same length, then begins an empty list.
INSERT INTO postings (namespace, term, slot, found)
SELECT namespace, term, last_slot, found FROM terms
WHERE namespace = :namespace AND term IN (:terms...) AND length(found) > 800

-- query: add_postings
-- Appends postings to the open lists, and counts the documents of each term. Each row has the
-- number of its item among those that add_documents has added.
-- in: sqlite
INSERT INTO terms (namespace, term, documents, last_slot, found)
SELECT n.namespace, r.value ->> 0 AS term, count(*), n.last_slot, group_concat(
  ';' || (n.last_slot - :count + 1 + (r.value ->> 1)) || ' ' || (r.value ->> 2), '')
FROM namespaces n CROSS JOIN json_each(:rows) r WHERE n.namespace = :namespace
GROUP BY 2
ON CONFLICT (namespace, term) DO UPDATE
SET documents = documents + excluded.documents, last_slot = excluded.last_slot,
  found = CASE WHEN length(found) > 800 THEN '' ELSE found END || excluded.found
-- in: postgres
INSERT INTO terms AS t (namespace, term, documents, last_slot, found)
SELECT n.namespace, r ->> 0, count(*), n.last_slot, string_agg(
  concat(';', n.last_slot - :count + 1 + CAST(r ->> 1 AS bigint), ' ', r ->> 2), '')
FROM namespaces n CROSS JOIN jsonb_array_elements(:rows) AS r WHERE n.namespace = :namespace
GROUP BY n.namespace, n.last_slot, r ->> 0
ON CONFLICT (namespace, term) DO UPDATE
SET documents = t.documents + excluded.documents, last_slot = excluded.last_slot,
  found = CASE WHEN length(t.found) > 800 THEN '' ELSE t.found END || excluded.found

-- query: add_lists
-- The same for lists that were made ahead, with slots: SQLite takes a sixth of the time. Each row
-- has a term, how many of the items have it, and the postings.
-- in: sqlite
INSERT INTO terms (namespace, term, documents, last_slot, found)
SELECT n.namespace, r.value ->> 0, r.value ->> 1, n.last_slot, r.value ->> 2
FROM namespaces n CROSS JOIN json_each(:lists) r WHERE n.namespace = :namespace
ON CONFLICT (namespace, term) DO UPDATE
SET documents = documents + excluded.documents, last_slot = excluded.last_slot,
  found = CASE WHEN length(found) > 800 THEN '' ELSE found END || excluded.found
-- in: postgres
INSERT INTO terms AS t (namespace, term, documents, last_slot, found)
SELECT n.namespace, r ->> 0, CAST(r ->> 1 AS bigint), n.last_slot, r ->> 2
FROM namespaces n CROSS JOIN jsonb_array_elements(:lists) AS r WHERE n.namespace = :namespace
ON CONFLICT (namespace, term) DO UPDATE
SET documents = t.documents + excluded.documents, last_slot = excluded.last_slot,
  found = CASE WHEN length(t.found) > 800 THEN '' ELSE t.found END || excluded.found

-- query: lists_of
-- Those lists of these terms that may have slots between :first and :last, or with :few those that
-- contain any of the items. A null slot means the open list in terms. A closed list has no slot
-- greater than its own, nor one that another list has with a smaller own slot.
SELECT term, slot, found FROM (
  SELECT term, NULL AS slot, found FROM terms
  WHERE namespace = :namespace AND term IN (:terms...)
  UNION ALL
  SELECT p.term, p.slot, p.found FROM postings p
  WHERE p.namespace = :namespace AND p.term IN (:terms...) AND p.slot >= :first
    AND p.slot <= COALESCE((SELECT min(n.slot) FROM postings n
      WHERE n.namespace = :namespace AND n.term = p.term AND n.slot >= :last), :last)
) AS lists
WHERE NOT :few OR EXISTS (
  SELECT 1 FROM documents d WHERE d.namespace = :namespace AND d.item_id IN (:ids...)
    AND replace(lists.found, ';' || d.slot || ' ', '') <> lists.found)

-- query: slots_of_items
SELECT item_id, slot, findable FROM documents WHERE namespace = :namespace AND item_id IN (:ids...)

-- query: put_lists
-- Each row has a term and its open list.
-- in: sqlite
WITH given AS MATERIALIZED (
  SELECT :namespace AS given_namespace, value ->> 0 AS given_term, value ->> 1 AS given_found
  FROM json_each(:lists)
)
UPDATE terms SET found = given_found FROM given
WHERE namespace = given_namespace AND term = given_term
-- in: postgres
-- All are there: so each is looked up by its key, where UPDATE would read all terms.
INSERT INTO terms (namespace, term, documents, last_slot, found)
SELECT :namespace, g ->> 0, 0, 0, g ->> 1 FROM jsonb_array_elements(:lists) AS g
ON CONFLICT (namespace, term) DO UPDATE SET found = excluded.found

-- query: put_closed_lists
-- Each row has a term, the slot and the closed list.
-- in: sqlite
WITH given AS MATERIALIZED (
  SELECT :namespace AS given_namespace, value ->> 0 AS given_term, value ->> 1 AS given_slot,
    value ->> 2 AS given_found
  FROM json_each(:lists)
)
UPDATE postings SET found = given_found FROM given
WHERE namespace = given_namespace AND term = given_term AND slot = given_slot
-- in: postgres
INSERT INTO postings (namespace, term, slot, found)
SELECT :namespace, g ->> 0, CAST(g ->> 1 AS bigint), g ->> 2
FROM jsonb_array_elements(:lists) AS g
ON CONFLICT (namespace, term, slot) DO UPDATE SET found = excluded.found

-- query: drop_empty_lists
DELETE FROM postings WHERE namespace = :namespace AND term IN (:terms...) AND found = ''

-- query: erase_documents
DELETE FROM documents WHERE namespace = :namespace AND item_id IN (:ids...)

-- query: hide_documents
UPDATE documents SET findable = FALSE, hidden_at = :now, version = (
  SELECT index_version FROM namespaces WHERE namespace = :namespace)
WHERE namespace = :namespace AND item_id IN (:ids...) AND findable

-- query: relabel_documents
-- Uses the version that next_index_version has made.
UPDATE documents SET version = (
  SELECT index_version FROM namespaces WHERE namespace = :namespace)
WHERE namespace = :namespace AND item_id IN (:ids...) AND findable

-- query: relabel_passages
-- any scope: of a text that was read by its access scope before
UPDATE documents SET version = (
  SELECT index_version FROM namespaces WHERE namespace = :namespace)
WHERE namespace = :namespace AND findable AND turn_id IN (
  SELECT id FROM turns WHERE namespace = :namespace AND episode_id = :episode_id)

-- query: moments_added
SELECT item_id, added_at FROM documents
WHERE namespace = :namespace AND item_id IN (:ids...) AND findable

-- query: backdate_each
-- Each moment has the id of its item as its name.
-- in: sqlite
WITH given AS MATERIALIZED (
  SELECT :namespace AS given_namespace, key AS given_item, value AS given_at
  FROM json_each(:moments)
)
UPDATE documents SET added_at = given_at FROM given
WHERE namespace = given_namespace AND item_id = given_item AND findable
-- in: postgres
-- By an array: joined with the moments, Postgres would read all documents.
UPDATE documents SET added_at = CAST(:moments ->> item_id AS timestamptz)
WHERE namespace = :namespace AND findable
  AND item_id = ANY (ARRAY(SELECT jsonb_object_keys(:moments)))

-- query: uncount_terms
-- A word that only hidden items have stays, with a count of 0.
-- in: sqlite
-- The namespace comes from the counts, so that SQLite looks each word up by its key, once.
WITH counted AS MATERIALIZED (
  SELECT :namespace AS counted_namespace, key AS counted_term, value AS fewer
  FROM json_each(:counts)
)
UPDATE terms SET documents = documents - fewer FROM counted
WHERE namespace = counted_namespace AND term = counted_term
-- in: postgres
UPDATE terms SET documents = documents - CAST(c.value AS bigint) FROM jsonb_each_text(:counts) c
WHERE namespace = :namespace AND term = c.key

-- query: drop_unused_terms
-- Not EXISTS: Postgres would read all lists of the namespace for it.
DELETE FROM terms
WHERE namespace = :namespace AND term IN (:terms...) AND documents <= 0 AND found = ''
  AND (SELECT TRUE FROM postings p
    WHERE p.namespace = :namespace AND p.term = terms.term LIMIT 1) IS NULL

-- query: statistics
-- The statistics of the namespace, with a row for each requested term that it has.
SELECT n.documents, n.words, n.index_version, n.erase_epoch, n.last_event, n.last_slot AS slots,
  t.term, t.documents AS frequency, t.last_slot
FROM namespaces n LEFT JOIN terms t ON t.namespace = n.namespace
  AND t.term IN (:terms...)
WHERE n.namespace = :namespace

-- query: index_unchanged
SELECT 1 AS one FROM namespaces WHERE namespace = :namespace AND last_event = :last_event
  AND erase_epoch = :erase_epoch AND index_version = :version

-- query: page_of_terms
-- Where the index had lost entries, what was hidden since has left counts below 0.
SELECT term, documents FROM terms WHERE namespace = :namespace AND term > :after AND documents <> 0
ORDER BY term LIMIT :limit

-- query: page_of_documents
-- The next documents after a version and slot, in one row: reading a hundred thousand rows takes
-- longer than the values in them.
-- in: sqlite
SELECT count(*) AS documents, max(version) AS version,
  group_concat(slot, ' ') AS slots, group_concat(findable, '') AS findable
FROM (
  SELECT version, slot, findable FROM documents INDEXED BY documents_by_version
  WHERE namespace = :namespace AND (version, slot) > (:version, :slot)
  ORDER BY version, slot LIMIT :limit
)
-- in: postgres
SELECT count(*) AS documents, max(version) AS version,
  string_agg(CAST(slot AS text), ' ' ORDER BY version, slot) AS slots,
  string_agg(CASE WHEN findable THEN '1' ELSE '0' END, '' ORDER BY version, slot) AS findable
FROM (
  SELECT version, slot, findable FROM documents
  WHERE namespace = :namespace AND (version, slot) > (:version, :slot)
  ORDER BY version, slot LIMIT :limit
) AS page

-- query: page_of_intervals
-- The same for the intervals in which entries are found, and their lengths.
-- in: sqlite
SELECT count(*) AS documents, max(version) AS version, group_concat(slot, ' ') AS slots,
  group_concat(substr(added_at, 1, 26), ' ') AS added,
  group_concat(COALESCE(substr(hidden_at, 1, 26), 'NaT'), ' ') AS hidden,
  group_concat(length, ' ') AS lengths
FROM (
  SELECT version, slot, added_at, hidden_at, length FROM documents INDEXED BY documents_by_version
  WHERE namespace = :namespace AND (version, slot) > (:version, :slot)
  ORDER BY version, slot LIMIT :limit
)
-- in: postgres
SELECT count(*) AS documents, max(version) AS version,
  string_agg(CAST(slot AS text), ' ' ORDER BY version, slot) AS slots,
  string_agg(to_char(added_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), ' '
    ORDER BY version, slot) AS added,
  string_agg(COALESCE(to_char(hidden_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), 'NaT'),
    ' ' ORDER BY version, slot) AS hidden,
  string_agg(CAST(length AS text), ' ' ORDER BY version, slot) AS lengths
FROM (
  SELECT version, slot, added_at, hidden_at, length FROM documents
  WHERE namespace = :namespace AND (version, slot) > (:version, :slot)
  ORDER BY version, slot LIMIT :limit
) AS page

-- query: page_of_truths
-- any scope: the word index holds all items; what is shown of them is read again
-- When what entries say was true, and when memories were retired: for the next entries after :slot,
-- and for the memories of the next events after :seq.
-- in: sqlite
WITH entries AS MATERIALIZED (
  SELECT slot, item_id, turn_id FROM documents WHERE namespace = :namespace AND slot > :slot
  ORDER BY slot LIMIT :limit
), events AS MATERIALIZED (
  SELECT seq, item_id, status FROM memory_events WHERE namespace = :namespace AND seq > :seq
  ORDER BY seq LIMIT :limit
), changed AS MATERIALIZED (
  SELECT slot, item_id, turn_id FROM entries
  UNION
  SELECT d.slot, d.item_id, d.turn_id
  FROM events e CROSS JOIN documents d INDEXED BY documents_by_item
  WHERE e.status IS NOT NULL AND d.namespace = :namespace AND d.item_id = e.item_id
)
SELECT (SELECT count(*) FROM entries) AS entries, (SELECT max(slot) FROM entries) AS last_slot,
  (SELECT count(*) FROM events) AS events, (SELECT max(seq) FROM events) AS last_event,
  group_concat(slot, ' ') AS slots, group_concat(substr(true_from, 1, 26), ' ') AS starts,
  group_concat(COALESCE(substr(true_until, 1, 26), 'NaT'), ' ') AS ends,
  group_concat(COALESCE(substr(retired_at, 1, 26), 'NaT'), ' ') AS retired
FROM (
  SELECT c.slot, m.valid_from AS true_from, m.valid_until AS true_until, m.retired_at
  FROM changed c CROSS JOIN memories m
  WHERE c.turn_id IS NULL AND m.namespace = :namespace AND m.id = c.item_id
  UNION ALL
  SELECT c.slot, COALESCE(t.said_at, e.occurred_at), NULL, NULL
  FROM changed c CROSS JOIN turns t CROSS JOIN episodes e
  WHERE t.namespace = :namespace AND t.id = c.turn_id
    AND e.namespace = :namespace AND e.id = t.episode_id
)
-- in: postgres
-- Rows are looked up one by one: a join would scan all turns of the namespace. The ids of events
-- have another collation than the index of entries by items.
WITH entries AS MATERIALIZED (
  SELECT slot, item_id, turn_id FROM documents WHERE namespace = :namespace AND slot > :slot
  ORDER BY slot LIMIT :limit
), events AS MATERIALIZED (
  SELECT seq, item_id, status FROM memory_events WHERE namespace = :namespace AND seq > :seq
  ORDER BY seq LIMIT :limit
), changed AS MATERIALIZED (
  SELECT slot, item_id, turn_id FROM entries
  UNION
  SELECT slot, item_id, turn_id FROM documents WHERE namespace = :namespace
    AND item_id = ANY (ARRAY(
      SELECT item_id COLLATE "default" FROM events WHERE status IS NOT NULL))
)
SELECT (SELECT count(*) FROM entries) AS entries, (SELECT max(slot) FROM entries) AS last_slot,
  (SELECT count(*) FROM events) AS events, (SELECT max(seq) FROM events) AS last_event,
  string_agg(CAST(slot AS text), ' ') AS slots,
  string_agg(to_char(true_from AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), ' ') AS starts,
  string_agg(COALESCE(to_char(true_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'),
    'NaT'), ' ') AS ends,
  string_agg(COALESCE(to_char(retired_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'),
    'NaT'), ' ') AS retired
FROM (
  SELECT c.slot, m.valid_from AS true_from, m.valid_until AS true_until, m.retired_at
  FROM changed c CROSS JOIN LATERAL (
    SELECT valid_from, valid_until, retired_at FROM memories
    WHERE namespace = :namespace AND id = c.item_id
    OFFSET 0
  ) m
  WHERE c.turn_id IS NULL
  UNION ALL
  SELECT c.slot, COALESCE(t.said_at, e.occurred_at), NULL, NULL
  FROM changed c CROSS JOIN LATERAL (
    SELECT said_at, episode_id FROM turns
    WHERE namespace = :namespace AND id = c.turn_id
    OFFSET 0
  ) t CROSS JOIN LATERAL (
    SELECT occurred_at FROM episodes
    WHERE namespace = :namespace AND id = t.episode_id
    OFFSET 0
  ) e
) AS truths

-- query: postings_behind
-- For each term, the postings after a slot (and possibly some before it), each as slot, occurrences
-- and length.
-- in: sqlite
SELECT w.key AS term, COALESCE((
  SELECT group_concat(p.found, '') FROM postings p
  WHERE p.namespace = :namespace AND p.term = w.key AND p.slot > w.value), '') || COALESCE((
  SELECT t.found FROM terms t WHERE t.namespace = :namespace AND t.term = w.key), '') AS found
FROM json_each(:slots) w
-- in: postgres
SELECT w.key AS term, concat((
  SELECT string_agg(p.found, '') FROM postings p
  WHERE p.namespace = :namespace AND p.term = w.key AND p.slot > CAST(w.value AS bigint)
  ), (SELECT t.found FROM terms t WHERE t.namespace = :namespace AND t.term = w.key)) AS found
FROM jsonb_each_text(:slots) w

-- query: items_at
-- A limited token gets only the memories in its access scope. Not EXISTS: Postgres might read all
-- memories of the namespace for it.
SELECT d.slot, d.item_id FROM documents d
WHERE d.namespace = :namespace AND d.slot IN (:slots...) AND d.findable
  AND ({{no_limit}} OR (
    SELECT TRUE FROM memories m
    WHERE m.namespace = :namespace AND m.id = d.item_id AND {{scope:m}}))

-- query: next_index_version
-- Its row lock makes the versions of a namespace become visible in their order.
UPDATE namespaces SET index_version = index_version + 1 WHERE namespace = :namespace

-- query: put_vector
-- Stores a vector of a findable item, with the version that next_index_version has made. A vector
-- that is replaced keeps its slot.
INSERT INTO embeddings (namespace, model, item_id, vector, code, slot, document, version)
SELECT n.namespace, :model, :item_id, :vector, :code,
  1 + COALESCE((SELECT max(slot) FROM embeddings WHERE namespace = :namespace AND model = :model),
    0),
  d.slot, n.index_version
FROM namespaces n JOIN documents d ON d.namespace = n.namespace
WHERE n.namespace = :namespace AND d.item_id = :item_id AND d.findable
ON CONFLICT (namespace, model, item_id, document)
DO UPDATE SET vector = excluded.vector, code = excluded.code, version = excluded.version

-- query: copy_vectors
-- Copies the vectors of the last entry of each of these items to its findable entry. CROSS JOIN
-- fixes the order: SQLite would go through all vectors by their slots.
INSERT INTO embeddings (namespace, model, item_id, vector, code, slot, document, version)
SELECT e.namespace, e.model, e.item_id, e.vector, e.code,
  row_number() OVER (PARTITION BY e.model ORDER BY d.slot) + (
    SELECT max(o.slot) FROM embeddings o
    WHERE o.namespace = :namespace AND o.model = e.model),
  d.slot, n.index_version
FROM namespaces n
CROSS JOIN documents d INDEXED BY documents_by_item
CROSS JOIN embeddings e
WHERE n.namespace = :namespace AND d.namespace = :namespace AND d.item_id IN (:ids...)
  AND d.findable AND e.namespace = :namespace AND e.item_id = d.item_id AND e.document = (
  SELECT max(l.document) FROM embeddings l
  WHERE l.namespace = :namespace AND l.model = e.model AND l.item_id = e.item_id)
ON CONFLICT (namespace, model, item_id, document) DO NOTHING

-- query: move_vectors
-- Moves the vectors from the entries that the index had before it was made anew.
UPDATE embeddings SET document = d.slot, version = n.index_version
FROM documents d, namespaces n
WHERE embeddings.namespace = :namespace AND embeddings.item_id IN (:ids...)
  AND d.namespace = :namespace AND d.item_id = embeddings.item_id AND d.findable
  AND n.namespace = :namespace AND embeddings.document = (
    SELECT max(o.slot) FROM documents o
    WHERE o.namespace = :namespace AND o.item_id = embeddings.item_id AND o.slot < d.slot
      AND o.hidden_at = o.added_at)

-- query: vectors_since
SELECT slot, document, vector, code FROM embeddings
WHERE namespace = :namespace AND model = :model AND version > :version

-- query: codes_since
SELECT slot, document, code FROM embeddings
WHERE namespace = :namespace AND model = :model AND version > :version
ORDER BY slot

-- query: last_slot
SELECT COALESCE(max(slot), 0) AS slot FROM embeddings
WHERE namespace = :namespace AND model = :model

-- query: page_of_codes
-- In one row, as in page_of_documents. The index embeddings_by_slot has all of these columns, so
-- the vectors themselves are not read.
-- in: sqlite
SELECT count(*) AS items, max(slot) AS last, group_concat(slot, ' ') AS slots,
  group_concat(document, ' ') AS documents, group_concat(code, '') AS codes
FROM (
  SELECT slot, document, code FROM embeddings
  WHERE namespace = :namespace AND model = :model AND slot > :after
    AND length(code) = :code_chars
  ORDER BY slot LIMIT :limit
)
-- in: postgres
SELECT count(*) AS items, max(slot) AS last, string_agg(CAST(slot AS text), ' ') AS slots,
  string_agg(CAST(document AS text), ' ') AS documents, string_agg(code, '') AS codes
FROM (
  SELECT slot, document, code FROM embeddings
  WHERE namespace = :namespace AND model = :model AND slot > :after
    AND length(code) = :code_chars
  ORDER BY slot LIMIT :limit
) AS page

-- query: page_of_vectors
SELECT slot, document, vector, code FROM embeddings
WHERE namespace = :namespace AND model = :model AND slot > :after
ORDER BY slot LIMIT :limit

-- query: vectors_at
SELECT slot, document, vector FROM embeddings
WHERE namespace = :namespace AND model = :model AND slot IN (:slots...)

-- query: lock_namespace
-- Changes of one namespace wait for each other, but never for those of another.
SELECT namespace FROM namespaces WHERE namespace = :namespace FOR NO KEY UPDATE

-- query: vectors_of
SELECT e.item_id, e.vector
{{vectors_found}} AND d.item_id IN (:ids...)

-- query: codes_of
SELECT e.item_id, e.vector, e.code
{{vectors_found}} AND d.item_id IN (:ids...)

-- query: having_vectors
SELECT e.item_id
{{vectors_found}} AND d.item_id IN (:ids...)

-- query: count_vectors
SELECT count(*) AS vectors
{{vectors_found}}

-- query: models_of_vectors
SELECT DISTINCT model FROM embeddings WHERE namespace = :namespace ORDER BY model

-- query: remove_vectors
DELETE FROM embeddings WHERE namespace = :namespace AND item_id IN (:ids...)

-- query: remove_found_vectors
DELETE FROM embeddings
WHERE namespace = :namespace AND item_id IN (:ids...) AND document IN (
  SELECT slot FROM documents
  WHERE namespace = :namespace AND item_id IN (:ids...) AND findable)

-- query: drop_vectors
-- Deletes in batches, since a transaction must be short. The greatest slot is deleted last: as long
-- as it exists, no slot is given again.
DELETE FROM embeddings WHERE namespace = :namespace AND model = :model AND slot IN (
  SELECT slot FROM embeddings WHERE namespace = :namespace AND model = :model
  ORDER BY slot LIMIT :limit
) RETURNING item_id
