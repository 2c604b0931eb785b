-- What search finds has numbers, so that what is held of it in memory is small and knows what is new.
-- Goes up with every change of what search finds, of words and vectors alike.
ALTER TABLE namespaces RENAME COLUMN vector_version TO index_version;
ALTER TABLE namespaces ADD COLUMN last_slot INTEGER NOT NULL DEFAULT 0;

-- What search finds, or has found: one that is found again has a new slot.
CREATE TABLE documents (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  slot INTEGER NOT NULL,
  item_id TEXT NOT NULL,
  findable INTEGER NOT NULL DEFAULT TRUE,
  version INTEGER NOT NULL,
  PRIMARY KEY (namespace, slot)
) WITHOUT ROWID;
CREATE INDEX documents_by_item ON documents (namespace, item_id, findable);
CREATE INDEX documents_by_version ON documents (namespace, version, slot, findable);

-- The word indexes are made anew when the server starts.
UPDATE namespaces SET words_stale = TRUE;
DROP TABLE postings;
DELETE FROM terms;
CREATE TABLE postings (
  namespace TEXT NOT NULL,
  term TEXT NOT NULL,
  slot INTEGER NOT NULL,
  occurrences INTEGER NOT NULL,
  length INTEGER NOT NULL,
  PRIMARY KEY (namespace, term, slot)
) WITHOUT ROWID;
-- That of the last item that was given the term, or a later one.
ALTER TABLE terms ADD COLUMN last_slot INTEGER NOT NULL DEFAULT 0;

-- Which document a vector is of; whether that is found is told there.
DROP INDEX embeddings_by_slot;
ALTER TABLE embeddings DROP COLUMN findable;
ALTER TABLE embeddings ADD COLUMN document INTEGER NOT NULL DEFAULT 0;
CREATE INDEX embeddings_by_item ON embeddings (namespace, item_id);
CREATE INDEX embeddings_by_slot ON embeddings (namespace, model, slot, document, code);
