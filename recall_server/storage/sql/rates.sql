-- query: add_calls
-- across namespaces: a replica adds the calls of all its tenants at once
-- Adding nothing asks how many there are. Erased namespaces are not written about again.
-- in: sqlite
INSERT INTO call_counts (namespace, accessor, minute, calls)
SELECT c.value ->> 0, c.value ->> 1, c.value ->> 2, c.value ->> 3
FROM json_each(:counted) c JOIN namespaces n ON n.namespace = c.value ->> 0
ORDER BY 1, 2, 3
ON CONFLICT (namespace, accessor, minute) DO UPDATE SET calls = calls + excluded.calls
RETURNING namespace, accessor, minute, calls
-- in: postgres
-- In one order, so that replicas do not wait for each other in a circle.
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
