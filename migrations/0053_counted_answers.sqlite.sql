-- The answers of models and persons that events keep count towards the quota.
UPDATE namespaces SET stored_bytes = stored_bytes + COALESCE((
  SELECT sum(length(CAST(answer AS BLOB))) FROM memory_events e
  WHERE e.namespace = namespaces.namespace AND e.answer IS NOT NULL), 0);
-- Few texts expire: a search that asks for expired ones finds them by this.
CREATE INDEX episodes_by_expiry ON episodes (namespace, expired_at) WHERE expired_at IS NOT NULL;
