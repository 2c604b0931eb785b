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

-- query: spent_tokens
SELECT tokens FROM model_spend WHERE namespace = :namespace AND day = :day
