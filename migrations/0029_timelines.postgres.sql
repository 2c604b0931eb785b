-- All that was ever said of an attribute is looked up too, not only what holds now.
CREATE INDEX memories_of_fact ON memories (namespace, entity_key, attribute_key, recorded_at, id)
  WHERE entity_key IS NOT NULL;
