-- All that was ever said of an attribute is looked up too, not only what holds now.
DROP INDEX memories_by_fact;
CREATE INDEX memories_by_fact ON memories (namespace, entity_key, attribute_key, recorded_at)
  WHERE entity_key IS NOT NULL;
