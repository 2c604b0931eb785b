-- The signs of each vector, where many can be read at once.
-- A vector's number within its namespace and model: so little is enough to hold it by in memory.
ALTER TABLE embeddings ADD COLUMN slot BIGINT NOT NULL DEFAULT 0;
-- One bit for each of its numbers, 1 where it is not negative, as hexadecimal digits.
ALTER TABLE embeddings ADD COLUMN code TEXT NOT NULL DEFAULT '';

-- Its owner changes rows of all tenants, this once.
ALTER TABLE embeddings NO FORCE ROW LEVEL SECURITY;
-- The sign of a little-endian float32 is the highest bit of its last byte; four make a digit.
UPDATE embeddings SET slot = numbered.slot, code = (
  SELECT COALESCE(string_agg(substr('0123456789abcdef', 1
    + 8 * CAST(get_byte(v, at + 3) < 128 AS integer)
    + 4 * CAST(get_byte(v, at + 7) < 128 AS integer)
    + 2 * CAST(get_byte(v, at + 11) < 128 AS integer)
    + 1 * CAST(get_byte(v, at + 15) < 128 AS integer), 1), '' ORDER BY at), '')
  -- Filled up with negative numbers to whole bytes.
  FROM (SELECT vector || decode(repeat('80', (32 - length(vector) % 32) % 32), 'hex') AS v) AS whole,
    generate_series(0, length(v) - 16, 16) AS at
)
FROM (
  SELECT ctid AS row,
    row_number() OVER (PARTITION BY namespace, model ORDER BY version, item_id COLLATE "C") AS slot
  FROM embeddings
) AS numbered
WHERE embeddings.ctid = numbered.row;
ALTER TABLE embeddings FORCE ROW LEVEL SECURITY;

-- All that a search holds of a large namespace, without the vectors: they are a hundred times more.
CREATE INDEX embeddings_by_slot ON embeddings (namespace, model, slot) INCLUDE (findable, code);

-- A search reads thousands of postings: all of it from the key, in the order in which SQLite has it.
ALTER TABLE postings ALTER COLUMN item_id TYPE TEXT COLLATE "C";
ALTER TABLE postings DROP CONSTRAINT postings_pkey,
  ADD PRIMARY KEY (namespace, term, item_id) INCLUDE (occurrences, length);
