-- query: begin_erasure
INSERT INTO erasures (namespace, id, kind, requested_by, requested_at, state, claims)
VALUES (:namespace, :id, :kind, :requested_by, :now, 'erasing', :claims)

-- query: settle_erasure
UPDATE erasures SET state = :state, claims = :claims, receipt = :receipt,
  secret_hash = :secret_hash, sealed = :sealed
WHERE namespace = :namespace AND id = :id

-- query: begin_purge
UPDATE erasures SET state = 'purging'
WHERE namespace = :namespace AND id = :id AND state = 'logical'

-- query: cleared_erasure
UPDATE erasures SET state = 'logical'
WHERE namespace = :namespace AND id = :id AND state = 'erasing'

-- query: erasure_under_way
SELECT id FROM erasures
WHERE namespace = :namespace AND state = 'erasing' AND kind = 'namespace' LIMIT 1

-- query: end_purge
UPDATE erasures SET state = 'done', purged_at = :now, left_behind = :left_behind,
  receipt = :receipt
WHERE namespace = :namespace AND id = :id AND state <> 'done'
RETURNING id

-- query: erasure
SELECT * FROM erasures WHERE namespace = :namespace AND id = :id

-- query: unpurged_erasures
-- across namespaces: one purge is of the whole database
SELECT * FROM erasures WHERE state IN ('logical', 'purging') ORDER BY namespace, id

-- query: erasure_by_id
-- across namespaces: whoever has the secret has no token any more
SELECT * FROM erasures WHERE id = :id

-- query: known_erasures
-- across namespaces: whether the whole database is an older one
SELECT id FROM erasures WHERE id IN (:ids...)

-- query: hold
SELECT namespace, held_at, held_because FROM namespaces
WHERE namespace = :namespace AND held_at IS NOT NULL

-- query: set_hold
UPDATE namespaces SET held_at = :at, held_because = :because WHERE namespace = :namespace
RETURNING namespace

-- query: holds
-- across namespaces: the operator looks at all of them
SELECT namespace, held_at, held_because FROM namespaces WHERE held_at IS NOT NULL
ORDER BY namespace

-- query: collect_receipt
-- Once, and only when there is nothing more to be said.
UPDATE erasures SET secret_hash = NULL, collected_at = :now
WHERE namespace = :namespace AND id = :id AND secret_hash = :secret_hash AND state = 'done'
RETURNING id

-- query: names_of_namespaces
-- across namespaces: an operator searches all of them for what should be gone
SELECT namespace FROM namespaces ORDER BY namespace

-- query: add_erased
-- in: sqlite
INSERT INTO erased (namespace, digest)
SELECT :namespace, value FROM json_each(:digests) WHERE TRUE
ON CONFLICT (namespace, digest) DO NOTHING
-- in: postgres
INSERT INTO erased (namespace, digest) SELECT :namespace, unnest(CAST(:digests AS text[]))
ON CONFLICT (namespace, digest) DO NOTHING

-- query: erased_among
SELECT digest FROM erased WHERE namespace = :namespace AND digest IN (:digests...)

-- query: none_erased
SELECT 1 AS one WHERE NOT EXISTS (
  SELECT 1 FROM erased WHERE namespace = :namespace AND digest IN (:digests...)
)

-- query: allow_erased
DELETE FROM erased WHERE namespace = :namespace AND digest IN (:digests...) RETURNING digest

-- query: erasure_counts
-- What a namespace holds, before it is erased.
SELECT
  (SELECT count(*) FROM runs WHERE namespace = :namespace) AS runs,
  (SELECT count(*) FROM run_events WHERE namespace = :namespace) AS run_events,
  (SELECT count(*) FROM push_configs WHERE namespace = :namespace) AS push_configs,
  (SELECT count(*) FROM operations WHERE namespace = :namespace) AS operations,
  (SELECT count(*) FROM decisions WHERE namespace = :namespace) AS decisions,
  (SELECT count(*) FROM citations WHERE namespace = :namespace) AS citations,
  (SELECT count(*) FROM memories WHERE namespace = :namespace) AS memories,
  (SELECT count(*) FROM memory_counts WHERE namespace = :namespace) AS memory_counts,
  (SELECT count(*) FROM quarantine WHERE namespace = :namespace) AS quarantine,
  (SELECT count(*) FROM turns WHERE namespace = :namespace) AS turns,
  (SELECT count(*) FROM episodes WHERE namespace = :namespace) AS episodes,
  (SELECT count(*) FROM embeddings WHERE namespace = :namespace) AS embeddings,
  (SELECT count(*) FROM documents WHERE namespace = :namespace) AS documents,
  (SELECT count(*) FROM postings WHERE namespace = :namespace) AS postings,
  (SELECT count(*) FROM terms WHERE namespace = :namespace) AS terms,
  (SELECT count(*) FROM audit_details WHERE namespace = :namespace) AS audit_details,
  (SELECT count(*) FROM call_counts WHERE namespace = :namespace) AS call_counts,
  (SELECT count(*) FROM revoked_children WHERE namespace = :namespace) AS revoked_children,
  (SELECT count(*) FROM model_spend WHERE namespace = :namespace) AS model_spend

-- query: erase_all_runs
DELETE FROM runs WHERE namespace = :namespace

-- query: erase_all_run_events
DELETE FROM run_events WHERE namespace = :namespace

-- query: erase_all_push_configs
DELETE FROM push_configs WHERE namespace = :namespace

-- query: erase_all_operations
DELETE FROM operations WHERE namespace = :namespace

-- query: erase_other_operations
DELETE FROM operations WHERE namespace = :namespace AND kind <> :kind

-- query: erase_all_decisions
DELETE FROM decisions WHERE namespace = :namespace

-- query: erase_all_citations
DELETE FROM citations WHERE namespace = :namespace

-- query: erase_all_memories
DELETE FROM memories WHERE namespace = :namespace

-- query: erase_all_memory_counts
DELETE FROM memory_counts WHERE namespace = :namespace

-- query: erase_all_quarantine
DELETE FROM quarantine WHERE namespace = :namespace

-- query: erase_all_call_counts
DELETE FROM call_counts WHERE namespace = :namespace

-- query: erase_all_revoked_children
DELETE FROM revoked_children WHERE namespace = :namespace

-- query: erase_all_model_spend
DELETE FROM model_spend WHERE namespace = :namespace

-- query: erase_all_audit_details
DELETE FROM audit_details WHERE namespace = :namespace

-- query: erase_all_turns
DELETE FROM turns WHERE namespace = :namespace

-- query: erase_all_episodes
DELETE FROM episodes WHERE namespace = :namespace

-- query: erase_all_embeddings
DELETE FROM embeddings WHERE namespace = :namespace

-- query: erase_all_documents
DELETE FROM documents WHERE namespace = :namespace

-- query: erase_all_postings
DELETE FROM postings WHERE namespace = :namespace

-- query: erase_all_terms
DELETE FROM terms WHERE namespace = :namespace

-- query: erase_some_embeddings
-- in: sqlite
DELETE FROM embeddings WHERE namespace = :namespace AND (model, item_id) IN (
  SELECT model, item_id FROM embeddings WHERE namespace = :namespace LIMIT :limit
) RETURNING 1 AS one
-- in: postgres
DELETE FROM embeddings WHERE namespace = :namespace AND ctid = ANY(ARRAY(
  SELECT ctid FROM embeddings WHERE namespace = :namespace LIMIT :limit
)) RETURNING 1 AS one

-- query: erase_some_documents
-- in: sqlite
DELETE FROM documents WHERE namespace = :namespace AND (slot) IN (
  SELECT slot FROM documents WHERE namespace = :namespace LIMIT :limit
) RETURNING 1 AS one
-- in: postgres
DELETE FROM documents WHERE namespace = :namespace AND ctid = ANY(ARRAY(
  SELECT ctid FROM documents WHERE namespace = :namespace LIMIT :limit
)) RETURNING 1 AS one

-- query: erase_some_postings
-- in: sqlite
DELETE FROM postings WHERE namespace = :namespace AND (term, slot) IN (
  SELECT term, slot FROM postings WHERE namespace = :namespace LIMIT :limit
) RETURNING 1 AS one
-- in: postgres
DELETE FROM postings WHERE namespace = :namespace AND ctid = ANY(ARRAY(
  SELECT ctid FROM postings WHERE namespace = :namespace LIMIT :limit
)) RETURNING 1 AS one

-- query: erase_some_terms
-- in: sqlite
DELETE FROM terms WHERE namespace = :namespace AND (term) IN (
  SELECT term FROM terms WHERE namespace = :namespace LIMIT :limit
) RETURNING 1 AS one
-- in: postgres
DELETE FROM terms WHERE namespace = :namespace AND ctid = ANY(ARRAY(
  SELECT ctid FROM terms WHERE namespace = :namespace LIMIT :limit
)) RETURNING 1 AS one

-- query: erase_some_decisions
-- in: sqlite
DELETE FROM decisions WHERE namespace = :namespace AND (memory_id, question_id) IN (
  SELECT memory_id, question_id FROM decisions WHERE namespace = :namespace LIMIT :limit
) RETURNING 1 AS one
-- in: postgres
DELETE FROM decisions WHERE namespace = :namespace AND ctid = ANY(ARRAY(
  SELECT ctid FROM decisions WHERE namespace = :namespace LIMIT :limit
)) RETURNING 1 AS one

-- query: erase_some_citations
-- in: sqlite
DELETE FROM citations WHERE namespace = :namespace AND (memory_id, position) IN (
  SELECT memory_id, position FROM citations WHERE namespace = :namespace LIMIT :limit
) RETURNING 1 AS one
-- in: postgres
DELETE FROM citations WHERE namespace = :namespace AND ctid = ANY(ARRAY(
  SELECT ctid FROM citations WHERE namespace = :namespace LIMIT :limit
)) RETURNING 1 AS one

-- query: erase_some_quarantine
-- in: sqlite
DELETE FROM quarantine WHERE namespace = :namespace AND (item_id) IN (
  SELECT item_id FROM quarantine WHERE namespace = :namespace LIMIT :limit
) RETURNING 1 AS one
-- in: postgres
DELETE FROM quarantine WHERE namespace = :namespace AND ctid = ANY(ARRAY(
  SELECT ctid FROM quarantine WHERE namespace = :namespace LIMIT :limit
)) RETURNING 1 AS one

-- query: erase_some_audit_details
-- in: sqlite
DELETE FROM audit_details WHERE namespace = :namespace AND (record_id) IN (
  SELECT record_id FROM audit_details WHERE namespace = :namespace LIMIT :limit
) RETURNING 1 AS one
-- in: postgres
DELETE FROM audit_details WHERE namespace = :namespace AND ctid = ANY(ARRAY(
  SELECT ctid FROM audit_details WHERE namespace = :namespace LIMIT :limit
)) RETURNING 1 AS one

-- query: erase_turns_of
DELETE FROM turns WHERE namespace = :namespace AND episode_id IN (:ids...)

-- query: erase_quarantine_of
DELETE FROM quarantine WHERE namespace = :namespace AND episode_id IN (:ids...)

-- query: erase_episodes
DELETE FROM episodes WHERE namespace = :namespace AND id IN (:ids...)

-- query: revoke_all_tokens
-- Labels are words of the tenant's; the hash stays, so that a revoked token is known as one.
UPDATE api_tokens SET revoked_at = :now WHERE namespace = :namespace AND revoked_at IS NULL
RETURNING accessor

-- query: unlabel_tokens
UPDATE api_tokens SET label = '' WHERE namespace = :namespace

-- query: reset_namespace
-- Tokens that are not ours to revoke, such as those of an identity provider, end here too.
UPDATE namespaces
SET documents = 0, words = 0, stored_bytes = 0, conflict_policy = NULL, tokens_not_before = :until
WHERE namespace = :namespace

-- query: next_erase_epoch
-- What caches hold of the vectors is told apart by it.
UPDATE namespaces SET erase_epoch = erase_epoch + 1, index_version = index_version + 1
WHERE namespace = :namespace RETURNING erase_epoch

-- query: episodes_to_erase
SELECT id, text, topic, session_id, agent_id, source, container FROM episodes
WHERE namespace = :namespace AND id > :after ORDER BY id LIMIT :limit

-- query: episodes_to_erase_by_id
SELECT id, text, topic, session_id, agent_id, source, container FROM episodes
WHERE namespace = :namespace AND id IN (:ids...)

-- query: turns_of_episodes
SELECT id, episode_id, position, span_start, span_end, speaker, session, state FROM turns
WHERE namespace = :namespace AND episode_id IN (:ids...) ORDER BY episode_id, position

-- query: turn_by_id
SELECT id, episode_id, span_start, span_end FROM turns WHERE namespace = :namespace AND id = :id

-- query: memories_to_erase
SELECT id, text, topic, container, entity, attribute, value, status FROM memories
WHERE namespace = :namespace AND id > :after ORDER BY id LIMIT :limit

-- query: memories_to_erase_by_id
SELECT id, text, topic, container, entity, attribute, value, status FROM memories
WHERE namespace = :namespace AND id IN (:ids...)

-- query: citations_of_episodes
-- in: sqlite
-- By itself it would go through all citations: it thinks that a namespace has ten.
SELECT memory_id, position, episode_id, span_start, span_end
FROM citations INDEXED BY citations_by_episode
WHERE namespace = :namespace AND episode_id IN (:ids...)
-- in: postgres
SELECT memory_id, position, episode_id, span_start, span_end FROM citations
WHERE namespace = :namespace AND episode_id IN (:ids...)

-- query: erase_runs
DELETE FROM runs WHERE namespace = :namespace AND id IN (:ids...) RETURNING stored_bytes

-- query: erase_run_events
DELETE FROM run_events WHERE namespace = :namespace AND run_id IN (:ids...)

-- query: erase_push_configs
DELETE FROM push_configs WHERE namespace = :namespace AND run_id IN (:ids...)

-- query: erase_decisions
DELETE FROM decisions WHERE namespace = :namespace AND memory_id IN (:ids...)

-- query: erase_citations
DELETE FROM citations WHERE namespace = :namespace AND memory_id IN (:ids...)

-- query: unlink_memories
UPDATE memories SET superseded_by = NULL
WHERE namespace = :namespace AND superseded_by IN (:ids...)

-- query: erase_memories
DELETE FROM memories WHERE namespace = :namespace AND id IN (:ids...)

-- query: erase_documents
-- They are found no more; whoever holds them in memory is told by the epoch.
DELETE FROM documents WHERE namespace = :namespace AND item_id IN (:ids...)

-- query: erase_embeddings
DELETE FROM embeddings WHERE namespace = :namespace AND item_id IN (:ids...)

-- query: strike_turn
UPDATE turns SET state = 'hidden', speaker = :speaker, session = :session
WHERE namespace = :namespace AND id = :id

-- query: strike_episode
-- Its key becomes its id, as if none had been given: an old request does not find it again, and
-- no digest of the old words is left.
UPDATE episodes SET text = :text, content_hash = :content_hash, idempotency_key = id,
  request_digest = '', topic = :topic, session_id = :session_id, agent_id = :agent_id,
  source = :source, container = :container
WHERE namespace = :namespace AND id = :id

-- query: fence_jobs
-- Whoever holds a job has read what is gone: it is begun again from what is there now. A purge reads
-- nothing, and may be what is erasing.
UPDATE operations SET state = 'queued', attempt = attempt + 1, due_at = :now
WHERE namespace = :namespace AND state = 'processing' AND kind <> :purge
