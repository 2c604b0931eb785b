-- The postings of a term are one list, since a row for each costs more than what it says. The end of
-- a list stands beside the counts of its term. What is long enough is a row of postings, and the list
-- goes on with none: an update writes the whole of a row. For each document a list has a semicolon,
-- its slot, the occurrences, and the length of the document.
CREATE TABLE lists (
  namespace TEXT NOT NULL,
  term TEXT NOT NULL,
  -- That of its last document, or a later one.
  slot INTEGER NOT NULL,
  found TEXT NOT NULL,
  PRIMARY KEY (namespace, term, slot)
) WITHOUT ROWID;
CREATE TABLE counted_terms (
  namespace TEXT NOT NULL,
  term TEXT NOT NULL,
  documents INTEGER NOT NULL,
  last_slot INTEGER NOT NULL DEFAULT 0,
  found TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (namespace, term)
) WITHOUT ROWID;
INSERT INTO lists (namespace, term, slot, found)
SELECT namespace, term, max(slot),
  group_concat(';' || slot || ' ' || occurrences || ' ' || length, '')
FROM (
  SELECT namespace, term, slot, occurrences, length,
    (row_number() OVER (PARTITION BY namespace, term ORDER BY slot DESC) - 1) / 64 AS part
  FROM postings
) AS numbered
WHERE part > 0 GROUP BY namespace, term, part;
INSERT INTO counted_terms (namespace, term, documents, last_slot, found)
SELECT t.namespace, t.term, t.documents, t.last_slot, COALESCE(l.found, '')
FROM terms t LEFT JOIN (
  SELECT namespace, term,
    group_concat(';' || slot || ' ' || occurrences || ' ' || length, '') AS found
  FROM (
    SELECT namespace, term, slot, occurrences, length,
      (row_number() OVER (PARTITION BY namespace, term ORDER BY slot DESC) - 1) / 64 AS part
    FROM postings
  ) AS numbered
  WHERE part = 0 GROUP BY namespace, term
) AS l ON l.namespace = t.namespace AND l.term = t.term;
DROP TABLE postings;
DROP TABLE terms;
ALTER TABLE lists RENAME TO postings;
ALTER TABLE counted_terms RENAME TO terms;

-- The key begins with the item, so that an erasure needs no index of its own.
CREATE TABLE embeddings_anew (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  model TEXT NOT NULL,
  item_id TEXT NOT NULL,
  document INTEGER NOT NULL,
  vector BLOB NOT NULL,
  version INTEGER NOT NULL,
  slot INTEGER NOT NULL,
  code TEXT NOT NULL,
  PRIMARY KEY (namespace, item_id, document, model)
);
INSERT INTO embeddings_anew (
  namespace, model, item_id, document, vector, version, slot, code
) SELECT namespace, model, item_id, document, vector, version, slot, code FROM embeddings;
DROP TABLE embeddings;
ALTER TABLE embeddings_anew RENAME TO embeddings;
CREATE INDEX embeddings_by_version ON embeddings (namespace, model, version);
CREATE INDEX embeddings_by_slot ON embeddings (namespace, model, slot, document, code);
