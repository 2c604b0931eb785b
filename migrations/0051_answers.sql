-- What a language model or a person worded, where no text says it in these words: the recorded fields
-- of a new memory and its citations. A rebuild writes a memory again from it.
ALTER TABLE memory_events ADD COLUMN answer TEXT;
