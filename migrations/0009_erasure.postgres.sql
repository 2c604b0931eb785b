-- What was erased, and what must not come back.
-- The role that erasures run under, and nothing else: all that recall_app may do, in the same one
-- namespace, and besides that delete. So no other transaction can destroy what was said.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'recall_eraser') THEN
    CREATE ROLE recall_eraser NOLOGIN NOBYPASSRLS IN ROLE recall_app;
  END IF;
EXCEPTION WHEN unique_violation OR duplicate_object THEN
  NULL;  -- another database of this cluster is being set up at the same moment
END
$$;
DO $$
BEGIN
  IF NOT pg_has_role(current_user, 'recall_eraser', 'MEMBER') THEN
    EXECUTE format('GRANT recall_eraser TO %I', current_user);
  END IF;
END
$$;

-- Goes up with each erasure, so that a cache can tell that it holds what is gone.
ALTER TABLE namespaces ADD COLUMN erase_epoch BIGINT NOT NULL DEFAULT 0;

-- One erasure: in numbers, never in words. left_behind says what the purge could not reach.
CREATE TABLE erasures (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('namespace', 'subject', 'memory')),
  requested_by TEXT NOT NULL,
  requested_at TIMESTAMPTZ NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('erasing', 'logical', 'purging', 'done')),
  claims JSONB NOT NULL,
  left_behind TEXT NOT NULL DEFAULT '',
  purged_at TIMESTAMPTZ,
  -- SHA-256 of what opens the receipt once; none where it was collected.
  secret_hash TEXT,
  receipt TEXT NOT NULL DEFAULT '',
  collected_at TIMESTAMPTZ,
  PRIMARY KEY (namespace, id)
);
CREATE INDEX erasures_by_id ON erasures (id);
CREATE INDEX erasures_open ON erasures (namespace, id) WHERE state <> 'done';

-- Keyed digests of erased texts: they tell nothing without the key of this server.
CREATE TABLE erased (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  digest TEXT NOT NULL,
  PRIMARY KEY (namespace, digest)
);

GRANT SELECT, UPDATE ON erasures TO recall_app;
GRANT INSERT ON erasures TO recall_eraser;
GRANT SELECT ON erasures TO recall_system;
ALTER TABLE erasures ENABLE ROW LEVEL SECURITY;
ALTER TABLE erasures FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON erasures TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
CREATE POLICY across ON erasures TO recall_system USING (true) WITH CHECK (true);

GRANT SELECT ON erased TO recall_app;
GRANT INSERT, DELETE ON erased TO recall_eraser;
ALTER TABLE erased ENABLE ROW LEVEL SECURITY;
ALTER TABLE erased FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON erased TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));

GRANT DELETE ON episodes, turns, memories, citations, decisions, embeddings, operations
  TO recall_eraser;
GRANT UPDATE (text, content_hash, idempotency_key, request_digest, topic, session_id, agent_id,
  source) ON episodes TO recall_eraser;
