-- What a request leaves in the database is counted, and what one claim is compared with is bounded.
-- By which a claim finds what has the same value. Of older rows nearly the same: without articles
-- and punctuation taken off.
ALTER TABLE memories ADD COLUMN value_key TEXT;
UPDATE memories SET value_key = substr(lower(trim(value)), 1, 64) WHERE value IS NOT NULL;
DROP INDEX memories_by_fact;
CREATE INDEX memories_by_fact ON memories (namespace, entity_key, attribute_key, recorded_at, id)
  WHERE retired_at IS NULL;
CREATE INDEX memories_by_value ON memories (namespace, entity_key, value_key, recorded_at, id)
  WHERE retired_at IS NULL;

-- What a text counts, to be given back with it; 0 of older ones, which count what is left of them.
ALTER TABLE episodes ADD COLUMN stored_bytes INTEGER NOT NULL DEFAULT 0;

-- What a task counts: its documents and events, and the text that it is to become.
ALTER TABLE runs ADD COLUMN request_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN event_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE namespaces SET stored_bytes = stored_bytes - COALESCE((
  SELECT sum(r.stored_bytes) FROM runs r WHERE r.namespace = namespaces.namespace), 0);
UPDATE runs SET request_bytes = length(CAST(request AS BLOB)), event_bytes = COALESCE((
  SELECT sum(length(CAST(COALESCE(e.status, e.outcome) AS BLOB)))
  FROM run_events e WHERE e.namespace = runs.namespace AND e.run_id = runs.id), 0);
UPDATE runs SET stored_bytes = request_bytes + event_bytes + length(CAST(work AS BLOB))
  + length(CAST(status AS BLOB)) + length(CAST(messages AS BLOB))
  + COALESCE(length(CAST(outcome AS BLOB)), 0)
  -- Of one that is to become a text, twice, with 512 bytes of ids.
  + CASE WHEN stored_bytes > 0 AND state IN ('submitted', 'working', 'input-required')
    THEN request_bytes + 512 ELSE 0 END;
UPDATE namespaces SET stored_bytes = stored_bytes + COALESCE((
  SELECT sum(r.stored_bytes) FROM runs r WHERE r.namespace = namespaces.namespace), 0);
