-- The token that began something, which ends with it: its accessor, of a JWT with its id.
ALTER TABLE push_configs ADD COLUMN accessor TEXT;
-- The end of a JWT, which no table holds.
ALTER TABLE push_configs ADD COLUMN token_ends_at TEXT;
UPDATE push_configs SET accessor = (
  SELECT r.accessor FROM runs r WHERE r.namespace = push_configs.namespace AND r.id = push_configs.run_id
);
ALTER TABLE operations ADD COLUMN accessor TEXT;

-- Deliveries of pushes are looked for apart from all other jobs.
DROP INDEX operations_due;
CREATE INDEX operations_due
  ON operations ((CASE kind WHEN 'push' THEN 1 ELSE 0 END), namespace, due_at)
  WHERE state IN ('queued', 'processing');
