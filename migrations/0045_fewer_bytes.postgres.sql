-- The postings of a term are one list, since a row for each costs more than what it says. The end of
-- a list stands beside the counts of its term. What is long enough is a row of postings, and the list
-- goes on with none: an update writes the whole of a row. For each document a list has a semicolon,
-- its slot, the occurrences, and the length of the document.
-- Their owner reads rows of all tenants, this once.
ALTER TABLE postings NO FORCE ROW LEVEL SECURITY;
ALTER TABLE terms NO FORCE ROW LEVEL SECURITY;
-- Numbers stand first: behind a text they would be moved to the next eight bytes.
CREATE TABLE lists (
  -- That of its last document, or a later one.
  slot BIGINT NOT NULL,
  namespace TEXT NOT NULL,
  term TEXT NOT NULL,
  found TEXT NOT NULL,
  PRIMARY KEY (namespace, term, slot)
);
CREATE TABLE counted_terms (
  documents BIGINT NOT NULL,
  last_slot BIGINT NOT NULL DEFAULT 0,
  namespace TEXT NOT NULL,
  term TEXT NOT NULL,
  found TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (namespace, term)
);
INSERT INTO lists (namespace, term, slot, found)
SELECT namespace, term, max(slot),
  string_agg(concat(';', slot, ' ', occurrences, ' ', length), '' ORDER BY slot)
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
    string_agg(concat(';', slot, ' ', occurrences, ' ', length), '' ORDER BY slot) AS found
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
ALTER INDEX lists_pkey RENAME TO postings_pkey;
ALTER INDEX counted_terms_pkey RENAME TO terms_pkey;
GRANT SELECT, INSERT, UPDATE, DELETE ON postings TO recall_app;
ALTER TABLE postings ENABLE ROW LEVEL SECURITY;
ALTER TABLE postings FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postings TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON terms TO recall_app;
ALTER TABLE terms ENABLE ROW LEVEL SECURITY;
ALTER TABLE terms FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON terms TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));

-- The key begins with the item, so that an erasure needs no index of its own.
DROP INDEX embeddings_by_item;
ALTER TABLE embeddings DROP CONSTRAINT embeddings_pkey;
ALTER TABLE embeddings ADD PRIMARY KEY (namespace, item_id, document, model);
