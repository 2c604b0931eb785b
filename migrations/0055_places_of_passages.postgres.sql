-- The passages that a citation touches, and the citations that touch a passage, are looked up by
-- their places.
CREATE INDEX documents_by_place ON documents (namespace, turn_id, span_start)
  WHERE turn_id IS NOT NULL;
DROP INDEX citations_by_episode;
CREATE INDEX citations_by_episode ON citations (namespace, episode_id, span_start, span_end);
-- The id of a turn has its text and its position.
ALTER TABLE turns DROP CONSTRAINT turns_namespace_episode_id_position_key;

-- Most memories have no fact.
DROP INDEX memories_by_fact;
CREATE INDEX memories_by_fact ON memories (namespace, entity_key, attribute_key, recorded_at, id)
  WHERE retired_at IS NULL AND entity_key IS NOT NULL;
DROP INDEX memories_by_value;
CREATE INDEX memories_by_value ON memories (namespace, entity_key, value_key, recorded_at, id)
  WHERE retired_at IS NULL AND value_key IS NOT NULL;
