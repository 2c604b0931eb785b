-- The answers of models and persons that events keep count towards the quota.
ALTER TABLE namespaces NO FORCE ROW LEVEL SECURITY;
ALTER TABLE memory_events NO FORCE ROW LEVEL SECURITY;
UPDATE namespaces SET stored_bytes = stored_bytes + COALESCE((
  SELECT sum(octet_length(answer)) FROM memory_events e
  WHERE e.namespace = namespaces.namespace AND e.answer IS NOT NULL), 0);
ALTER TABLE namespaces FORCE ROW LEVEL SECURITY;
ALTER TABLE memory_events FORCE ROW LEVEL SECURITY;
-- Few texts expire: a search that asks for expired ones finds them by this.
CREATE INDEX episodes_by_expiry ON episodes (namespace, expired_at) WHERE expired_at IS NOT NULL;
