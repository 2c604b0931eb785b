-- The tags of the text that a memory was made of, as a JSON array; NULL where it has none.
ALTER TABLE memories ADD COLUMN tags TEXT;
