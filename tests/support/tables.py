"""The tables that belong to tenants, and those of the server."""

# What belongs to no namespace.
SERVER_TABLES = {"schema_version", "server"}
TENANT_TABLES = {
    "namespaces",
    "episodes",
    "turns",
    "memories",
    "memory_counts",
    "citations",
    "embeddings",
    "documents",
    "postings",
    "terms",
    "runs",
    "run_events",
    "decisions",
    "push_configs",
    "quarantine",
    "api_tokens",
    "revoked_children",
    "tool_call_records",
    "audit_heads",
    "audit_details",
    "operations",
    "erasures",
    "erased",
    "call_counts",
    "model_spend",
}
