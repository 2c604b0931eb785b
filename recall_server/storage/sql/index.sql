-- query: count_documents
-- First of all changes of the index: it is also the lock that keeps two of them from waiting for
-- each other's terms, and makes the versions of a namespace become visible in their order.
UPDATE namespaces SET documents = documents + :documents, words = words + :words,
  last_slot = last_slot + :slots, index_version = index_version + 1
WHERE namespace = :namespace

-- query: add_documents
-- The slots and the version are those that count_documents has made.
-- in: sqlite
INSERT INTO documents (
  namespace, slot, item_id, turn_id, span_start, span_end, heading_start, heading_end, version
)
SELECT n.namespace, n.last_slot - :count + 1 + i.key, i.value ->> 0, i.value ->> 1, i.value ->> 2,
  i.value ->> 3, i.value ->> 4, i.value ->> 5, n.index_version
FROM namespaces n CROSS JOIN json_each(:entries) i WHERE n.namespace = :namespace
-- in: postgres
INSERT INTO documents (
  namespace, slot, item_id, turn_id, span_start, span_end, heading_start, heading_end, version
)
SELECT n.namespace, n.last_slot - :count + i.place, i.value ->> 0, i.value ->> 1,
  CAST(i.value ->> 2 AS integer), CAST(i.value ->> 3 AS integer), CAST(i.value ->> 4 AS integer),
  CAST(i.value ->> 5 AS integer), n.index_version
FROM namespaces n CROSS JOIN jsonb_array_elements(:entries) WITH ORDINALITY AS i (value, place)
WHERE n.namespace = :namespace

-- query: add_postings
-- Each with the place of its item among those that add_documents has added.
-- in: sqlite
INSERT INTO postings (namespace, term, slot, occurrences, length)
SELECT n.namespace, r.value ->> 0, n.last_slot - :count + 1 + (r.value ->> 1), r.value ->> 2,
  r.value ->> 3
FROM namespaces n CROSS JOIN json_each(:rows) r WHERE n.namespace = :namespace
-- in: postgres
INSERT INTO postings (namespace, term, slot, occurrences, length)
SELECT n.namespace, r ->> 0, n.last_slot - :count + 1 + CAST(r ->> 1 AS bigint),
  CAST(r ->> 2 AS bigint), CAST(r ->> 3 AS bigint)
FROM namespaces n CROSS JOIN jsonb_array_elements(:rows) AS r WHERE n.namespace = :namespace

-- query: remove_postings
-- in: sqlite
-- Named one by one before the pairs: by these alone it would go through all that has such a word.
DELETE FROM postings WHERE namespace = :namespace
AND term IN (SELECT r.value ->> 0 FROM json_each(:rows) r)
AND slot IN (
  SELECT d.slot
  FROM json_each(:rows) r CROSS JOIN documents d
  WHERE d.namespace = :namespace AND d.item_id = r.value ->> 1 AND d.findable)
AND (term, slot) IN (
  SELECT r.value ->> 0, d.slot
  FROM json_each(:rows) r CROSS JOIN documents d
  WHERE d.namespace = :namespace AND d.item_id = r.value ->> 1 AND d.findable)
-- in: postgres
DELETE FROM postings p USING jsonb_array_elements(:rows) AS r, documents d
WHERE d.namespace = :namespace AND d.item_id = r ->> 1 AND d.findable
  AND p.namespace = :namespace AND p.term = r ->> 0 AND p.slot = d.slot

-- query: remove_documents
-- Caches in memory must learn of it, so a row stays behind: a number and an id.
UPDATE documents SET findable = FALSE, version = (
  SELECT index_version FROM namespaces WHERE namespace = :namespace)
WHERE namespace = :namespace AND item_id IN (:ids...) AND findable

-- query: count_terms
-- in: sqlite
INSERT INTO terms (namespace, term, documents, last_slot)
SELECT n.namespace, c.key, c.value, n.last_slot
FROM namespaces n CROSS JOIN json_each(:counts) c WHERE n.namespace = :namespace
ON CONFLICT (namespace, term) DO UPDATE
SET documents = documents + excluded.documents, last_slot = excluded.last_slot
-- in: postgres
INSERT INTO terms AS t (namespace, term, documents, last_slot)
SELECT n.namespace, c.key, CAST(c.value AS bigint), n.last_slot
FROM namespaces n CROSS JOIN jsonb_each_text(:counts) AS c WHERE n.namespace = :namespace
ON CONFLICT (namespace, term) DO UPDATE
SET documents = t.documents + excluded.documents, last_slot = excluded.last_slot

-- query: uncount_terms
-- A word that no item has any more is removed: it may be a name.
-- in: sqlite
-- Named twice: by the join alone it would go through all words of the namespace.
UPDATE terms SET documents = documents - c.value FROM json_each(:counts) c
WHERE namespace = :namespace AND term = c.key AND term IN (SELECT key FROM json_each(:counts))
-- in: postgres
UPDATE terms SET documents = documents - CAST(c.value AS bigint) FROM jsonb_each_text(:counts) c
WHERE namespace = :namespace AND term = c.key

-- query: drop_unused_terms
DELETE FROM terms WHERE namespace = :namespace AND documents <= 0
  AND term IN (:terms...)

-- query: statistics
-- Of the namespace, and of the terms asked for that stand anywhere in it.
SELECT n.documents, n.words, n.index_version, n.erase_epoch, t.term, t.documents AS frequency,
  t.last_slot
FROM namespaces n LEFT JOIN terms t ON t.namespace = n.namespace
  AND t.term IN (:terms...)
WHERE n.namespace = :namespace

-- query: page_of_terms
SELECT term, documents FROM terms WHERE namespace = :namespace AND term > :after AND documents > 0
ORDER BY term LIMIT :limit

-- query: page_of_documents
-- From a version on, in one row, as a hundred thousand of them take longer than what is in them.
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

-- query: postings_behind
-- Of each term those behind a slot, as one text of numbers: slot, occurrences, length.
-- in: sqlite
SELECT w.key AS term, (
  SELECT group_concat(p.slot || ' ' || p.occurrences || ' ' || p.length, ' ') FROM postings p
  WHERE p.namespace = :namespace AND p.term = w.key AND p.slot > w.value) AS found
FROM json_each(:slots) w
-- in: postgres
SELECT w.key AS term, (
  SELECT string_agg(concat(p.slot, ' ', p.occurrences, ' ', p.length), ' ') FROM postings p
  WHERE p.namespace = :namespace AND p.term = w.key AND p.slot > CAST(w.value AS bigint)
  ) AS found
FROM jsonb_each_text(:slots) w

-- query: similar_items
-- BM25 with the namespace's own statistics, in whole millionths, so that both engines cut at the
-- same place however they add up. The terms lead: each is one range of the key, and nothing else is
-- read. Of a limited token only the memories in its access scope.
-- in: sqlite
WITH found AS MATERIALIZED (
  SELECT p.slot, sum(CAST(round(1000000 * w.value * p.occurrences * (:k1 + 1.0)
    / (p.occurrences + :k1 * (1.0 - :b + :b * p.length / :average))) AS INTEGER)) AS score
  FROM json_each(:weights) w CROSS JOIN postings p
  WHERE p.namespace = :namespace AND p.term = w.key
    AND ({{no_limit}} OR EXISTS (
      SELECT 1 FROM documents d CROSS JOIN memories m
      WHERE d.namespace = :namespace AND d.slot = p.slot
        AND m.namespace = :namespace AND m.id = d.item_id
        AND {{scope:m}}))
  GROUP BY p.slot
  ORDER BY score DESC, p.slot
  LIMIT :limit
)
SELECT d.item_id FROM found f CROSS JOIN documents d
WHERE d.namespace = :namespace AND d.slot = f.slot
ORDER BY f.score DESC, f.slot
-- in: postgres
WITH found AS MATERIALIZED (
  SELECT p.slot, sum(CAST(round(1000000 * CAST(w.value AS double precision) * p.occurrences
    * (CAST(:k1 AS double precision) + 1.0)
    / (p.occurrences + :k1 * (1.0 - CAST(:b AS double precision)
      + :b * p.length / CAST(:average AS double precision)))) AS bigint)) AS score
  FROM jsonb_each_text(:weights) w CROSS JOIN LATERAL (
    SELECT slot, occurrences, length FROM postings
    WHERE namespace = :namespace AND term = w.key
      -- As a query of one value: of EXISTS it would make a table of all in the access scope.
      AND ({{no_limit}} OR (
        SELECT TRUE FROM memories m
        WHERE m.namespace = :namespace AND m.id = (
            SELECT d.item_id FROM documents d
            WHERE d.namespace = :namespace AND d.slot = postings.slot)
          AND {{scope:m}}
        LIMIT 1))
    OFFSET 0
  ) p
  GROUP BY p.slot
  ORDER BY score DESC, p.slot
  LIMIT :limit
)
SELECT d.item_id FROM found f JOIN documents d ON d.namespace = :namespace AND d.slot = f.slot
ORDER BY f.score DESC, f.slot

-- query: next_index_version
-- Also the lock that makes the versions of a namespace become visible in their order.
UPDATE namespaces SET index_version = index_version + 1 WHERE namespace = :namespace

-- query: put_vector
-- Of the version that next_index_version has made, and of what search finds; its slot, once given,
-- stays.
INSERT INTO embeddings (namespace, model, item_id, vector, code, slot, document, version)
SELECT n.namespace, :model, :item_id, :vector, :code,
  1 + COALESCE((SELECT max(slot) FROM embeddings WHERE namespace = :namespace AND model = :model),
    0),
  d.slot, n.index_version
FROM namespaces n JOIN documents d ON d.namespace = n.namespace
WHERE n.namespace = :namespace AND d.item_id = :item_id AND d.findable
ON CONFLICT (namespace, model, item_id)
DO UPDATE SET vector = excluded.vector, code = excluded.code, document = excluded.document,
  version = excluded.version

-- query: link_vectors
-- To where these items are found now.
UPDATE embeddings SET document = d.slot, version = n.index_version
FROM documents d, namespaces n
WHERE embeddings.namespace = :namespace AND embeddings.item_id IN (:ids...)
  AND d.namespace = :namespace AND d.item_id = embeddings.item_id AND d.findable
  AND n.namespace = :namespace

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
-- In one row, as above. All of it stands in the index embeddings_by_slot: the vectors themselves are
-- not read.
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
-- Changes of one namespace wait for each other, and never for those of another.
-- in: sqlite
SELECT namespace FROM namespaces WHERE namespace = :namespace
-- in: postgres
SELECT namespace FROM namespaces WHERE namespace = :namespace FOR NO KEY UPDATE

-- query: vectors_of
SELECT item_id, vector FROM embeddings
WHERE namespace = :namespace AND model = :model AND item_id IN (:ids...)

-- query: having_vectors
SELECT item_id FROM embeddings
WHERE namespace = :namespace AND model = :model AND item_id IN (:ids...)

-- query: count_vectors
SELECT count(*) AS vectors
FROM documents d JOIN embeddings e ON e.namespace = d.namespace AND e.item_id = d.item_id
WHERE d.namespace = :namespace AND d.findable AND e.model = :model

-- query: models_of_vectors
SELECT DISTINCT model FROM embeddings WHERE namespace = :namespace ORDER BY model

-- query: remove_vectors
DELETE FROM embeddings WHERE namespace = :namespace AND item_id IN (:ids...)

-- query: drop_vectors
-- So many of a model: a transaction must be short. The greatest slot goes last: no other is given
-- again as long as it stands.
DELETE FROM embeddings WHERE namespace = :namespace AND model = :model AND item_id IN (
  SELECT item_id FROM embeddings WHERE namespace = :namespace AND model = :model
  ORDER BY slot LIMIT :limit
) RETURNING item_id
