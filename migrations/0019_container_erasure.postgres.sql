-- A container can be erased as a whole.
ALTER TABLE erasures DROP CONSTRAINT erasures_kind_check;
ALTER TABLE erasures ADD CONSTRAINT erasures_kind_check
  CHECK (kind IN ('namespace', 'container', 'subject', 'memory'));

-- What is in a container is found without going through all that is in none.
CREATE INDEX episodes_by_container ON episodes (namespace, container, id) WHERE container <> '';
CREATE INDEX memories_by_container ON memories (namespace, container, id) WHERE container <> '';
