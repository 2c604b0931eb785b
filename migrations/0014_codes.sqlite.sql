-- The signs of each vector, where many can be read at once.
-- A vector's number within its namespace and model: so little is enough to hold it by in memory.
ALTER TABLE embeddings ADD COLUMN slot INTEGER NOT NULL DEFAULT 0;
-- One bit for each of its numbers, 1 where it is not negative, as hexadecimal digits.
ALTER TABLE embeddings ADD COLUMN code TEXT NOT NULL DEFAULT '';

UPDATE embeddings SET slot = numbered.slot
FROM (
  SELECT rowid AS row,
    row_number() OVER (PARTITION BY namespace, model ORDER BY version, item_id) AS slot
  FROM embeddings
) AS numbered
WHERE embeddings.rowid = numbered.row;

-- The sign of a little-endian float32 is the highest bit of its last byte; four make a digit.
UPDATE embeddings SET code = (
  WITH RECURSIVE digit (at) AS (
    SELECT 0 WHERE length(vector) > 0
    UNION ALL SELECT at + 16 FROM digit WHERE at + 16 < length(vector)
  )
  SELECT group_concat(substr('0123456789abcdef', 1
    + 8 * (at + 4 <= length(vector) AND substr(vector, at + 4, 1) < x'80')
    + 4 * (at + 8 <= length(vector) AND substr(vector, at + 8, 1) < x'80')
    + 2 * (at + 12 <= length(vector) AND substr(vector, at + 12, 1) < x'80')
    + 1 * (at + 16 <= length(vector) AND substr(vector, at + 16, 1) < x'80'), 1), '')
  FROM digit
);
-- A code is whole bytes.
UPDATE embeddings SET code = code || '0' WHERE length(code) % 2 = 1;

-- All that a search holds of a large namespace, without the vectors: they are a hundred times more.
CREATE INDEX embeddings_by_slot ON embeddings (namespace, model, slot, findable, code);
