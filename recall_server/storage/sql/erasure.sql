-- any scope: an erasure takes all that it is asked for; its own scope is checked before.

-- query: begin_erasure
INSERT INTO erasures (namespace, id, kind, requested_by, requested_at, state, claims)
VALUES (:namespace, :id, :kind, :requested_by, :now, 'erasing', :claims)

-- query: settle_erasure
UPDATE erasures SET state = :state, claims = :claims, receipt = :receipt,
  secret_hash = :secret_hash, sealed = :sealed,
  erase_epoch = (SELECT erase_epoch FROM namespaces WHERE namespace = :namespace)
WHERE namespace = :namespace AND id = :id

-- query: begin_purge
UPDATE erasures SET state = 'purging'
WHERE namespace = :namespace AND id = :id AND state = 'logical'

-- query: close_container
INSERT INTO closed_containers (namespace, erasure_id, container)
VALUES (:namespace, :id, :container)

-- query: open_container
DELETE FROM closed_containers WHERE namespace = :namespace AND erasure_id = :id

-- query: end_erasing
UPDATE erasures SET state = 'logical'
WHERE namespace = :namespace AND id = :id AND state = 'erasing'

-- query: erasure_under_way
SELECT id FROM erasures
WHERE namespace = :namespace AND state = 'erasing' AND kind = 'namespace' LIMIT 1

-- query: keep_unpurged
-- For erasures without a final receipt: a row was changed, so files hold its old version.
UPDATE erasures SET left_behind = 'files' WHERE namespace = :namespace AND state <> 'done'

-- query: end_purge
UPDATE erasures SET state = 'done', purged_at = :now, left_behind = :left_behind,
  receipt = :receipt
WHERE namespace = :namespace AND id = :id AND state <> 'done'
RETURNING id

-- query: erasure
SELECT * FROM erasures WHERE namespace = :namespace AND id = :id

-- query: unpurged_erasures
-- across namespaces: one purge is of the whole database
-- Of each namespace the oldest, so that nobody's receipt waits for thousands of another's.
SELECT * FROM (
  SELECT e.*, ROW_NUMBER() OVER (PARTITION BY namespace ORDER BY requested_at, id) AS place
  FROM erasures e WHERE state IN ('logical', 'purging')) waiting
WHERE place <= :most OR id = :also
ORDER BY namespace, id

-- query: count_unpurged_erasures
-- across namespaces: one purge is of the whole database
SELECT count(*) AS erasures FROM erasures WHERE state IN ('logical', 'purging')

-- query: erasure_by_id
-- across namespaces: a secret opens a receipt when its token is revoked
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
-- across namespaces: the list of the operator
SELECT namespace, held_at, held_because FROM namespaces WHERE held_at IS NOT NULL
ORDER BY namespace

-- query: acknowledge_receipt
-- Only when no newer receipt will follow.
UPDATE erasures SET secret_hash = NULL, collected_at = :now
WHERE namespace = :namespace AND id = :id AND state = 'done'

-- query: names_of_namespaces
-- across namespaces: an operator scans all of them for what should be gone
SELECT namespace FROM namespaces ORDER BY namespace

-- query: add_erased
-- in: sqlite
INSERT INTO erased (namespace, digest, topic_digest, container_digest, agent_digest)
SELECT :namespace, e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3
FROM json_each(:erased) e WHERE TRUE
ON CONFLICT (namespace, digest, topic_digest, container_digest, agent_digest) DO NOTHING
-- in: postgres
INSERT INTO erased (namespace, digest, topic_digest, container_digest, agent_digest)
SELECT :namespace, e ->> 0, e ->> 1, e ->> 2, e ->> 3 FROM jsonb_array_elements(:erased) AS e
ON CONFLICT (namespace, digest, topic_digest, container_digest, agent_digest) DO NOTHING

-- query: erased_among
SELECT digest FROM erased WHERE namespace = :namespace AND digest IN (:digests...)
  AND (:all_topics OR topic_digest IN (:of_topics...))
  AND (:all_containers OR container_digest IN (:of_containers...))
  AND (:all_agents OR agent_digest IN (:of_agents...))

-- query: none_erased
SELECT 1 AS one WHERE NOT EXISTS (
  SELECT 1 FROM erased WHERE namespace = :namespace AND digest IN (:digests...)
    AND (:all_topics OR topic_digest IN (:of_topics...))
    AND (:all_containers OR container_digest IN (:of_containers...))
    AND (:all_agents OR agent_digest IN (:of_agents...))
)

-- query: allow_erased
DELETE FROM erased WHERE namespace = :namespace AND digest IN (:digests...) RETURNING digest

-- query: revoke_all_tokens
-- The rows stay with their hashes, so that a revoked token is recognized; see redact_tokens.
UPDATE api_tokens SET revoked_at = :now WHERE namespace = :namespace AND revoked_at IS NULL
RETURNING accessor

-- query: redact_tokens
UPDATE api_tokens SET label = '', agent_id = CASE WHEN agent_id IS NULL THEN NULL ELSE accessor END,
  topics = CASE WHEN topics IS NULL THEN topics ELSE :nothing END,
  containers = CASE WHEN containers IS NULL THEN containers ELSE :nothing END
WHERE namespace = :namespace

-- query: redact_token
UPDATE api_tokens
SET label = :label, agent_id = :agent_id, topics = :topics, containers = :containers
WHERE namespace = :namespace AND accessor = :accessor

-- query: redact_job
-- A worker may have read the words, so a running job begins again.
UPDATE operations SET payload = :payload,
  attempt = attempt + CASE WHEN state = 'processing' THEN 1 ELSE 0 END,
  state = CASE WHEN state = 'processing' THEN 'queued' ELSE state END
WHERE namespace = :namespace AND id = :id

-- query: end_jobs_of_runs
-- Jobs of a deleted task have nothing left to do, and their payloads may name somebody.
UPDATE operations
SET state = 'complete', finished_at = due_at, payload = :nothing, attempt = attempt + 1
WHERE namespace = :namespace AND state IN ('queued', 'processing')
  AND payload ->> 'run_id' IN (:ids...)

-- query: erase_details
DELETE FROM audit_details WHERE namespace = :namespace AND record_id IN (:ids...)

-- query: reset_namespace
-- tokens_not_before also ends tokens that have no row here, such as those of an identity provider.
UPDATE namespaces
SET documents = 0, words = 0, stored_bytes = 0, conflict_policy = NULL, tokens_not_before = :until
WHERE namespace = :namespace

-- query: next_erase_epoch
-- Caches that were filled before are not used any more.
UPDATE namespaces SET erase_epoch = erase_epoch + 1, index_version = index_version + 1
WHERE namespace = :namespace

-- query: episodes_to_erase
SELECT * FROM episodes
WHERE namespace = :namespace AND id > :after ORDER BY id LIMIT :limit

-- query: episodes_to_erase_by_id
SELECT * FROM episodes WHERE namespace = :namespace AND id IN (:ids...)

-- query: turns_of_episodes
SELECT * FROM turns
WHERE namespace = :namespace AND episode_id IN (:ids...) ORDER BY episode_id, position

-- query: erase_turns
DELETE FROM turns WHERE namespace = :namespace AND id IN (:ids...)

-- query: turn_by_id
SELECT id, episode_id, span_start, span_end FROM turns WHERE namespace = :namespace AND id = :id

-- query: memories_to_erase
SELECT * FROM memories
WHERE namespace = :namespace AND id > :after ORDER BY id LIMIT :limit

-- query: memories_to_erase_by_id
SELECT * FROM memories WHERE namespace = :namespace AND id IN (:ids...)

-- query: citations_of_episodes
-- Without the hint SQLite scans all citations: it assumes that a namespace has ten rows.
SELECT memory_id, position, episode_id, span_start, span_end
FROM citations INDEXED BY citations_by_episode
WHERE namespace = :namespace AND episode_id IN (:ids...)

-- query: standing_citations_of_episodes
SELECT c.memory_id, c.position, c.episode_id, c.span_start, c.span_end
FROM citations c INDEXED BY citations_by_episode
WHERE c.namespace = :namespace AND c.episode_id IN (:ids...)
  AND NOT EXISTS (SELECT 1 FROM memories m
    WHERE m.namespace = :namespace AND m.id = c.memory_id AND m.status = 'quarantined')

-- query: stored_bytes_of_runs
SELECT stored_bytes FROM runs WHERE namespace = :namespace AND id IN (:ids...)

-- query: stored_bytes_of_memories
-- any scope: an erasure takes all that it is asked for
SELECT COALESCE(sum(stored_bytes), 0) AS bytes FROM memories
WHERE namespace = :namespace AND id IN (:ids...)

-- query: unlink_memories
UPDATE memories SET superseded_by = NULL
WHERE namespace = :namespace AND superseded_by IN (:ids...)

-- query: redact_judgements_about
-- any scope: an erasure takes all that it is asked for
-- The reason of a judge is about the words of all sides of a dispute.
UPDATE decisions SET judge_reason = NULL
WHERE namespace = :namespace AND judge_reason IS NOT NULL AND question_id IN (
  SELECT question_id FROM decisions WHERE namespace = :namespace AND memory_id IN (:ids...))

-- query: redact_judgement
UPDATE decisions SET judge_reason = NULL
WHERE namespace = :namespace AND memory_id = :memory_id AND question_id = :question_id

-- query: fence_jobs
-- A worker may have read what is erased, so its job begins again from what is there now. A purge
-- reads no texts, and may be the job that erases.
UPDATE operations SET state = 'queued', attempt = attempt + 1, due_at = :now
WHERE namespace = :namespace AND state = 'processing' AND kind <> :purge

-- query: words_hidden_by
SELECT item_id, episode_id, span_start, span_end FROM forgotten
WHERE namespace = :namespace AND item_id IN (:ids...) ORDER BY item_id, episode_id, span_start
