-- query: take_quota
-- No row where there is not as much left. The sums are kept, so that nothing need be counted.
UPDATE namespaces SET stored_bytes = stored_bytes + :bytes
WHERE namespace = :namespace AND stored_bytes + :bytes + documents * :item_bytes <= :bytes_max
RETURNING namespace

-- query: return_quota
UPDATE namespaces SET stored_bytes = stored_bytes - :bytes WHERE namespace = :namespace

-- query: reserve_tokens
-- No row where the day has not as many left. Another call at the same time waits for the row.
INSERT INTO model_spend (namespace, day, tokens)
SELECT :namespace, :day, :tokens WHERE :tokens <= :tokens_max
ON CONFLICT (namespace, day) DO UPDATE SET tokens = model_spend.tokens + excluded.tokens
WHERE model_spend.tokens + excluded.tokens <= :tokens_max
RETURNING tokens

-- query: settle_tokens
-- By how much a call took more, or less, than was reserved for it.
UPDATE model_spend SET tokens = tokens + :more WHERE namespace = :namespace AND day = :day

-- query: forget_spend
DELETE FROM model_spend WHERE namespace = :namespace AND day < :day

-- query: spent_tokens
SELECT tokens FROM model_spend WHERE namespace = :namespace AND day = :day
