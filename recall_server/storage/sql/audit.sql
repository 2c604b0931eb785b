-- fragment: counted_by_id
WITH counted AS MATERIALIZED (
  SELECT :namespace AS counted_namespace, value ->> 0 AS counted_id, value ->> 1 AS times,
    value ->> 2 AS last
  FROM json_each(:counts)
)

-- fragment: more_accesses
access_count = access_count + times,
  last_accessed_at = max(COALESCE(last_accessed_at, ''), last)
FROM counted
WHERE namespace = counted_namespace AND id = counted_id

-- fragment: asked_records
SELECT r.*, d.salt, d.details FROM tool_call_records r
LEFT JOIN audit_details d ON d.namespace = r.namespace AND d.record_id = r.id
WHERE r.namespace = :namespace AND r.seq < :before
  AND (:operation = '' OR r.operation = :operation)
  AND (:accessor = '' OR r.accessor = :accessor)
  AND (:outcome = '' OR r.outcome = :outcome)
  AND r.at >= :since AND r.at < :until

-- query: audit_head
SELECT seq, digest FROM audit_heads WHERE namespace = :namespace

-- query: lock_audit_head
-- Records of one namespace are written one after the other; other namespaces do not wait.
SELECT seq, digest FROM audit_heads WHERE namespace = :namespace FOR NO KEY UPDATE

-- query: locked_audit_head
-- Runs after lock_audit_head, so that it sees every revocation in the audit log. A token with an
-- expired_at (rotated without overlap, say) has ended, whatever the clock says.
SELECT h.seq, h.digest, COALESCE({{revoked}} OR t.expired_at IS NOT NULL, FALSE) AS ended
FROM audit_heads h JOIN namespaces n ON n.namespace = h.namespace {{token}}
WHERE h.namespace = :namespace

-- query: begin_audit
INSERT INTO audit_heads (namespace, seq, digest)
SELECT namespace, :seq, :digest FROM namespaces WHERE namespace = :namespace
ON CONFLICT (namespace) DO NOTHING

-- query: move_audit_head
UPDATE audit_heads SET seq = :seq, digest = :digest WHERE namespace = :namespace

-- query: audit_cut
SELECT cut_seq, cut_statement FROM audit_heads WHERE namespace = :namespace

-- query: move_audit_cut
UPDATE audit_heads SET cut_seq = :seq, cut_statement = :statement
WHERE namespace = :namespace AND cut_seq = :before
RETURNING cut_seq

-- query: cut_records
SELECT id FROM tool_call_records WHERE namespace = :namespace AND seq <= (
  SELECT cut_seq FROM audit_heads WHERE namespace = :namespace
) ORDER BY seq LIMIT :limit

-- query: remove_records
-- The database allows to delete records that were cut, and no others.
DELETE FROM tool_call_records WHERE namespace = :namespace AND id IN (:ids...)

-- query: audits_to_cut
-- across namespaces: retention is of the whole server
-- Looks only at the oldest record of each log.
SELECT h.namespace FROM audit_heads h
WHERE h.namespace > :after AND EXISTS (
  SELECT 1 FROM tool_call_records r WHERE r.namespace = h.namespace AND r.seq <= h.cut_seq + 1
    AND (r.seq <= h.cut_seq OR r.at < :before)
) ORDER BY h.namespace LIMIT :limit

-- query: mark_checkpoint
UPDATE audit_heads SET checkpoint_seq = :seq WHERE namespace = :namespace

-- query: grown_audits
-- across namespaces: the server signs checkpoints of every audit log
SELECT namespace FROM audit_heads WHERE seq <> checkpoint_seq AND namespace > :after
ORDER BY namespace LIMIT :limit

-- query: all_audits
-- across namespaces: the operator signs checkpoints of every audit log, or verifies it
SELECT namespace FROM audit_heads WHERE namespace > :after ORDER BY namespace LIMIT :limit

-- query: record
INSERT INTO tool_call_records (
  namespace, id, at, door, operation, accessor, request_id, ids, counts, outcome, code,
  milliseconds, model, input_tokens, output_tokens, cost_usd, seq, prev, digest, mac, detail_digest,
  inputs_hash
) VALUES (
  :namespace, :id, :at, :door, :operation, :accessor, :request_id, :ids, :counts, :outcome, :code,
  :milliseconds, :model, :input_tokens, :output_tokens, :cost_usd, :seq, :prev, :digest, :mac,
  :detail_digest, :inputs_hash
)

-- query: written_records
SELECT id FROM tool_call_records WHERE namespace = :namespace AND id IN (:ids...)

-- query: record_details
INSERT INTO audit_details (namespace, record_id, salt, details)
VALUES (:namespace, :record_id, :salt, :details)

-- query: all_records
-- across namespaces: the operator's view of the audit log
SELECT r.*, NULL AS salt, NULL AS details FROM tool_call_records r
ORDER BY at DESC, id DESC LIMIT :limit

-- query: records
SELECT r.*, NULL AS salt, NULL AS details FROM tool_call_records r
WHERE namespace = :namespace ORDER BY at DESC, id DESC LIMIT :limit

-- query: chained_records
SELECT r.*, d.salt, d.details FROM tool_call_records r
LEFT JOIN audit_details d ON d.namespace = r.namespace AND d.record_id = r.id
WHERE r.namespace = :namespace AND r.seq > :after ORDER BY r.seq LIMIT :limit

-- query: unchained_records
SELECT count(*) AS records FROM tool_call_records WHERE namespace = :namespace AND seq IS NULL

-- query: recent_records
SELECT count(*) AS records FROM tool_call_records WHERE namespace = :namespace AND at >= :since

-- query: record_page
-- in: sqlite
{{asked_records}}
  AND (:touching = '' OR EXISTS (SELECT 1 FROM json_each(r.ids) WHERE value = :touching))
ORDER BY r.seq DESC LIMIT :limit
-- in: postgres
{{asked_records}}
  AND (:touching = '' OR r.ids ? :touching)
ORDER BY r.seq DESC LIMIT :limit

-- query: count_accesses_of_memories
-- any scope: of rows that a caller was shown
-- in: sqlite
-- The namespace comes from the counts, so that each row is looked up by its key: without
-- statistics SQLite would scan all rows of the namespace.
{{counted_by_id}}
UPDATE memories SET {{more_accesses}}
-- in: postgres
-- Rows that another transaction has locked are skipped and lose these accesses, so that there is no
-- deadlock.
UPDATE memories SET access_count = access_count + times,
  last_accessed_at = GREATEST(last_accessed_at, last)
FROM (
  SELECT known.id AS counted_id, (c.value ->> 1)::bigint AS times,
    (c.value ->> 2)::timestamptz AS last
  FROM jsonb_array_elements(:counts) c CROSS JOIN LATERAL (
    SELECT id FROM memories WHERE namespace = :namespace AND id = c.value ->> 0
    LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
  ) AS known
) AS counted
WHERE namespace = :namespace AND id = counted_id

-- query: count_accesses_of_turns
-- any scope: of rows that a caller was shown
-- in: sqlite
-- The namespace comes from the counts, so that each row is looked up by its key: without
-- statistics SQLite would scan all rows of the namespace.
{{counted_by_id}}
UPDATE turns SET {{more_accesses}}
-- in: postgres
-- Rows that another transaction has locked are skipped and lose these accesses, so that there is no
-- deadlock.
UPDATE turns SET access_count = access_count + times,
  last_accessed_at = GREATEST(last_accessed_at, last)
FROM (
  SELECT known.id AS counted_id, (c.value ->> 1)::bigint AS times,
    (c.value ->> 2)::timestamptz AS last
  FROM jsonb_array_elements(:counts) c CROSS JOIN LATERAL (
    SELECT id FROM turns WHERE namespace = :namespace AND id = c.value ->> 0
    LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
  ) AS known
) AS counted
WHERE namespace = :namespace AND id = counted_id
