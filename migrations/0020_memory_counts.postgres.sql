-- How many active memories there are of each kind, so that nobody has to count them.
CREATE TABLE memory_counts (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  type TEXT NOT NULL,
  topic TEXT NOT NULL,
  memories BIGINT NOT NULL,
  PRIMARY KEY (namespace, type, topic)
);
-- Its owner looks at rows of all tenants, this once.
ALTER TABLE memories NO FORCE ROW LEVEL SECURITY;
INSERT INTO memory_counts (namespace, type, topic, memories)
SELECT namespace, type, topic, count(*) FROM memories
WHERE retired_at IS NULL GROUP BY namespace, type, topic;
ALTER TABLE memories FORCE ROW LEVEL SECURITY;

GRANT SELECT, INSERT, UPDATE, DELETE ON memory_counts TO recall_app;
ALTER TABLE memory_counts ENABLE ROW LEVEL SECURITY;
ALTER TABLE memory_counts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memory_counts TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));

CREATE FUNCTION count_memories() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' AND OLD.retired_at IS NULL THEN
    UPDATE memory_counts SET memories = memories - 1
    WHERE namespace = OLD.namespace AND type = OLD.type AND topic = OLD.topic;
    -- A topic without memories is not kept: it may be somebody's name.
    DELETE FROM memory_counts
    WHERE namespace = OLD.namespace AND type = OLD.type AND topic = OLD.topic AND memories = 0;
  END IF;
  IF TG_OP <> 'DELETE' AND NEW.retired_at IS NULL THEN
    INSERT INTO memory_counts (namespace, type, topic, memories)
    VALUES (NEW.namespace, NEW.type, NEW.topic, 1)
    ON CONFLICT (namespace, type, topic)
    DO UPDATE SET memories = memory_counts.memories + 1;
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER memories_are_counted
AFTER INSERT OR DELETE OR UPDATE OF retired_at, type, topic ON memories
FOR EACH ROW EXECUTE FUNCTION count_memories();
