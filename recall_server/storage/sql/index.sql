-- query: add_posting
INSERT INTO postings (namespace, term, item_id, occurrences, length)
VALUES (:namespace, :term, :item_id, :occurrences, :length)

-- query: remove_posting
DELETE FROM postings WHERE namespace = :namespace AND term = :term AND item_id = :item_id

-- query: count_documents
UPDATE namespaces SET documents = documents + :documents, words = words + :words
WHERE namespace = :namespace

-- query: namespace_statistics
SELECT documents, words, vector_version FROM namespaces WHERE namespace = :namespace

-- query: document_frequencies
-- Counted up to a cap: beyond it a term is frequent, and how frequent no longer matters.
-- in: sqlite
SELECT w.value AS term, (
  SELECT count(*) FROM (
    SELECT 1 FROM postings p
    WHERE p.namespace = :namespace AND p.term = w.value LIMIT :cap
  )
) AS documents
FROM json_each(:terms) w
-- in: postgres
SELECT w.term, (
  SELECT count(*) FROM (
    SELECT 1 FROM postings p
    WHERE p.namespace = :namespace AND p.term = w.term LIMIT :cap
  ) AS counted
) AS documents
FROM unnest(CAST(:terms AS text[])) AS w (term)

-- query: keyword_pool
-- BM25 with the namespace's own statistics. Rounded, so that both engines cut at the same place
-- however they add up.
-- in: sqlite
SELECT p.item_id, round(sum(
  w.value * p.occurrences * (:k1 + 1.0)
  / (p.occurrences + :k1 * (1.0 - :b + :b * p.length / :average))
), 6) AS score
FROM json_each(:weights) w CROSS JOIN postings p
WHERE p.namespace = :namespace AND p.term = w.key
GROUP BY p.item_id
ORDER BY score DESC, p.item_id
LIMIT :limit
-- in: postgres
SELECT p.item_id, CAST(round(CAST(sum(
  CAST(w.value AS double precision) * p.occurrences * (CAST(:k1 AS double precision) + 1.0)
  / (p.occurrences + :k1 * (1.0 - CAST(:b AS double precision)
    + :b * p.length / CAST(:average AS double precision)))
) AS numeric), 6) AS double precision) AS score
FROM jsonb_each_text(:weights) w JOIN postings p ON p.term = w.key
WHERE p.namespace = :namespace
GROUP BY p.item_id
ORDER BY score DESC, p.item_id COLLATE "C"
LIMIT :limit

-- query: next_vector_version
-- Also the lock that makes the versions of a namespace become visible in their order.
UPDATE namespaces SET vector_version = vector_version + 1 WHERE namespace = :namespace
RETURNING vector_version

-- query: put_vector
INSERT INTO embeddings (namespace, model, item_id, vector, findable, version)
VALUES (:namespace, :model, :item_id, :vector, TRUE, :version)
ON CONFLICT (namespace, model, item_id)
DO UPDATE SET vector = excluded.vector, version = excluded.version

-- query: conceal_vector
UPDATE embeddings SET findable = FALSE, version = :version
WHERE namespace = :namespace AND item_id = :item_id

-- query: vectors_since
SELECT item_id, vector, findable, version FROM embeddings
WHERE namespace = :namespace AND model = :model AND version > :version
ORDER BY version, item_id

-- query: lock_namespace
-- Changes of memory take turns within a namespace, and never wait for another one's.
-- in: sqlite
SELECT namespace FROM namespaces WHERE namespace = :namespace
-- in: postgres
SELECT namespace FROM namespaces WHERE namespace = :namespace FOR NO KEY UPDATE
