-- Each transaction counts the memories that it changes, at its end.
DROP TRIGGER memories_are_counted;
DROP TRIGGER memories_are_counted_again;
DROP TRIGGER memories_are_counted_no_more;
DROP TRIGGER memories_gone_are_not_counted;

-- Where a worker looks for jobs: none of this namespace is due earlier. It may say too early, never too
-- late.
CREATE TABLE queues (
  namespace TEXT NOT NULL,
  -- 1: deliveries of pushes; 0: all other jobs.
  pushes INTEGER NOT NULL,
  due_at TEXT NOT NULL,
  PRIMARY KEY (namespace, pushes)
) WITHOUT ROWID;
INSERT INTO queues (namespace, pushes, due_at)
SELECT namespace, CASE kind WHEN 'push' THEN 1 ELSE 0 END, min(due_at) FROM operations
WHERE state IN ('queued', 'processing') GROUP BY 1, 2;
