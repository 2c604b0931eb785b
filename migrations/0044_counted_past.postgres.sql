-- What is kept of the past counts towards the quota: events, and entries that search does not find
-- any more.
ALTER TABLE namespaces NO FORCE ROW LEVEL SECURITY;
ALTER TABLE memory_events NO FORCE ROW LEVEL SECURITY;
ALTER TABLE documents NO FORCE ROW LEVEL SECURITY;
UPDATE namespaces SET stored_bytes = stored_bytes
  + 96 * (SELECT count(*) FROM memory_events e WHERE e.namespace = namespaces.namespace)
  + 256 * (SELECT count(*) FROM documents d
    WHERE d.namespace = namespaces.namespace AND NOT d.findable);
ALTER TABLE namespaces FORCE ROW LEVEL SECURITY;
ALTER TABLE memory_events FORCE ROW LEVEL SECURITY;
ALTER TABLE documents FORCE ROW LEVEL SECURITY;
