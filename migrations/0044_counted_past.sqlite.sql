-- What is kept of the past counts towards the quota: events, and entries that search does not find
-- any more.
UPDATE namespaces SET stored_bytes = stored_bytes
  + 96 * (SELECT count(*) FROM memory_events e WHERE e.namespace = namespaces.namespace)
  + 256 * (SELECT count(*) FROM documents d
    WHERE d.namespace = namespaces.namespace AND NOT d.findable);
