-- Changes that somebody proposes, which wait until somebody accepts them. A row for each memory that
-- one is about: what it would add, which is kept as nothing finds it, and what it would replace or
-- forget. closed_at: when it was answered, or taken back.
CREATE TABLE proposals (
  namespace TEXT NOT NULL,
  id TEXT NOT NULL,
  memory_id TEXT NOT NULL,
  side TEXT NOT NULL CHECK (side IN ('target', 'new')),
  kind TEXT NOT NULL,
  made_by TEXT,
  opened_at TEXT NOT NULL,
  closed_at TEXT,
  choice TEXT,
  decided_by TEXT,
  PRIMARY KEY (namespace, id, memory_id),
  FOREIGN KEY (namespace, memory_id) REFERENCES memories (namespace, id)
) WITHOUT ROWID;
CREATE INDEX proposals_by_memory ON proposals (namespace, memory_id);
CREATE INDEX proposals_open ON proposals (namespace, opened_at, id) WHERE closed_at IS NULL;

-- Labels of a text, and when it ends, may change; what was said, when and by whom may not.
DROP TRIGGER episodes_are_append_only;
CREATE TRIGGER episodes_are_append_only BEFORE UPDATE ON episodes
WHEN (NEW.namespace IS NOT OLD.namespace OR NEW.id IS NOT OLD.id OR
  NEW.idempotency_key IS NOT OLD.idempotency_key OR
  NEW.request_digest IS NOT OLD.request_digest OR NEW.job_id IS NOT OLD.job_id OR
  NEW.text IS NOT OLD.text OR NEW.content_hash IS NOT OLD.content_hash OR
  NEW.topic IS NOT OLD.topic OR NEW.name IS NOT OLD.name OR
  NEW.session_id IS NOT OLD.session_id OR NEW.agent_id IS NOT OLD.agent_id OR
  NEW.group_id IS NOT OLD.group_id OR NEW.source IS NOT OLD.source OR
  NEW.source_model IS NOT OLD.source_model OR
  NEW.source_description IS NOT OLD.source_description OR
  NEW.occurred_at IS NOT OLD.occurred_at OR NEW.recorded_at IS NOT OLD.recorded_at OR
  NEW.container IS NOT OLD.container OR NEW.source_app IS NOT OLD.source_app OR
  NEW.trace_id IS NOT OLD.trace_id OR NEW.kept_as IS NOT OLD.kept_as OR
  NEW.erase_epoch IS NOT OLD.erase_epoch)
  AND (length(NEW.text) <> length(OLD.text) OR NEW.id <> OLD.id OR NEW.namespace <> OLD.namespace
    OR NOT EXISTS (
      SELECT 1 FROM erasures e WHERE e.namespace = OLD.namespace AND e.state = 'erasing'))
BEGIN
  SELECT RAISE(ABORT, 'episodes are never changed');
END;

-- A keyed digest of what a call was given; records from before it, and those of no call, have none.
ALTER TABLE tool_call_records ADD COLUMN inputs_hash TEXT;

-- What was made without the model that is set, until it is made again.
CREATE INDEX operations_unreconciled ON operations (namespace, kind)
  WHERE state = 'complete' AND error_code IS NOT NULL;
