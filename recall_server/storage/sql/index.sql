-- query: count_documents
-- First of all changes of the index: it is also the lock that keeps two of them from waiting for
-- each other's terms.
UPDATE namespaces SET documents = documents + :documents, words = words + :words
WHERE namespace = :namespace

-- query: add_postings
-- in: sqlite
INSERT INTO postings (namespace, term, item_id, occurrences, length)
SELECT :namespace, value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(:rows)
-- in: postgres
INSERT INTO postings (namespace, term, item_id, occurrences, length)
SELECT :namespace, r ->> 0, r ->> 1, CAST(r ->> 2 AS bigint), CAST(r ->> 3 AS bigint)
FROM jsonb_array_elements(:rows) AS r

-- query: remove_postings
-- in: sqlite
DELETE FROM postings WHERE namespace = :namespace
  AND (term, item_id) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:rows))
-- in: postgres
DELETE FROM postings p USING jsonb_array_elements(:rows) AS r
WHERE p.namespace = :namespace AND p.term = r ->> 0 AND p.item_id = r ->> 1

-- query: count_terms
-- in: sqlite
INSERT INTO terms (namespace, term, documents)
SELECT :namespace, key, value FROM json_each(:counts) WHERE TRUE
ON CONFLICT (namespace, term) DO UPDATE SET documents = documents + excluded.documents
-- in: postgres
INSERT INTO terms AS t (namespace, term, documents)
SELECT :namespace, c.key, CAST(c.value AS bigint) FROM jsonb_each_text(:counts) AS c
ON CONFLICT (namespace, term) DO UPDATE SET documents = t.documents + excluded.documents

-- query: drop_unused_terms
-- A word that stands nowhere any more must not stand here either.
DELETE FROM terms WHERE namespace = :namespace AND documents <= 0
  AND term IN (:terms...)

-- query: statistics
-- Of the namespace, and of the terms asked for that stand anywhere in it.
SELECT n.documents, n.words, n.vector_version, n.erase_epoch, t.term, t.documents AS frequency
FROM namespaces n LEFT JOIN terms t ON t.namespace = n.namespace
  AND t.term IN (:terms...)
WHERE n.namespace = :namespace

-- query: item_before
-- The id that is so many places from the end of a term's items, if it has so many.
SELECT item_id FROM postings WHERE namespace = :namespace AND term = :term
ORDER BY item_id DESC LIMIT 1 OFFSET :places

-- query: keyword_pool
-- BM25 with the namespace's own statistics: of each term in :read all items from a given one on,
-- and of the best of these the items before a given one for each term in :looked_up. In whole
-- millionths, so that both engines cut at the same place however they add up. The terms lead: each
-- is one range of the key, and nothing else is read.
-- in: sqlite
WITH read AS MATERIALIZED (
  SELECT key AS term, value ->> 0 AS weight, value ->> 1 AS since FROM json_each(:read)
), looked_up AS MATERIALIZED (
  SELECT key AS term, value ->> 0 AS weight, value ->> 1 AS before FROM json_each(:looked_up)
), found AS MATERIALIZED (
  SELECT p.item_id, sum(CAST(round(1000000 * w.weight * p.occurrences * (:k1 + 1.0)
    / (p.occurrences + :k1 * (1.0 - :b + :b * p.length / :average))) AS INTEGER)) AS score
  FROM read w CROSS JOIN postings p
  WHERE p.namespace = :namespace AND p.term = w.term AND p.item_id >= w.since
    AND (:anywhere OR p.item_id IN (:within...))
  GROUP BY p.item_id
  ORDER BY score DESC, p.item_id
  LIMIT :candidates
)
SELECT f.item_id, f.score + COALESCE((
  SELECT sum(CAST(round(1000000 * w.weight * p.occurrences * (:k1 + 1.0)
    / (p.occurrences + :k1 * (1.0 - :b + :b * p.length / :average))) AS INTEGER))
  FROM looked_up w CROSS JOIN postings p
  WHERE p.namespace = :namespace AND p.term = w.term AND p.item_id = f.item_id
    AND (w.before = '' OR f.item_id < w.before)
), 0) AS score
FROM found f
ORDER BY 2 DESC, 1
LIMIT :limit
-- in: postgres
WITH read AS MATERIALIZED (
  SELECT w.key AS term, CAST(w.value ->> 0 AS double precision) AS weight, w.value ->> 1 AS since
  FROM jsonb_each(:read) w
), looked_up AS MATERIALIZED (
  SELECT w.key AS term, CAST(w.value ->> 0 AS double precision) AS weight, w.value ->> 1 AS before
  FROM jsonb_each(:looked_up) w
), found AS MATERIALIZED (
  SELECT p.item_id, sum(CAST(round(1000000 * w.weight * p.occurrences
    * (CAST(:k1 AS double precision) + 1.0)
    / (p.occurrences + :k1 * (1.0 - CAST(:b AS double precision)
      + :b * p.length / CAST(:average AS double precision)))) AS bigint)) AS score
  FROM read w CROSS JOIN LATERAL (
    SELECT item_id, occurrences, length FROM postings
    WHERE namespace = :namespace AND term = w.term AND item_id >= w.since
      AND (:anywhere OR item_id IN (:within...))
    OFFSET 0
  ) p
  GROUP BY p.item_id
  ORDER BY score DESC, p.item_id
  LIMIT :candidates
)
SELECT item_id, CAST(sum(score) AS bigint) AS score FROM (
  SELECT item_id, score FROM found
  UNION ALL
  SELECT p.item_id, CAST(round(1000000 * w.weight * p.occurrences
    * (CAST(:k1 AS double precision) + 1.0)
    / (p.occurrences + :k1 * (1.0 - CAST(:b AS double precision)
      + :b * p.length / CAST(:average AS double precision)))) AS bigint)
  FROM looked_up w CROSS JOIN LATERAL (
    SELECT item_id, occurrences, length FROM postings
    WHERE namespace = :namespace AND term = w.term
      AND item_id = ANY(ARRAY(SELECT f.item_id FROM found f))
      AND (w.before = '' OR item_id < w.before)
    OFFSET 0
  ) p
) AS scored
GROUP BY item_id
ORDER BY 2 DESC, 1
LIMIT :limit

-- query: next_vector_version
-- Also the lock that makes the versions of a namespace become visible in their order.
UPDATE namespaces SET vector_version = vector_version + 1 WHERE namespace = :namespace

-- query: put_vector
-- Of the version that next_vector_version has made; its slot, once given, stays.
INSERT INTO embeddings (namespace, model, item_id, vector, code, slot, findable, version)
SELECT :namespace, :model, :item_id, :vector, :code,
  1 + COALESCE((SELECT max(slot) FROM embeddings WHERE namespace = :namespace AND model = :model),
    0),
  TRUE, vector_version
FROM namespaces WHERE namespace = :namespace
ON CONFLICT (namespace, model, item_id)
DO UPDATE SET vector = excluded.vector, code = excluded.code, version = excluded.version

-- query: conceal_vector
UPDATE embeddings SET findable = FALSE, version = (
  SELECT vector_version FROM namespaces WHERE namespace = :namespace)
WHERE namespace = :namespace AND item_id = :item_id

-- query: reveal_vector
UPDATE embeddings SET findable = TRUE, version = (
  SELECT vector_version FROM namespaces WHERE namespace = :namespace)
WHERE namespace = :namespace AND item_id = :item_id

-- query: vectors_since
SELECT item_id, slot, vector, code, findable FROM embeddings
WHERE namespace = :namespace AND model = :model AND version > :version

-- query: codes_since
SELECT slot, code, findable FROM embeddings
WHERE namespace = :namespace AND model = :model AND version > :version
ORDER BY slot

-- query: last_slot
SELECT COALESCE(max(slot), 0) AS slot FROM embeddings
WHERE namespace = :namespace AND model = :model

-- query: page_of_codes
-- In one row, as a hundred thousand of them take longer than what is in them. All of it stands in
-- the index embeddings_by_slot: the vectors themselves are not read.
-- in: sqlite
SELECT count(*) AS items, max(slot) AS last, group_concat(slot) AS slots,
  group_concat(findable, '') AS findable, group_concat(code, '') AS codes
FROM (
  SELECT slot, findable, code FROM embeddings
  WHERE namespace = :namespace AND model = :model AND slot > :after
    AND length(code) = :code_chars
  ORDER BY slot LIMIT :limit
)
-- in: postgres
SELECT count(*) AS items, max(slot) AS last, string_agg(CAST(slot AS text), ',') AS slots,
  string_agg(CASE WHEN findable THEN '1' ELSE '0' END, '') AS findable,
  string_agg(code, '') AS codes
FROM (
  SELECT slot, findable, code FROM embeddings
  WHERE namespace = :namespace AND model = :model AND slot > :after
    AND length(code) = :code_chars
  ORDER BY slot LIMIT :limit
) AS page

-- query: slots_of
SELECT slot FROM embeddings
WHERE namespace = :namespace AND model = :model AND item_id IN (:ids...)

-- query: vectors_at
-- What has been concealed meanwhile is not among them.
SELECT item_id, vector FROM embeddings
WHERE namespace = :namespace AND model = :model AND slot IN (:slots...) AND findable

-- query: lock_namespace
-- Changes of memory take turns within a namespace, and never wait for another one's.
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
SELECT count(*) AS vectors FROM embeddings
WHERE namespace = :namespace AND model = :model AND findable

-- query: models_of_vectors
SELECT DISTINCT model FROM embeddings WHERE namespace = :namespace ORDER BY model

-- query: drop_vectors
-- So many of a model: a transaction must be short.
DELETE FROM embeddings WHERE namespace = :namespace AND model = :model AND item_id IN (
  SELECT item_id FROM embeddings WHERE namespace = :namespace AND model = :model LIMIT :limit
) RETURNING item_id

-- query: occurrences
-- How often these terms stand in these items: a point of the key for each pair.
-- in: sqlite
SELECT p.item_id, p.term, p.occurrences, p.length
FROM json_each(:terms) t CROSS JOIN json_each(:ids) i CROSS JOIN postings p
WHERE p.namespace = :namespace AND p.term = t.value AND p.item_id = i.value
-- in: postgres
SELECT p.item_id, p.term, p.occurrences, p.length
FROM postings p
WHERE p.namespace = :namespace AND p.term = ANY(:terms) AND p.item_id = ANY(:ids)
