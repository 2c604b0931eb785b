-- The tags of the text that a memory was made of; NULL where it has none.
ALTER TABLE memories ADD COLUMN tags JSONB;
