-- Each transaction counts the memories that it changes, at its end.
DROP TRIGGER memories_are_counted ON memories;
DROP FUNCTION count_memories();

-- Where a worker looks for jobs: none of this namespace is due earlier. It may say too early, never too
-- late. It does not refer to the namespace: of a distributed database it lies on one node.
CREATE TABLE queues (
  namespace TEXT COLLATE "C" NOT NULL,
  -- 1: deliveries of pushes; 0: all other jobs.
  pushes INTEGER NOT NULL,
  due_at TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (namespace, pushes)
);
-- Its owner looks at rows of all tenants, this once.
ALTER TABLE operations NO FORCE ROW LEVEL SECURITY;
INSERT INTO queues (namespace, pushes, due_at)
SELECT namespace, CASE kind WHEN 'push' THEN 1 ELSE 0 END, min(due_at) FROM operations
WHERE state IN ('queued', 'processing') GROUP BY 1, 2;
ALTER TABLE operations FORCE ROW LEVEL SECURITY;

GRANT SELECT, INSERT, UPDATE ON queues TO recall_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON queues TO recall_system;
ALTER TABLE queues ENABLE ROW LEVEL SECURITY;
ALTER TABLE queues FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON queues TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
CREATE POLICY across ON queues TO recall_system USING (true) WITH CHECK (true);
