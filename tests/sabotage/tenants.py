"""The wall between tenants, and what a token may do behind it."""

from tests.sabotage.breakage import Breakage

BREAKAGES = (
    Breakage(
        "word-search-of-all",
        "the namespace filter of the search by words",
        "recall_server/storage/sql/index.sql",
        "FROM json_each(:weights) w CROSS JOIN postings p\n  WHERE p.namespace = :namespace AND",
        "FROM json_each(:weights) w CROSS JOIN postings p\n  WHERE p.namespace <> '' AND",
        ("tests/security/test_wall.py::test_anothers_words_take_no_place_in_a_search[sqlite]",),
    ),
    Breakage(
        "memory-by-id-of-all",
        "the namespace filter of what is read by its id",
        "recall_server/storage/sql/memories.sql",
        "WHERE m.namespace = :namespace AND m.id IN (:ids...)\n"
        "  AND (:any_topic OR m.topic IN (:topics...)) AND (:any_type OR m.type IN (:types...))\n"
        "  AND (:any_agent OR m.agent_id = :agent)\n"
        "  AND (:any_container OR m.container IN (:containers...))\n\n"
        "-- query: memory_items\n",
        "WHERE (m.namespace = :namespace OR TRUE) AND m.id IN (:ids...)\n"
        "  AND (:any_topic OR m.topic IN (:topics...)) AND (:any_type OR m.type IN (:types...))\n"
        "  AND (:any_agent OR m.agent_id = :agent)\n"
        "  AND (:any_container OR m.container IN (:containers...))\n\n"
        "-- query: memory_items\n",
        (
            "tests/security/test_wall.py::test_no_query_of_memories_finds_anothers_by_its_id[sqlite]",
        ),
    ),
    Breakage(
        "cursor-of-anybody",
        "whose cursor it is",
        "recall_server/services/cursors.py",
        "        if not exact or digest != listing.digest:\n",
        "        if not exact:\n",
        (
            "tests/security/test_cursors.py::test_a_cursor_that_is_not_ones_own_is_like_garbage[sqlite]",
        ),
    ),
    Breakage(
        "cursor-with-two-spellings",
        "that a cursor has one spelling",
        "recall_server/services/cursors.py",
        "        if not exact or digest != listing.digest:\n",
        "        if digest != listing.digest:\n",
        (
            "tests/security/test_cursors.py::test_a_cursor_that_is_not_ones_own_is_like_garbage[sqlite]",
        ),
    ),
    Breakage(
        "task-by-id-of-all",
        "the namespace filter of a task that is asked for",
        "recall_server/storage/sql/runs.sql",
        "-- query: run\nSELECT * FROM runs WHERE namespace = :namespace AND id = :id\n",
        "-- query: run\nSELECT * FROM runs WHERE (namespace = :namespace OR TRUE) AND id = :id\n",
        (
            "tests/surface/test_a2a_isolation.py::test_anothers_task_is_answered_like_one_that_never_was[sqlite-REST]",
        ),
    ),
    Breakage(
        "export-of-all",
        "the namespace filter of the memories in an export",
        "recall_server/storage/sql/portable.sql",
        "-- query: portable_memories\nSELECT * FROM memories WHERE namespace = :namespace AND",
        "-- query: portable_memories\n"
        "SELECT * FROM memories WHERE (namespace = :namespace OR TRUE) AND",
        (
            "tests/security/test_export.py::test_it_has_all_of_the_namespace_and_nothing_of_another[sqlite]",
        ),
    ),
    Breakage(
        "rls-not-forced",
        "row-level security of the turns, for their owner",
        "migrations/0001_memories.postgres.sql",
        "ALTER TABLE turns FORCE ROW LEVEL SECURITY;",
        "",
        (
            "tests/storage/test_schema.py::test_every_tenants_table_stands_behind_row_level_security",
        ),
    ),
    Breakage(
        "rls-role-not-taken",
        "the role that row-level security binds, in each transaction on Postgres",
        "recall_server/storage/postgres/driver.py",
        "SELECT set_config('role', %(role)s, true), ",
        "SELECT %(role)s::text, ",
        ("tests/security/test_wall.py::test_a_statement_that_names_no_tenant_sees_one_only",),
    ),
    Breakage(
        "token-of-all",
        "the namespace filter of a token that is named by its accessor",
        "recall_server/services/auth/access.py",
        "if info is None or namespace not in (None, info.namespace):",
        "if info is None:",
        (
            "tests/security/test_tokens.py::test_another_tenants_token_is_as_one_that_never_was[sqlite]",
        ),
    ),
    Breakage(
        "scope-not-asked",
        "the scope that an operation needs",
        "recall_server/domain/permissions.py",
        "if not self.allows(scope):",
        "if False:",
        (
            "tests/security/test_scopes.py::test_what_is_refused_changes_nothing_and_stands_in_the_book[sqlite]",
        ),
    ),
    Breakage(
        "reach-not-asked",
        "the topics, types and agent that a token is limited to, in every query",
        "recall_server/storage/bound_connection.py",
        "**_spelled(self.reach)}",
        "**_spelled(FULL_ACCESS)}",
        ("tests/security/test_reach.py::test_reading_shows_its_topics_only[sqlite]",),
    ),
    Breakage(
        "container-not-asked",
        "the containers that a token is limited to, in every query",
        "recall_server/storage/bound_connection.py",
        '"any_container": reach.containers is None,',
        '"any_container": True,',
        (
            "tests/security/test_containers.py::test_tasks_and_questions_of_other_rooms_are_not_there[sqlite]",
        ),
    ),
    Breakage(
        "rooms-without-walls",
        "that what is said in a container is compared with what is known there",
        "recall_server/services/memory/ingest.py",
        ".inside({episode.container})\n",
        "\n",
        (
            "tests/security/test_containers.py::test_what_is_said_in_one_room_changes_nothing_in_another[sqlite]",
        ),
    ),
    Breakage(
        "token-widens-itself",
        "that a token issues none that may do more than it",
        "recall_server/services/auth/access.py",
        "if not narrower_or_equal(new.rights, issuer.rights):",
        "if not new.rights.scopes:",
        ("tests/security/test_tokens.py::test_a_token_never_widens_itself",),
    ),
    Breakage(
        "crc-not-checked",
        "the checksum of a token",
        "recall_server/domain/security/tokens.py",
        "return match is not None and checksum(match[1]) == match[2]",
        "return match is not None",
        (
            "tests/surface/test_auth.py::test_a_damaged_token_is_refused_without_asking_the_database[sqlite]",
        ),
    ),
    Breakage(
        "revoked-let-in",
        "that a revoked token is refused",
        "recall_server/domain/permissions.py",
        "if self.revoked_at is not None:",
        "if self.revoked_at is not None and self.uses_left == 0:",
        (
            "tests/surface/test_auth.py::test_a_revoked_token_is_refused_from_the_next_call_on[sqlite]",
        ),
    ),
    Breakage(
        "revoked-goes-on",
        "that a token does nothing more once it was revoked, though its call was under way",
        "recall_server/storage/tables/audit.py",
        'if rows[0]["ended"]:',
        'if rows[0]["ended"] is None:',
        (
            "tests/security/test_isolation_tokens.py::test_nothing_is_done_for_a_token_after_it_was_revoked",
        ),
    ),
    Breakage(
        "expired-let-in",
        "that a token ends",
        "recall_server/domain/permissions.py",
        "self.expires_at <= now)",
        "self.expires_at <= self.created_at)",
        (
            "tests/security/test_tokens.py::test_a_token_ends_at_its_end_and_a_clock_set_back_does_not_revive_it[sqlite]",
        ),
    ),
    Breakage(
        "children-not-revoked",
        "that what a token issued ends with it",
        "recall_server/services/auth/access.py",
        "ended = _descendants(there, info.accessor) | (",
        "ended: set[str] = set() | (",
        (
            "tests/security/test_tokens.py::test_revoking_a_token_revokes_all_that_came_of_it[sqlite]",
        ),
    ),
    Breakage(
        "before-the-line-let-in",
        "that no token made before a moment is let in",
        "recall_server/domain/permissions.py",
        "if self.not_before is not None and self.created_at < self.not_before:",
        "if self.not_before is not None and self.uses_left == 0:",
        ("tests/security/test_tokens.py::test_no_token_made_before_the_line_is_let_in",),
    ),
    Breakage(
        "jwt-unsigned",
        "the signature of a JWT",
        "recall_server/integrations/crypto/jwt.py",
        'options={"verify_exp": False,',
        'options={"verify_signature": False, "verify_exp": False,',
        (
            "tests/security/test_jwt.py::test_no_signature_no_entry",
            "tests/security/test_delegation.py::test_what_this_server_did_not_sign_as_a_child_is_none",
        ),
    ),
    Breakage(
        "jwt-of-any-kind",
        "that a JWT of another kind lets nobody in",
        "recall_server/integrations/crypto/jwt.py",
        "if shown.typ != _short(expected.typ):",
        "if not shown.typ:",
        ("tests/security/test_jwt.py::test_another_kind_of_token_of_the_issuer_is_none_of_these",),
    ),
    Breakage(
        "child-wider",
        "that a child may not do more than its parent",
        "recall_server/services/auth/delegation.py",
        "if not narrower_or_equal(wanted.rights, issuer.rights):",
        "if not wanted.rights.scopes:",
        ("tests/security/test_delegation.py::test_a_child_is_never_wider_than_its_parent",),
    ),
    Breakage(
        "child-outlives-parent",
        "that a child ends with its parent",
        "recall_server/services/auth/delegation.py",
        "if (refusal := found.parent.refusal(now)) is not None:",
        'if (refusal := found.parent.refusal(now)) == "":',
        ("tests/security/test_delegation.py::test_a_child_ends_with_the_overlap_of_its_parent",),
    ),
)
