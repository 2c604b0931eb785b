-- Where a text comes from, and whether memories are made of it: kept_as is null where they are
-- extracted, 'text' where there are none, or the type of the memory that it is kept as.
ALTER TABLE episodes ADD COLUMN source_app TEXT;
ALTER TABLE episodes ADD COLUMN trace_id TEXT;
ALTER TABLE episodes ADD COLUMN kept_as TEXT;
-- The metadata of the text that a memory was made of, as a JSON object; null where it has none.
ALTER TABLE memories ADD COLUMN metadata TEXT;
