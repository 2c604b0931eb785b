-- query: bind_key
-- across namespaces: the key is the server's
INSERT INTO server (singleton, kid, public_key, created_at) VALUES (1, :kid, :public_key, :now)
ON CONFLICT (singleton) DO NOTHING

-- query: bound_key
-- across namespaces: the key is the server's
SELECT kid FROM server WHERE singleton = 1

-- query: server_not_before
-- across namespaces: it is for the tokens of all
SELECT tokens_not_before FROM server WHERE singleton = 1

-- query: set_server_not_before
-- across namespaces: it is for the tokens of all
UPDATE server SET tokens_not_before = :at WHERE singleton = 1

-- query: purged_at
-- across namespaces: one purge is of the whole database
SELECT purged_at FROM server WHERE singleton = 1

-- query: begin_purging
-- across namespaces: as above
UPDATE server SET purged_at = :now
WHERE singleton = 1 AND (purged_at IS NULL OR purged_at <= :before)
RETURNING singleton

-- query: set_purged_at
-- across namespaces: as above
UPDATE server SET purged_at = :at WHERE singleton = 1

-- query: note_rejected_key
-- across namespaces: the key is the server's
INSERT INTO rejected_keys (role, status, since) VALUES (:role, :status, :now)
ON CONFLICT (role) DO UPDATE SET status = excluded.status

-- query: forget_rejected_key
-- across namespaces: the key is the server's
DELETE FROM rejected_keys WHERE role = :role

-- query: note_failing_work
-- across namespaces: it is the server's
INSERT INTO failing_work (work, error, failures, at) VALUES (:work, :error, :failures, :at)
ON CONFLICT (work) DO UPDATE
SET error = excluded.error, failures = excluded.failures, at = excluded.at

-- query: failing_work
-- across namespaces: it is the server's
SELECT work, error, failures, at FROM failing_work ORDER BY work

-- query: rejected_keys
-- across namespaces: the key is the server's
SELECT role, status, since FROM rejected_keys ORDER BY role
