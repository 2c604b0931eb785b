"""The columns that the table registry does not name, as nothing in the product asks for them. A new
column belongs to a table of the registry or to one of these lists, or the tests of the schema fail.
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Columns of text that only this server fills: ids, states, codes, digests, keys, encrypted values,
# names of operations and models, and pseudonyms of users.
OURS = frozenset(
    _words(
        "namespace id run_id item_id episode_id memory_id question_id record_id erasure_id"
        " turn_id job_id request_id superseded_by parent jti accessor requested_by decided_by"
        " claimed_by kind type layer status state choice reasons conflict_policy kept_as model"
        " code error_code door operation outcome scopes types token_hash secret secret_hash"
        " receipt claims left_behind sealed salt digest prev mac detail_digest topic_digest"
        " container_digest agent_digest vector ids counts content_hash request_digest"
        " change_id reason dropped side from_id to_id made_by kinds cut_statement inputs_hash"
        " found release"
    )
)

# Columns that stay on this server: no export has them, and no import makes them anew.
INNER = {
    "runs": _words(
        "version round events topic agent_id container stored_bytes request_bytes event_bytes"
    ),
    "push_configs": _words(
        "scheme secret delivered_seq failures claimed_by claimed_until accessor token_ends_at"
    ),
    "webhooks": _words(
        "url kinds include_text secret state error_code failures delivered_seq delivered_at"
        " created_at accessor token_ends_at"
    ),
    "webhook_events": _words("kind item_id at"),
    "operations": _words(
        "kind payload state attempt failures due_at created_at finished_at error_code holder"
        " accessor"
    ),
    "memory_events": _words(
        "change_id at kind reason operation accessor item_id episode_id status superseded_by"
        " valid_until retired_at expires_at confidence reinforcements citations dropped digest"
    ),
    "memories": _words("erase_epoch"),
    "memory_counts": _words("memories"),
    "quarantine": _words("episode_id reasons state held_at decided_by decided_at"),
    "episodes": _words("erase_epoch"),
    "embeddings": _words("vector version slot code"),
    "rebuilt": _words("release last_event index_version memory_id episode_id derived"),
    "documents": _words(
        "item_id findable version turn_id span_start span_end heading_start heading_end"
        " length added_at hidden_at"
    ),
    "postings": _words("found"),
    "terms": _words("documents last_slot found"),
    "audit_details": _words("salt details"),
    "call_counts": _words("calls"),
    "revoked_children": _words("expires_at"),
    "closed_containers": _words("container"),
    "model_spend": _words("tokens"),
    "namespaces": _words(
        "created_at documents words index_version conflict_policy tokens_not_before"
        " erase_epoch words_stale last_slot last_event stored_bytes held_at held_because"
    ),
    "api_tokens": _words(
        "token_hash label created_at revoked_at scopes topics types agent_id parent"
        " expires_at expired_at uses_left last_used_at refused_at children_not_before"
        " containers"
    ),
    "tool_call_records": _words("seq prev digest mac detail_digest inputs_hash"),
    "audit_heads": _words("seq digest checkpoint_seq cut_seq cut_statement"),
    "erasures": _words(
        "kind requested_by requested_at state claims left_behind purged_at secret_hash"
        " receipt collected_at sealed erase_epoch"
    ),
    "queues": _words("due_at"),
}
