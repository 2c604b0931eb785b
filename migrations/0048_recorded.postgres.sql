-- A digest of what the transaction of an event recorded of a memory: the words of a new one, and its
-- citations. A rebuild compares the rows with it. Null where an older release wrote the event.
ALTER TABLE memory_events ADD COLUMN digest TEXT;
-- A rebuild writes the digest of what an older release recorded.
GRANT UPDATE (digest) ON memory_events TO recall_app;
