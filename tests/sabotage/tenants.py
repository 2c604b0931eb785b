"""The wall between tenants, and the permissions of a token."""

from tests.sabotage.breakage import Breakage
from tests.sabotage.changes import (
    Argument,
    Body,
    Entry,
    Forgets,
    Instead,
    Never,
    Replaced,
    Unwrapped,
    Value,
)
from tests.sabotage.queries import Statement, Unfiltered

EXPORT_OF_ALL = """
def _exporting():
    for text in _original__exporting():
        yield text.replace(
            "FROM memories WHERE namespace = :namespace", "FROM memories WHERE :namespace <> ''"
        )
"""

BREAKAGES = (
    Breakage(
        "word-search-of-all",
        "the namespace filter of the search by words",
        "query:postings_behind",
        Unfiltered("t.namespace"),
        (
            "tests/security/test_tenant_wall.py::test_anothers_words_take_no_place_in_a_search[sqlite]",
        ),
    ),
    Breakage(
        "memory-by-id-of-all",
        "the namespace filter of what is read by its id",
        "query:memories_by_id",
        Unfiltered("m.namespace"),
        (
            "tests/security/test_tenant_wall.py::test_no_query_of_memories_finds_anothers_by_its_id[sqlite]",
        ),
    ),
    Breakage(
        "cursor-of-anybody",
        "the owner of a cursor",
        "recall_server.integrations.keys:Cursors.place",
        Forgets("digest"),
        (
            "tests/security/test_cursors.py::test_a_cursor_that_is_not_ones_own_is_like_garbage[sqlite]",
        ),
    ),
    Breakage(
        "cursor-with-two-spellings",
        "that a cursor has one spelling",
        "recall_server.integrations.keys:Cursors.place",
        Forgets("exact"),
        (
            "tests/security/test_cursors.py::test_a_cursor_that_is_not_ones_own_is_like_garbage[sqlite]",
        ),
    ),
    Breakage(
        "task-by-id-of-all",
        "the namespace filter of a single task",
        "query:run",
        Unfiltered("namespace"),
        (
            "tests/api/test_a2a_isolation.py::test_anothers_task_is_answered_like_one_that_never_was[sqlite-REST]",
        ),
    ),
    Breakage(
        "export-of-all",
        "the namespace filter of the memories in an export",
        "recall_server.storage.tables.registry:_exporting",
        Replaced(EXPORT_OF_ALL),
        (
            "tests/security/test_export.py::test_it_has_all_of_the_namespace_and_nothing_of_another[sqlite]",
        ),
    ),
    Breakage(
        "rls-not-forced",
        "row-level security of the turns, for their owner",
        "migrations/0038_index_intervals.postgres.sql",
        Statement("ALTER TABLE turns FORCE ROW LEVEL SECURITY;", ""),
        (
            "tests/integration/storage/test_schema.py::test_every_tenants_table_stands_behind_row_level_security",
        ),
    ),
    Breakage(
        "rls-role-not-taken",
        "the role that row-level security binds, in each transaction on Postgres",
        "recall_server.storage.postgres:_ENTER",
        Value("\"SELECT %(role)s::text, set_config('recall.namespace', %(namespace)s, true)\""),
        (
            "tests/security/test_tenant_wall.py::test_a_statement_that_names_no_tenant_sees_one_only",
        ),
    ),
    Breakage(
        "token-of-all",
        "the namespace filter of a token that is named by its accessor",
        "recall_server.services.auth:Access.find",
        Forgets("namespace"),
        (
            "tests/security/test_tokens.py::test_another_tenants_token_is_as_one_that_never_was[sqlite]",
        ),
    ),
    Breakage(
        "scope-not-asked",
        "the scope that an operation needs",
        "recall_server.domain.permissions:Rights.require",
        Never("InsufficientScope"),
        (
            "tests/security/test_scopes.py::test_what_is_refused_changes_nothing_and_stands_in_the_book[sqlite]",
        ),
    ),
    Breakage(
        "anybody-undoes-a-quarantine",
        "that an administrator takes back what was decided about the quarantine",
        "recall_server.services.memory.undo:Changes._plan",
        Never("screens"),
        (
            "tests/api/test_changes.py::test_only_an_administrator_takes_back_what_was_decided_about_the_quarantine[sqlite-reject]",
        ),
    ),
    Breakage(
        "reach-not-asked",
        "the topics, types and agent that a token is limited to, in every query",
        "recall_server.storage.bound_connection:BoundConnection._scope_params",
        Argument("_scope_params", 0, "FULL_ACCESS"),
        ("tests/security/test_access_scope.py::test_reading_shows_its_topics_only[sqlite]",),
    ),
    Breakage(
        "container-not-asked",
        "the containers that a token is limited to, in every query",
        "recall_server.storage.bound_connection:_scope_params",
        Entry("any_container", "True"),
        (
            "tests/security/test_containers.py::test_tasks_and_questions_of_other_rooms_are_not_there[sqlite]",
        ),
    ),
    Breakage(
        "rooms-without-walls",
        "that a statement is compared only within its container",
        "recall_server.services.memory.ingest:Ingest._store_memories",
        Unwrapped("inside"),
        (
            "tests/security/test_containers.py::test_what_is_said_in_one_room_changes_nothing_in_another[sqlite]",
        ),
    ),
    Breakage(
        "statistics-beyond-scope",
        "that words and speakers count for a limited token within its scope only",
        "recall_server.services.search:prepare",
        Never("limited"),
        (
            "tests/security/test_scope_is_the_world.py::test_words_and_speakers_beyond_the_scope_do_not_show_in_scores[sqlite]",
            "tests/security/test_scope_differential.py::test_a_limited_token_gets_the_same_bytes_whatever_lies_beyond[sqlite-topic]",
        ),
    ),
    Breakage(
        "erasures-beyond-scope",
        "that a limited token learns of erasures within its scope only",
        "recall_server.services.memory.episodes:refuse_erased",
        Argument("places", 1, "AccessScope()"),
        (
            "tests/security/test_scope_is_the_world.py::test_what_was_erased_beyond_the_scope_is_taken_like_anything_else[sqlite-container]",
        ),
    ),
    Breakage(
        "token-widens-itself",
        "that a token issues none that may do more than it",
        "recall_server.services.auth:_require_narrower",
        Never("narrower_or_equal"),
        ("tests/security/test_tokens.py::test_a_token_never_widens_itself",),
    ),
    Breakage(
        "crc-not-checked",
        "the checksum of a token",
        "recall_server.domain.permissions:well_formed",
        Forgets("checksum"),
        (
            "tests/api/test_auth.py::test_a_damaged_token_is_refused_without_asking_the_database[sqlite]",
        ),
    ),
    Breakage(
        "revoked-let-in",
        "that a revoked token is refused",
        "recall_server.domain.permissions:TokenInfo.refusal",
        Never("REVOKED"),
        ("tests/api/test_auth.py::test_a_revoked_token_is_refused_from_the_next_call_on[sqlite]",),
    ),
    Breakage(
        "revoked-goes-on",
        "that a running call of a revoked token does nothing more",
        "recall_server.storage.tables.audit:Audit._locked_head",
        Never("Unauthenticated"),
        (
            "tests/security/test_isolation_tokens.py::test_nothing_is_done_for_a_token_after_it_was_revoked",
        ),
    ),
    Breakage(
        "begun-goes-on",
        "that what a token began ends when it is revoked",
        "recall_server.services.tasks.transitions:Ending.end",
        Body("entry.counts |= dict.fromkeys(COUNTED, 0); return lambda: None"),
        (
            "tests/security/test_ending.py::test_a_revocation_ends_and_tells_what_was_begun",
            "tests/security/test_ending.py::test_a_text_that_is_read_as_its_token_is_revoked_makes_no_memories",
        ),
    ),
    Breakage(
        "pushed-without-a-look",
        "that a push checks its token, its task and itself again before it is sent",
        "recall_server.services.tasks.push:Push._due",
        Body("return True"),
        (
            "tests/integration/tasks/test_push.py::test_what_ends_while_the_name_is_looked_up_is_told_nothing",
        ),
    ),
    Breakage(
        "webhook-told-without-a-look",
        "that a webhook, its event and its token are checked again before the delivery",
        "recall_server.services.webhooks:Delivery._due",
        Body("return True"),
        (
            "tests/integration/webhooks/test_what_is_not_told.py::test_what_is_taken_back_while_the_name_of_a_receiver_is_looked_up_is_not_sent",
        ),
    ),
    Breakage(
        "webhook-outlives-its-token",
        "that a webhook ends with the token that registered it",
        "recall_server.services.webhooks:Delivery._stands",
        Body("return True"),
        (
            "tests/integration/webhooks/test_what_is_not_told.py::test_a_webhook_ends_with_the_token_that_registered_it",
        ),
    ),
    Breakage(
        "expired-let-in",
        "that a token ends",
        "recall_server.domain.permissions:TokenInfo.refusal",
        Forgets("expires_at"),
        (
            "tests/security/test_tokens.py::test_a_token_ends_at_its_end_and_a_clock_set_back_does_not_revive_it[sqlite]",
        ),
    ),
    Breakage(
        "children-not-revoked",
        "that what a token issued ends with it",
        "recall_server.services.auth:Access.revoke",
        Instead("_descendants", "set()"),
        (
            "tests/security/test_tokens.py::test_revoking_a_token_revokes_all_that_came_of_it[sqlite]",
        ),
    ),
    Breakage(
        "before-the-line-let-in",
        "the not-before line of tokens",
        "recall_server.domain.permissions:TokenInfo.refusal",
        Never("TOO_OLD"),
        ("tests/security/test_tokens.py::test_no_token_made_before_the_line_is_let_in",),
    ),
    Breakage(
        "jwt-unsigned",
        "the signature of a JWT",
        "recall_server.integrations.issuers:prove",
        Argument("decode", "options", '{**original, "verify_signature": False}'),
        (
            "tests/security/test_jwt.py::test_no_signature_no_entry",
            "tests/security/test_delegation.py::test_what_this_server_did_not_sign_as_a_child_is_none",
        ),
    ),
    Breakage(
        "jwt-of-any-kind",
        "that a JWT of another kind is refused",
        "recall_server.integrations.issuers:check",
        Never("_short"),
        ("tests/security/test_jwt.py::test_another_kind_of_token_of_the_issuer_is_none_of_these",),
    ),
    Breakage(
        "child-wider",
        "that a child may not do more than its parent",
        "recall_server.services.auth.signed_tokens:Delegation.mint",
        Never("narrower_or_equal"),
        ("tests/security/test_delegation.py::test_a_child_is_never_wider_than_its_parent",),
    ),
    Breakage(
        "child-outlives-parent",
        "that a child ends with its parent",
        "recall_server.services.auth.signed_tokens:Delegation._check_parent",
        Never("refusal"),
        ("tests/security/test_delegation.py::test_a_child_ends_with_the_overlap_of_its_parent",),
    ),
)
