-- query: record
INSERT INTO tool_call_records (
  namespace, id, at, door, operation, accessor, request_id, ids, counts, outcome, code,
  milliseconds, model, input_tokens, output_tokens, cost_usd
) VALUES (
  :namespace, :id, :at, :door, :operation, :accessor, :request_id, :ids, :counts, :outcome, :code,
  :milliseconds, :model, :input_tokens, :output_tokens, :cost_usd
)

-- query: all_records
-- across namespaces: the operator's view of the book
SELECT * FROM tool_call_records ORDER BY at DESC, id DESC LIMIT :limit

-- query: records
SELECT * FROM tool_call_records WHERE namespace = :namespace
ORDER BY at DESC, id DESC LIMIT :limit
