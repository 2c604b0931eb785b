-- What search finds has numbers, so that what is held of it in memory is small and knows what is new.
-- Goes up with every change of what search finds, of words and vectors alike.
ALTER TABLE namespaces RENAME COLUMN vector_version TO index_version;
ALTER TABLE namespaces ADD COLUMN last_slot BIGINT NOT NULL DEFAULT 0;

-- What search finds, or has found: one that is found again has a new slot.
CREATE TABLE documents (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  slot BIGINT NOT NULL,
  item_id TEXT NOT NULL,
  findable BOOLEAN NOT NULL DEFAULT TRUE,
  version BIGINT NOT NULL,
  PRIMARY KEY (namespace, slot)
);
CREATE INDEX documents_by_item ON documents (namespace, item_id, findable);
CREATE INDEX documents_by_version ON documents (namespace, version, slot) INCLUDE (findable);
GRANT SELECT, INSERT, UPDATE, DELETE ON documents TO recall_app;
ALTER TABLE documents ENABLE ROW LEVEL SECURITY;
ALTER TABLE documents FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON documents TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));

-- The word indexes are made anew when the server starts.
-- Their owner changes rows of all tenants, this once.
ALTER TABLE namespaces NO FORCE ROW LEVEL SECURITY;
UPDATE namespaces SET words_stale = TRUE;
ALTER TABLE namespaces FORCE ROW LEVEL SECURITY;
TRUNCATE terms;
DROP TABLE postings;
CREATE TABLE postings (
  namespace TEXT NOT NULL,
  term TEXT NOT NULL,
  slot BIGINT NOT NULL,
  occurrences BIGINT NOT NULL,
  length BIGINT NOT NULL,
  PRIMARY KEY (namespace, term, slot) INCLUDE (occurrences, length)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON postings TO recall_app;
ALTER TABLE postings ENABLE ROW LEVEL SECURITY;
ALTER TABLE postings FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postings TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
-- That of the last item that was given the term, or a later one.
ALTER TABLE terms ADD COLUMN last_slot BIGINT NOT NULL DEFAULT 0;

-- Which document a vector is of; whether that is found is told there.
DROP INDEX embeddings_by_slot;
ALTER TABLE embeddings DROP COLUMN findable;
ALTER TABLE embeddings ADD COLUMN document BIGINT NOT NULL DEFAULT 0;
CREATE INDEX embeddings_by_item ON embeddings (namespace, item_id);
CREATE INDEX embeddings_by_slot ON embeddings (namespace, model, slot) INCLUDE (document, code);
