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

-- query: take_quota
-- Returns no row if the quota has not enough left. The sums are stored, so nothing need be counted.
UPDATE namespaces SET stored_bytes = stored_bytes + :bytes
WHERE namespace = :namespace AND stored_bytes + :bytes + documents * :item_bytes <= :bytes_max
RETURNING namespace

-- query: return_quota
UPDATE namespaces SET stored_bytes = stored_bytes - :bytes WHERE namespace = :namespace

-- query: reserve_tokens
-- Returns no row if the day has not enough left. Concurrent calls wait for the row.
INSERT INTO model_spend (namespace, day, tokens)
SELECT :namespace, :day, :tokens WHERE :tokens <= :tokens_max
ON CONFLICT (namespace, day) DO UPDATE SET tokens = model_spend.tokens + excluded.tokens
WHERE model_spend.tokens + excluded.tokens <= :tokens_max
RETURNING tokens

-- query: settle_tokens
-- Adds the difference between what a call took and what was reserved for it.
UPDATE model_spend SET tokens = tokens + :more WHERE namespace = :namespace AND day = :day

-- query: forget_spend
DELETE FROM model_spend WHERE namespace = :namespace AND day < :day
