-- query: add_namespace
INSERT INTO namespaces (namespace, created_at) VALUES (:namespace, :now)
ON CONFLICT (namespace) DO NOTHING

-- query: conflict_policy
SELECT conflict_policy FROM namespaces WHERE namespace = :namespace

-- query: set_conflict_policy
UPDATE namespaces SET conflict_policy = :policy WHERE namespace = :namespace RETURNING namespace

-- query: add_token
INSERT INTO api_tokens (namespace, accessor, token_hash, label, created_at)
VALUES (:namespace, :accessor, :token_hash, :label, :now)

-- query: token_by_hash
-- across namespaces: the token is what tells the namespace
SELECT namespace, accessor, label, created_at, revoked_at FROM api_tokens
WHERE token_hash = :token_hash

-- query: token_by_accessor
-- across namespaces: the operator names a token by its accessor alone
SELECT namespace, accessor, label, created_at, revoked_at FROM api_tokens
WHERE accessor = :accessor

-- query: all_tokens
-- across namespaces: the operator's list
SELECT namespace, accessor, label, created_at, revoked_at FROM api_tokens
ORDER BY namespace, created_at, accessor

-- query: tokens
SELECT namespace, accessor, label, created_at, revoked_at FROM api_tokens
WHERE namespace = :namespace ORDER BY created_at, accessor

-- query: revoke_token
UPDATE api_tokens SET revoked_at = :now
WHERE namespace = :namespace AND accessor = :accessor AND revoked_at IS NULL
RETURNING accessor

-- query: all_namespaces
-- across namespaces: the operator's counts
SELECT count(*) AS namespaces, sum(documents) AS documents FROM namespaces
