-- How many active memories there are of each kind, so that nobody has to count them.
CREATE TABLE memory_counts (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  type TEXT NOT NULL,
  topic TEXT NOT NULL,
  memories INTEGER NOT NULL,
  PRIMARY KEY (namespace, type, topic)
) WITHOUT ROWID;
INSERT INTO memory_counts (namespace, type, topic, memories)
SELECT namespace, type, topic, count(*) FROM memories
WHERE retired_at IS NULL GROUP BY namespace, type, topic;

CREATE TRIGGER memories_are_counted AFTER INSERT ON memories WHEN NEW.retired_at IS NULL
BEGIN
  INSERT INTO memory_counts (namespace, type, topic, memories)
  VALUES (NEW.namespace, NEW.type, NEW.topic, 1)
  ON CONFLICT (namespace, type, topic) DO UPDATE SET memories = memories + 1;
END;
CREATE TRIGGER memories_are_counted_again AFTER UPDATE OF retired_at, type, topic ON memories
WHEN NEW.retired_at IS NULL
BEGIN
  INSERT INTO memory_counts (namespace, type, topic, memories)
  VALUES (NEW.namespace, NEW.type, NEW.topic, 1)
  ON CONFLICT (namespace, type, topic) DO UPDATE SET memories = memories + 1;
END;
CREATE TRIGGER memories_are_counted_no_more AFTER UPDATE OF retired_at, type, topic ON memories
WHEN OLD.retired_at IS NULL
BEGIN
  UPDATE memory_counts SET memories = memories - 1
  WHERE namespace = OLD.namespace AND type = OLD.type AND topic = OLD.topic;
  -- A topic without memories is not kept: it may be somebody's name.
  DELETE FROM memory_counts
  WHERE namespace = OLD.namespace AND type = OLD.type AND topic = OLD.topic AND memories = 0;
END;
CREATE TRIGGER memories_gone_are_not_counted AFTER DELETE ON memories WHEN OLD.retired_at IS NULL
BEGIN
  UPDATE memory_counts SET memories = memories - 1
  WHERE namespace = OLD.namespace AND type = OLD.type AND topic = OLD.topic;
  DELETE FROM memory_counts
  WHERE namespace = OLD.namespace AND type = OLD.type AND topic = OLD.topic AND memories = 0;
END;
