"""Erasure: the fence, the lock, the refusal, the purge, the receipt."""

from tests.sabotage.breakage import Breakage
from tests.sabotage.changes import (
    Argument,
    Body,
    Forgets,
    Instead,
    Never,
    Value,
    Without,
)
from tests.sabotage.queries import Text, Unfiltered

# This version does not check whether it has changed a row, and so whose job it is.
ADVANCE_UNFENCED = """
await self._bound.send(
    "advance_job",
    id=job.id,
    attempt=job.attempt,
    payload=Document(dict(payload)),
    lease_until=lease_until,
)
"""

BREAKAGES = (
    Breakage(
        "unseen-characters",
        "that an erasure finds a name with characters in it that nobody sees",
        "recall_server.domain.erasure:as_read",
        Body("return text.lower() if text.isascii() else folded(text)"),
        (
            "tests/security/test_erasure.py::test_a_subject_is_gone_however_its_name_is_written[sqlite]",
        ),
    ),
    Breakage(
        "fence-of-finish",
        "that only the newest attempt may finish a job",
        "query:finish_job",
        Unfiltered("attempt"),
        (
            "tests/integration/storage/test_conformance.py::test_only_the_newest_attempt_may_finish_a_job",
        ),
    ),
    Breakage(
        "fence-of-advance",
        "that only the newest attempt may go on with a job",
        "recall_server.storage.tables.jobs:Jobs.advance",
        Body(ADVANCE_UNFENCED),
        (
            "tests/security/test_erasure.py::test_a_struck_job_is_begun_again_from_what_is_left[sqlite]",
        ),
    ),
    Breakage(
        "fence-of-erasure",
        "that an erasure stops jobs that have read the erased data",
        "query:fence_jobs",
        Text("""UPDATE operations SET due_at = :now
WHERE namespace = :namespace AND state = 'processing' AND kind <> :purge"""),
        (
            "tests/security/test_erasure.py::test_a_struck_job_is_begun_again_from_what_is_left[sqlite]",
        ),
    ),
    Breakage(
        "lock-of-erasure",
        "the lock of the namespace while it is erased",
        "recall_server.storage.store:Store.erasing",
        Argument("transaction", "locked", None),
        (
            "tests/security/test_lock_order.py::test_every_operation_locks_the_namespace_then_its_audit_log_and_then_the_rest[postgres]",
        ),
    ),
    Breakage(
        "hold-not-asked",
        "the hold over an erasure of everything",
        "recall_server.services.erasure:Erase._erase",
        Without("refuse_held"),
        (
            "tests/security/test_holds.py::test_whoever_asks_is_told_with_409_and_the_book_knows[sqlite]",
        ),
    ),
    Breakage(
        "hold-not-asked-of-a-source",
        "the hold over a source that is purged",
        "recall_server.services.erasure.purge_source:Sources._write_piece",
        Without("refuse_held"),
        ("tests/security/test_holds.py::test_every_operation_that_destroys_asks_the_hold[sqlite]",),
    ),
    Breakage(
        "purge-outlives-its-undo",
        "that a purge ends when somebody takes back what it has done so far",
        "recall_server.services.erasure.purge_source:Sources._planned",
        Instead("Histories", "Histories(())"),
        (
            "tests/security/test_purge_pieces.py::test_a_purge_that_is_undone_meanwhile_ends[sqlite]",
        ),
    ),
    Breakage(
        "purged-but-cited",
        "that words which only purged memories cite are extracted again",
        "query:standing_citations_of_episodes",
        Text("""SELECT memory_id, position, episode_id, span_start, span_end FROM citations
WHERE namespace = :namespace AND episode_id IN (:ids...)"""),
        (
            "tests/security/test_purge_pieces.py::test_pieces_take_back_together_what_one_would[sqlite-1]",
        ),
    ),
    Breakage(
        "import-unscreened",
        "the screening of what an import takes in",
        "recall_server.services.transfer.importing:Import._prepared",
        Instead("prepared", "intake.Prepared(one)"),
        (
            "tests/security/test_import_intake.py::test_an_order_in_a_file_is_in_quarantine_until_a_person_lets_it_out[sqlite]",
        ),
    ),
    Breakage(
        "old-backup-served",
        "the check of the ledger before a database is served",
        "recall_server.bootstrap:open_application",
        Without("ledger", "require"),
        (
            "tests/security/test_ledger.py::test_last_nights_backup_is_not_served_until_it_is_erased_again[sqlite]",
        ),
    ),
    Breakage(
        "erasure-not-noted",
        "the line of an erasure in the ledger",
        "recall_server.services.erasure.purge:Purge.at_once",
        Without("note"),
        (
            "tests/security/test_ledger.py::test_an_erasure_is_not_done_before_the_ledger_has_it[sqlite]",
        ),
    ),
    Breakage(
        "gate-open-while-emptied",
        "the refusal of tokens for a namespace that is being emptied",
        "recall_server.services.auth:Access.issue",
        Never("BeingErased"),
        (
            "tests/security/test_namespace_erasure.py::test_a_large_namespace_is_shut_at_once_and_emptied_by_the_job[sqlite]",
        ),
    ),
    Breakage(
        "container-of-others",
        "the limits of a token that erases a container",
        "recall_server.services.erasure:Erase.container",
        Without("whole"),
        (
            "tests/security/test_container_erasure.py::test_a_limited_token_erases_its_own_container_only[sqlite]",
        ),
    ),
    Breakage(
        "late-under-an-older-id",
        "the search for new rows with an id that sorts earlier",
        "recall_server.services.erasure.targets:_Read.more",
        Forgets("count"),
        (
            "tests/security/test_erasure_meanwhile.py::test_what_is_said_of_somebody_meanwhile_is_erased_with_them[sqlite]",
        ),
    ),
    Breakage(
        "relabelled-and-not-read",
        "the search for rows that were relabelled meanwhile",
        "recall_server.services.erasure.targets:Named._read",
        Instead("relabelled", "set()"),
        (
            "tests/security/test_erasure_meanwhile.py::test_a_name_that_a_relabel_adds_meanwhile_is_erased[sqlite]",
        ),
    ),
    Breakage(
        "nobody-takes-jobs",
        "that an erasure of nobody is short",
        "recall_server.services.erasure.targets:Affected.nothing",
        Body("return False"),
        (
            "tests/security/test_purge.py::test_an_erasure_of_nobody_is_short_and_disturbs_no_job[sqlite]",
        ),
    ),
    Breakage(
        "deleted-files-not-read",
        "the search of files that were deleted and are held open",
        "recall_server.services.erasure.leak_scan:scan_for",
        Without("held_open"),
        ("tests/security/test_scan.py::test_a_deleted_file_that_is_held_open_is_searched[sqlite]",),
    ),
    Breakage(
        "log-held-open",
        "that the process that purges holds no removed segment of the log open",
        "recall_server.storage.postgres:PostgresDriver.purge",
        Without("drain"),
        (
            "tests/security/test_scan.py::test_the_process_that_purges_holds_no_removed_segment_of_the_log_open[postgres]",
        ),
    ),
    Breakage(
        "counted-before",
        "that the receipt of a namespace counts what began meanwhile",
        "recall_server.services.erasure.eraser:NamespaceTargets.refresh",
        Without("scan"),
        (
            "tests/security/test_erasure_beside_others.py::test_a_task_that_begins_before_a_namespace_is_erased_is_in_its_receipt[sqlite]",
        ),
    ),
    Breakage(
        "table-not-erased",
        "one table from an erasure",
        "recall_server.storage.tables.registry:DELETED",
        Value("tuple(name for name in original if name != 'quarantine')"),
        (
            "tests/security/test_erasure.py::test_erasing_a_namespace_leaves_no_row_and_no_token[sqlite]",
        ),
    ),
    Breakage(
        "erased-taken-again",
        "the refusal of text that was erased",
        "recall_server.services.memory.episodes:refuse_erased",
        Without("refuse"),
        (
            "tests/security/test_erasure.py::test_erased_text_is_refused_until_it_is_allowed[sqlite]",
        ),
    ),
    Breakage(
        "erased-merged",
        "the search for erased text in a merged text",
        "recall_server.services.tasks.consolidate:Consolidate._without_erased",
        Instead("refused", "set()"),
        (
            "tests/integration/memory/test_consolidate.py::test_a_merged_text_that_brings_back_what_was_erased_is_left_out",
        ),
    ),
    Breakage(
        "erased-imported",
        "the refusal of erased text in an import",
        "recall_server.services.transfer.importing:Import._write",
        Instead("refused", "set()"),
        (
            "tests/security/test_export.py::test_what_must_not_come_back_is_kept_out_with_all_that_rests_on_it[sqlite]",
        ),
    ),
    Breakage(
        "vectors-outlive-erasure",
        "that a cache of vectors notices an erasure",
        "recall_server.storage.index.documents:Cache.index",
        Never("drop"),
        (
            "tests/security/test_erasure.py::test_the_vectors_of_an_erased_namespace_are_in_no_cache[sqlite]",
        ),
    ),
    Breakage(
        "tokens-outlive-erasure",
        "that an erasure revokes the tokens",
        "query:revoke_all_tokens",
        Text("""UPDATE api_tokens SET refused_at = :now WHERE namespace = :namespace AND revoked_at IS NULL
RETURNING accessor"""),
        (
            "tests/security/test_erasure.py::test_erasing_a_namespace_leaves_no_row_and_no_token[sqlite]",
        ),
    ),
    Breakage(
        "secure-delete-off",
        "that SQLite overwrites what it deletes",
        "recall_server.storage.sqlite.connection:_PRAGMAS",
        Value("original.replace('secure_delete=ON', 'secure_delete=OFF')"),
        ("tests/security/test_doctor.py::test_what_sqlite_was_told_is_asked_of_the_connection",),
    ),
    Breakage(
        "purge-without-vacuum",
        "the rewriting of the file of SQLite",
        "recall_server.storage.sqlite:SqliteDriver.purge",
        Without("_run_alone"),
        ("tests/security/test_purge.py::test_no_page_of_the_file_is_left_over[sqlite]",),
    ),
    Breakage(
        "purge-leaves-journal",
        "the emptying of the journal of SQLite",
        "recall_server.storage.sqlite:SqliteDriver._empty_journal",
        Without("_run_alone"),
        ("tests/security/test_scan.py::test_no_fragment_is_left_after_erasure_and_purge[sqlite]",),
    ),
    Breakage(
        "purge-at-any-time",
        "the interval between purges",
        "recall_server.services.erasure.purge:Purge._turn",
        Instead("begin_purge", "True"),
        (
            "tests/security/test_purge.py::test_files_are_written_anew_once_in_an_interval_for_all_namespaces[sqlite]",
        ),
    ),
    Breakage(
        "names-beside-texts",
        "the erasure of names outside of the texts",
        "recall_server.services.erasure.purge:Purge._redact",
        Without("remove_details"),
        (
            "tests/security/test_erasure_canaries.py::test_a_canary_in_every_column_is_gone_after_each_kind_of_erasure[sqlite-subject]",
        ),
    ),
    Breakage(
        "receipt-not-verified",
        "the scan for what an erasure has left, before its receipt is final",
        "recall_server.services.erasure.purge:Purge._left",
        Body("return []"),
        (
            "tests/security/test_erasure_canaries.py::test_the_receipt_names_what_the_scan_still_finds[sqlite]",
        ),
    ),
    Breakage(
        "purge-of-postgres",
        "the rewriting of the tables of Postgres",
        "recall_server.storage.postgres:_rewrite",
        Without("execute", "Identifier"),
        (
            "tests/security/test_scan.py::test_no_fragment_is_left_after_erasure_and_purge[postgres]",
        ),
    ),
    Breakage(
        "receipt-without-secret",
        "the secret that opens a receipt",
        "recall_server.services.erasure:Erase.find_receipt",
        Forgets("compare_digest"),
        (
            "tests/security/test_purge.py::test_the_secret_opens_the_final_receipt_until_it_is_acknowledged_and_nothing_else[sqlite]",
        ),
    ),
    Breakage(
        "receipt-unsigned",
        "the signature of a receipt",
        "recall_server.integrations.keys:verified",
        Argument("decode", "options", '{**original, "verify_signature": False}'),
        (
            "tests/security/test_purge.py::test_a_changed_receipt_or_another_servers_key_does_not_verify[sqlite]",
        ),
    ),
    Breakage(
        "receipt-of-any-kind",
        "that only a receipt is one",
        "recall_server.integrations.keys:verified",
        Never("get_unverified_header"),
        (
            "tests/security/test_purge.py::test_a_changed_receipt_or_another_servers_key_does_not_verify[sqlite]",
        ),
    ),
    Breakage(
        "shown-unread",
        "that a search reads again what it shows",
        "recall_server.services.search.hits:finalize",
        Argument("_replace", "items", None),
        (
            "tests/integration/search/test_search_races.py::test_what_is_erased_while_a_re_ranker_looks_at_it_is_neither_shown_nor_noted[sqlite]",
        ),
    ),
    Breakage(
        "slots-given-again",
        "that a cache learns of deleted vectors",
        "recall_server.services.memory.indexing:Embedding.drop_others",
        Never("gone", "dropped_at_once"),
        (
            "tests/integration/search/test_search_races.py::test_who_serves_with_a_model_whose_vectors_are_deleted_compares_no_others_in_their_place[sqlite]",
        ),
    ),
)
