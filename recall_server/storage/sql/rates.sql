-- query: add_calls
-- across namespaces: a replica adds the calls of all its tenants at once
-- Adding 0 reads the counts. Nothing is written for erased namespaces.
-- in: sqlite
INSERT INTO call_counts (namespace, accessor, minute, calls)
SELECT c.value ->> 0, c.value ->> 1, c.value ->> 2, c.value ->> 3
FROM json_each(:counted) c JOIN namespaces n ON n.namespace = c.value ->> 0
ORDER BY 1, 2, 3
ON CONFLICT (namespace, accessor, minute) DO UPDATE SET calls = calls + excluded.calls
RETURNING namespace, accessor, minute, calls
-- in: postgres
-- In a fixed order, so that replicas do not deadlock.
INSERT INTO call_counts (namespace, accessor, minute, calls)
SELECT c.value ->> 0, c.value ->> 1, (c.value ->> 2)::bigint, (c.value ->> 3)::bigint
FROM jsonb_array_elements(:counted) c JOIN namespaces n ON n.namespace = c.value ->> 0
ORDER BY 1, 2, 3
ON CONFLICT (namespace, accessor, minute)
DO UPDATE SET calls = call_counts.calls + excluded.calls
RETURNING namespace, accessor, minute, calls

-- query: forget_calls
-- across namespaces: old minutes are removed of all of them
DELETE FROM call_counts WHERE minute < :minute
