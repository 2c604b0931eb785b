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
