-- query: add_namespace
INSERT INTO namespaces (namespace, created_at) VALUES (:namespace, :now)
ON CONFLICT (namespace) DO NOTHING

-- query: conflict_policy
SELECT conflict_policy FROM namespaces WHERE namespace = :namespace

-- query: set_conflict_policy
UPDATE namespaces SET conflict_policy = :policy WHERE namespace = :namespace RETURNING namespace

-- query: add_token
INSERT INTO api_tokens (
  namespace, accessor, token_hash, label, created_at, scopes, topics, types, agent_id, parent,
  expires_at, uses_left, containers
) VALUES (
  :namespace, :accessor, :token_hash, :label, :created_at, :scopes, :topics, :types, :agent_id, :parent,
  :expires_at, :uses_left, :containers
)

-- query: token_by_hash
-- across namespaces: the token names the namespace
SELECT t.*, n.tokens_not_before AS of_namespace, s.tokens_not_before AS of_server
FROM api_tokens t JOIN namespaces n ON n.namespace = t.namespace
LEFT JOIN server s ON s.singleton = 1
WHERE t.token_hash = :token_hash

-- query: token_by_accessor
-- across namespaces: the operator names a token by its accessor alone
SELECT t.*, n.tokens_not_before AS of_namespace, s.tokens_not_before AS of_server
FROM api_tokens t JOIN namespaces n ON n.namespace = t.namespace
LEFT JOIN server s ON s.singleton = 1
WHERE t.accessor = :accessor

-- query: all_tokens
-- across namespaces: the operator's list
SELECT t.*, n.tokens_not_before AS of_namespace, s.tokens_not_before AS of_server
FROM api_tokens t JOIN namespaces n ON n.namespace = t.namespace
LEFT JOIN server s ON s.singleton = 1
ORDER BY t.namespace, t.created_at, t.accessor

-- query: token
SELECT t.*, n.tokens_not_before AS of_namespace
FROM api_tokens t JOIN namespaces n ON n.namespace = t.namespace
WHERE t.namespace = :namespace AND t.accessor = :accessor

-- query: tokens
SELECT t.*, n.tokens_not_before AS of_namespace
FROM api_tokens t JOIN namespaces n ON n.namespace = t.namespace
WHERE t.namespace = :namespace ORDER BY t.created_at, t.accessor

-- query: use_token
-- Returns no row if another call meanwhile has used it up or revoked it.
UPDATE api_tokens SET last_used_at = :now, uses_left = uses_left - 1
WHERE namespace = :namespace AND accessor = :accessor AND revoked_at IS NULL
  AND (uses_left IS NULL OR uses_left > 0)
RETURNING uses_left

-- query: refuse_token
UPDATE api_tokens SET refused_at = :now,
  expired_at = CASE WHEN :expired THEN COALESCE(expired_at, :now) ELSE expired_at END
WHERE namespace = :namespace AND accessor = :accessor

-- query: revoke_tokens
UPDATE api_tokens SET revoked_at = :now
WHERE namespace = :namespace AND accessor IN (:accessors...) AND revoked_at IS NULL
RETURNING accessor

-- query: revoked_token
SELECT 1 AS one FROM namespaces n {{token}} WHERE n.namespace = :namespace AND {{revoked}}

-- query: end_token
-- An earlier end stays. An end that has come is stored as expired_at, so that no clock revives it.
UPDATE api_tokens SET expires_at = :at,
  expired_at = CASE WHEN :now >= :at THEN :at ELSE expired_at END
WHERE namespace = :namespace AND accessor = :accessor
  AND (expires_at IS NULL OR expires_at > :at)

-- query: adopt_tokens
UPDATE api_tokens SET parent = :successor
WHERE namespace = :namespace AND parent = :accessor

-- query: entrance
-- across namespaces: a signed token is checked before the namespace is opened
-- Everything that a signed token is checked against, in one query: its namespace, its parent if we
-- issued it, and whether it was revoked by its name.
SELECT n.namespace, n.tokens_not_before AS of_namespace, s.tokens_not_before AS of_server,
  EXISTS (
    SELECT 1 FROM revoked_children r
    WHERE r.namespace = n.namespace AND r.parent = :accessor AND r.jti IN (:jti, :name)
  ) AS child_revoked,
  t.children_not_before AS of_parent, t.accessor, t.label, t.created_at, t.revoked_at, t.scopes, t.topics, t.types, t.agent_id,
  t.containers, t.parent, t.expires_at, t.expired_at, t.uses_left, t.last_used_at, t.refused_at
FROM namespaces n
LEFT JOIN api_tokens t ON t.namespace = n.namespace AND t.accessor = :accessor
LEFT JOIN server s ON s.singleton = 1
WHERE n.namespace = :owner

-- query: end_children
-- Signed children have no rows, so this ends all that were made up to now.
UPDATE api_tokens SET children_not_before = :now
WHERE namespace = :namespace AND accessor = :accessor

-- query: revoke_child
INSERT INTO revoked_children (namespace, parent, jti, expires_at)
VALUES (:namespace, :parent, :jti, :expires_at)
ON CONFLICT (namespace, parent, jti) DO NOTHING
RETURNING jti

-- query: forget_revoked_children
-- The children have expired.
DELETE FROM revoked_children WHERE namespace = :namespace AND expires_at <= :now

-- query: ended_tokens
SELECT accessor FROM api_tokens t
WHERE t.namespace = :namespace AND (t.revoked_at < :before OR t.expires_at < :before)
  AND NOT EXISTS (
    SELECT 1 FROM api_tokens c WHERE c.namespace = t.namespace AND c.parent = t.accessor)

-- query: remove_tokens
DELETE FROM api_tokens WHERE namespace = :namespace AND accessor IN (:accessors...)

-- query: set_tokens_not_before
UPDATE namespaces SET tokens_not_before = :at WHERE namespace = :namespace RETURNING namespace

-- query: namespace_usage
-- across namespaces: the operator sees what each keeps
SELECT n.namespace, n.stored_bytes, n.documents, COALESCE(h.seq - h.cut_seq, 0) AS records
FROM namespaces n LEFT JOIN audit_heads h ON h.namespace = n.namespace
ORDER BY n.stored_bytes DESC, n.namespace

-- query: all_namespaces
-- across namespaces: the operator's counts
SELECT count(*) AS namespaces, sum(documents) AS documents FROM namespaces

-- query: first_namespace
-- across namespaces: since when anything was kept
SELECT min(created_at) AS at FROM namespaces

-- query: recent_bytes
-- any scope: what fills the disk is the operator's to see
SELECT COALESCE(sum(stored_bytes), 0) AS bytes,
  COALESCE(sum(CASE WHEN recorded_at >= :since THEN stored_bytes ELSE 0 END), 0) AS recent
FROM episodes WHERE namespace = :namespace

-- query: tokens_at_work
-- any scope: what a token began ends with it, whatever it is about
SELECT accessor FROM runs WHERE namespace = :namespace AND accessor IS NOT NULL
  AND state IN ('submitted', 'working', 'input-required')
UNION
SELECT accessor FROM push_configs WHERE namespace = :namespace AND accessor IS NOT NULL
UNION
SELECT accessor FROM webhooks WHERE namespace = :namespace AND accessor IS NOT NULL
UNION
SELECT accessor FROM operations WHERE CASE kind WHEN 'push' THEN 1 ELSE 0 END = 0
  AND namespace = :namespace AND state IN ('queued', 'processing') AND accessor IS NOT NULL
UNION
SELECT accessor FROM operations WHERE namespace = :namespace AND accessor IS NOT NULL
  AND error_code = 'MODEL_KEY_REJECTED' AND state IN ('queued', 'failed')
UNION
SELECT accessor FROM operations WHERE namespace = :namespace AND accessor IS NOT NULL
  AND error_code = 'MODEL_KEY_REJECTED' AND state = 'complete'
