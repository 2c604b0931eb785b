-- What a request leaves in the database is counted, and what one claim is compared with is bounded.
-- By which a claim finds what has the same value. Of older rows nearly the same: without articles
-- and punctuation taken off.
ALTER TABLE memories ADD COLUMN value_key TEXT;
-- Their owner changes rows of all tenants, this once.
ALTER TABLE memories NO FORCE ROW LEVEL SECURITY;
UPDATE memories SET value_key = substr(lower(trim(value)), 1, 64) WHERE value IS NOT NULL;
ALTER TABLE memories FORCE ROW LEVEL SECURITY;
DROP INDEX memories_by_fact;
CREATE INDEX memories_by_fact ON memories (namespace, entity_key, attribute_key, recorded_at, id)
  WHERE retired_at IS NULL;
CREATE INDEX memories_by_value ON memories (namespace, entity_key, value_key, recorded_at, id)
  WHERE retired_at IS NULL;

-- What a text counts, to be given back with it; 0 of older ones, which count what is left of them.
ALTER TABLE episodes ADD COLUMN stored_bytes BIGINT NOT NULL DEFAULT 0;

-- What a task counts: its documents and events, and the text that it is to become.
ALTER TABLE runs ADD COLUMN request_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN event_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs NO FORCE ROW LEVEL SECURITY;
ALTER TABLE run_events NO FORCE ROW LEVEL SECURITY;
ALTER TABLE namespaces NO FORCE ROW LEVEL SECURITY;
UPDATE namespaces SET stored_bytes = stored_bytes - COALESCE((
  SELECT sum(r.stored_bytes) FROM runs r WHERE r.namespace = namespaces.namespace), 0);
UPDATE runs SET request_bytes = octet_length(request::text), event_bytes = COALESCE((
  SELECT sum(octet_length(COALESCE(e.status, e.outcome)::text))
  FROM run_events e WHERE e.namespace = runs.namespace AND e.run_id = runs.id), 0);
UPDATE runs SET stored_bytes = request_bytes + event_bytes + octet_length(work::text)
  + octet_length(status::text) + octet_length(messages::text)
  + COALESCE(octet_length(outcome::text), 0)
  -- Of one that is to become a text, twice, with 512 bytes of ids.
  + CASE WHEN stored_bytes > 0 AND state IN ('submitted', 'working', 'input-required')
    THEN request_bytes + 512 ELSE 0 END;
UPDATE namespaces SET stored_bytes = stored_bytes + COALESCE((
  SELECT sum(r.stored_bytes) FROM runs r WHERE r.namespace = namespaces.namespace), 0);
ALTER TABLE namespaces FORCE ROW LEVEL SECURITY;
ALTER TABLE run_events FORCE ROW LEVEL SECURITY;
ALTER TABLE runs FORCE ROW LEVEL SECURITY;
