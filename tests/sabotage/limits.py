"""Limits of time, and fairness: queries, snapshots, long bodies, crowds."""

from tests.sabotage.breakage import Breakage
from tests.sabotage.changes import (
    Argument,
    Body,
    Entry,
    Forgets,
    Instead,
    Never,
    OnlyIf,
    Replaced,
    Value,
    Without,
)

ANSWERS_NOTHING = """
async def _answer(self, asked):
    try:
        return await self._original__answer(asked)
    except MemoryError:
        return b""
"""

BREAKAGES = (
    Breakage(
        "receipts-are-free",
        "that erasures of nobody stop at the quota",
        "recall_server.services.erasure:Erase._begin",
        Without("count"),
        (
            "tests/security/test_kept_bytes.py::test_receipts_are_counted_and_a_full_namespace_can_erase_only_what_is_there[sqlite]",
        ),
    ),
    Breakage(
        "copied-labels-are-free",
        "that an extraction copies no more labels than the quota allows",
        "recall_server.storage.tables.access:label_bytes",
        Body("return 0"),
        (
            "tests/security/test_quota.py::test_an_extraction_that_would_copy_more_than_fits_ends[sqlite]",
            "tests/security/test_kept_bytes.py::test_the_database_grows_by_no_more_than_is_counted[sqlite-many_memories_of_longest_labels]",
        ),
    ),
    Breakage(
        "receipts-wait-for-others",
        "that receipts do not wait for thousands of another tenant",
        "recall_server.services.erasure.purge:Purge.at_once",
        Argument("unpurged", 0, "10**6"),
        (
            "tests/security/test_purge.py::test_the_receipts_of_one_tenant_do_not_wait_for_thousands_of_anothers[sqlite]",
        ),
    ),
    Breakage(
        "journal-without-end",
        "that an export does not fill the disk with the journal",
        "recall_server.storage.sqlite:SqliteDriver._limit_journal",
        Body("return None"),
        ("tests/faults/test_journal.py::test_a_snapshot_ends_before_the_journal_fills_the_disk",),
    ),
    Breakage(
        "computed-here",
        "that long computations do not take the interpreter of the server",
        "recall_server.integrations.computing:_Computing.compute",
        Body("return await asyncio.to_thread(function, *given)"),
        (
            "tests/integration/test_computing.py::test_a_function_runs_in_another_process_of_lower_priority",
        ),
    ),
    Breakage(
        "merged-here",
        "that a merge of many memories is not compared in the server",
        "recall_server.services.tasks.merge:Merging._groups",
        Instead("compute", "_grouped(pages, threshold)"),
        (
            "tests/security/test_bounds.py::test_many_memories_are_grouped_in_another_process[sqlite]",
        ),
    ),
    Breakage(
        "same-priority",
        "that calls come before computations",
        "recall_server.integrations.computing:_main",
        Argument("nice", 0, "0"),
        (
            "tests/integration/test_computing.py::test_a_function_runs_in_another_process_of_lower_priority",
        ),
    ),
    Breakage(
        "killed-and-computed-here",
        "that what has ended the computing process does not end the server",
        "recall_server.integrations.computing:_Computing._answer",
        Replaced(ANSWERS_NOTHING),
        (
            "tests/integration/test_computing.py::test_what_ends_the_process_is_not_computed_in_the_server",
        ),
    ),
    Breakage(
        "computed-without-end",
        "that a computation without end does not keep all others waiting",
        "recall_server.integrations.computing:_Computing._answer",
        Argument("timeout", 0, "None"),
        (
            "tests/integration/test_computing.py::test_a_function_that_does_not_end_is_ended_and_others_go_on",
        ),
    ),
    Breakage(
        "no-pace",
        "that long bodies come at a pace",
        "recall_server.domain.fairness:Pace.wait_s",
        Body("return 0.0"),
        (
            "tests/security/test_pace.py::test_what_comes_faster_waits_until_all_before_it_has_passed",
            "tests/security/test_pace.py::test_a_long_body_waits_and_a_short_one_or_that_of_another_does_not",
        ),
    ),
    Breakage(
        "one-pace-for-all",
        "that nobody waits for the long bodies of another",
        "recall_server.domain.fairness:Pace.wait_s",
        Replaced(
            "def wait_s(self, key, amount, now):\n"
            "    return self._original_wait_s(None, amount, now)"
        ),
        (
            "tests/security/test_pace.py::test_what_comes_slower_and_what_others_send_waits_for_nothing",
        ),
    ),
    Breakage(
        "bodies-wait-without-end",
        "that bodies that wait take a limited memory",
        "recall_server.domain.fairness:Pace.wait_s",
        Never("_wait_max_s"),
        (
            "tests/security/test_pace.py::test_what_would_wait_too_long_is_refused_and_holds_up_nothing",
            "tests/security/test_pace.py::test_a_long_body_waits_and_a_short_one_or_that_of_another_does_not",
        ),
    ),
    Breakage(
        "paces-without-end",
        "that the pace holds no key for which nothing waits",
        "recall_server.domain.fairness:Pace.wait_s",
        Never("KEYS_MAX"),
        ("tests/security/test_pace.py::test_only_keys_that_wait_are_kept",),
    ),
    Breakage(
        "what-repeats-is-free",
        "that undoing without end stops at the quota",
        "recall_server.storage.tables.memory_events:MemoryEvents.write",
        Without("take_quota"),
        (
            "tests/security/test_kept_bytes.py::test_a_full_namespace_forgets_and_takes_nothing_back[sqlite]",
        ),
    ),
    Breakage(
        "kept-answers-are-free",
        "that what is kept of models' answers counts towards the quota",
        "recall_server.storage.tables.memory_events:MemoryEvents.write",
        Instead("bytes_of", "0"),
        (
            "tests/security/test_quota.py::test_kept_answers_of_models_count_until_they_are_erased[sqlite]",
        ),
    ),
    Breakage(
        "planned-under-the-lock",
        "that large changes are planned before others wait for them",
        "recall_server.services.memory.commit:PLANS_MAX",
        Value("0"),
        (
            "tests/integration/memory/test_ingest.py::test_the_memories_of_a_text_are_planned_before_others_wait[sqlite]",
        ),
    ),
    Breakage(
        "source-purged-at-once",
        "that each transaction of a purge changes little",
        "recall_server.services.erasure.purge_source:Sources._planned",
        Instead("max", "sys.maxsize"),
        (
            "tests/security/test_purge_pieces.py::test_pieces_take_back_together_what_one_would[sqlite-1]",
        ),
    ),
    Breakage(
        "tasks-change-all",
        "that a task makes so many changes of one text",
        "recall_server.services.tasks.consolidate:Consolidate._plans",
        Argument("Settling", "changes_max", "None"),
        (
            "tests/security/test_text_pieces.py::test_a_task_makes_so_many_changes_and_says_how_far_it_has_read[sqlite]",
        ),
    ),
    Breakage(
        "tasks-read-all",
        "that a task reads no further once it has enough",
        "recall_server.services.tasks.consolidate:Consolidate._passages",
        Never("changes_max"),
        (
            "tests/security/test_text_pieces.py::test_a_task_reads_no_further_passage_once_it_has_enough[sqlite]",
        ),
    ),
    Breakage(
        "lines-at-once",
        "that an import writes so many lines at once",
        "recall_server.services.transfer.importing:_batches",
        Never("BATCH_LINES"),
        (
            "tests/security/test_text_pieces.py::test_an_import_writes_so_many_lines_at_once[sqlite]",
        ),
    ),
    Breakage(
        "settled-at-once",
        "that an import settles some memories at a time",
        "recall_server.services.transfer.importing:Import.take",
        Argument("batches", 1, "len(new) or 1"),
        (
            "tests/security/test_text_pieces.py::test_an_import_reads_and_cuts_no_text_under_the_lock[sqlite]",
        ),
    ),
    Breakage(
        "revoked-at-once",
        "that tasks of so many bytes are ended at once",
        "recall_server.services.tasks.transitions:Ending._unfinished",
        Instead("fitting", "[one for one, _ in sizes]"),
        (
            "tests/security/test_ending.py::test_a_revocation_reads_small_tasks_and_a_job_ends_the_others[sqlite]",
        ),
    ),
    Breakage(
        "forgotten-at-once",
        "that a text is forgotten piece by piece",
        "recall_server.services.memory.texts:Texts._forget_some",
        Argument("of_episode_alone", 1, "self.at_once * 99"),
        (
            "tests/security/test_text_pieces.py::test_pieces_forget_together_what_one_would_and_one_undo_takes_them_back[sqlite]",
        ),
    ),
    Breakage(
        "space-freed-in-vain",
        "that an extraction is tried again when an erasure has freed space",
        "recall_server.services.erasure.redact:write",
        Without("requeue_without_space"),
        (
            "tests/security/test_quota.py::test_an_extraction_without_space_is_done_once_some_is_freed[sqlite]",
        ),
    ),
    Breakage(
        "erased-at-once",
        "that a long text is erased in pieces",
        "recall_server.services.erasure.redact:planned",
        Argument("pieces", 0, "sys.maxsize"),
        (
            "tests/security/test_erasure_pieces.py::test_nobody_sees_half_of_a_text_whose_container_is_being_erased[sqlite]",
        ),
    ),
    Breakage(
        "half-erased-and-shown",
        "that nobody sees what is in a container that is being erased",
        "recall_server.services.erasure.eraser:PartTargets.close",
        Without("close_container"),
        (
            "tests/security/test_erasure_pieces.py::test_nobody_sees_half_of_a_text_whose_container_is_being_erased[sqlite]",
        ),
    ),
    Breakage(
        "erased-as-planned",
        "that pieces of an erasure are planned anew if something has changed since",
        "recall_server.services.erasure.eraser:Eraser._run_part",
        Without("expect"),
        (
            "tests/security/test_erasure_pieces.py::test_what_changes_between_two_pieces_is_erased_too[sqlite]",
        ),
    ),
    Breakage(
        "stored-digests-forgotten",
        "that an erasure goes on although others write all the time",
        "recall_server.services.erasure.eraser:PartTargets.written",
        Body("return None"),
        (
            "tests/security/test_erasure_pieces.py::test_an_erasure_ends_although_others_write_all_the_time[sqlite-container]",
        ),
    ),
    Breakage(
        "held-one-by-one",
        "that the turns of a text are stored with one statement",
        "recall_server.storage.tables.disputes:Quarantine.hold",
        Instead("grouped", "{(*why, item_id): [item_id] for item_id, why in reasons.items()}"),
        (
            "tests/security/test_held_turns.py::test_many_held_turns_are_stored_with_few_statements[sqlite]",
        ),
    ),
    Breakage(
        "nobody-waits-for-a-plan",
        "that those wait who change a namespace while a large change is planned again and again",
        "recall_server.domain.fairness:Gates.passed",
        Body("return None"),
        (
            "tests/integration/memory/test_undo.py::test_in_the_end_those_wait_who_change_the_namespace_all_the_time[sqlite]",
        ),
    ),
    Breakage(
        "undone-as-planned",
        "that an undo is planned anew if memories have changed since",
        "recall_server.storage.index.words:WordIndex.expect",
        Body("return None"),
        (
            "tests/integration/memory/test_undo.py::test_what_changes_after_an_undo_was_planned_is_planned_with[sqlite-Zoe-1]",
        ),
    ),
    Breakage(
        "believed-as-planned",
        "that the memories of a text are planned anew if others have changed since",
        "recall_server.storage.tables.memory_events:Basis.stands",
        Body("return True"),
        (
            "tests/integration/memory/test_ingest.py::test_what_changes_while_memories_are_planned_is_planned_with[sqlite-1]",
        ),
    ),
    Breakage(
        "erased-and-read-again",
        "that an erasure reads nothing again that has not changed, while all writers of SQLite wait",
        "recall_server.services.erasure.targets:Named._read",
        Never("_epoch", "_event"),
        (
            "tests/security/test_erasure.py::test_what_has_not_changed_since_is_not_read_again_before_others_wait[sqlite]",
        ),
    ),
    Breakage(
        "reads-of-several-states",
        "that what a transaction reads is of one state on PostgreSQL",
        "recall_server.storage.postgres:_BEGIN_READ",
        Value("'BEGIN READ ONLY'"),
        (
            "tests/integration/storage/test_conformance.py::test_a_reader_sees_one_state_however_often_it_reads[postgres]",
        ),
    ),
    Breakage(
        "unread-without-end",
        "that few bytes wait for a client of SSE that does not read",
        "recall_server.api.mcp:UNREAD_BYTES_MAX",
        Value("2**40"),
        (
            "tests/api/test_mcp_sse.py::test_few_bytes_wait_for_a_client_that_does_not_read_however_long_its_answers_are[sqlite]",
        ),
    ),
    Breakage(
        "code-of-the-folder",
        "that no program runs code from the folder in which it is started",
        "recall_server.local:_PYTHON",
        Value("(sys.executable,)"),
        (
            "tests/security/test_local_files.py::test_no_code_is_run_that_lies_beside_the_database_or_in_the_folder_of_a_client",
        ),
    ),
    Breakage(
        "lost-jobs-wait",
        "that the jobs of a dead process are taken at once",
        "recall_server.worker:Worker.take_back",
        Body("return 0"),
        (
            "tests/stories/test_lost_worker.py::test_a_killed_worker_loses_its_job_at_once_and_one_that_lives_keeps_it[sqlite]",
        ),
    ),
    Breakage(
        "slots-not-shared",
        "that no tenant holds all slots of the worker",
        "recall_server.worker:Lane.full",
        Body("return []"),
        (
            "tests/integration/tasks/test_lanes.py::test_a_tenant_whose_jobs_are_slow_does_not_hold_all_slots[sqlite-5]",
        ),
    ),
    Breakage(
        "queries-without-end",
        "that SQLite stops a query when its time is over",
        "recall_server.storage.sqlite:SqliteDriver._read_with",
        Argument("Transaction", 2, "300 * original"),
        (
            "tests/faults/test_slow_queries.py::test_a_query_that_would_not_end_is_stopped_and_leaves_a_sound_connection[sqlite-in a transaction]",
        ),
    ),
    Breakage(
        "gone-and-gone-on",
        "that a query ends with its caller",
        "recall_server.storage.sqlite.connection:_Batch.over",
        Forgets("unwanted"),
        (
            "tests/faults/test_slow_queries.py::test_a_query_whose_caller_has_gone_is_not_gone_on_with[sqlite-in a transaction]",
        ),
    ),
    Breakage(
        "snapshots-without-end",
        "that a snapshot ends when it has lasted too long",
        "recall_server.storage.sqlite:SqliteDriver.snapshot",
        Argument("call_later", 0, "86_400"),
        ("tests/faults/test_journal.py::test_a_snapshot_that_is_held_too_long_is_let_go[sqlite]",),
    ),
    Breakage(
        "standby-asked",
        "that the host that accepts writes is chosen",
        "recall_server.storage.postgres:_WRITABLE",
        Entry("target_session_attrs", '"any"'),
        (
            "tests/faults/test_standby.py::test_a_standby_that_lags_is_asked_nothing_and_alone_it_is_refused",
        ),
    ),
    Breakage(
        "cancelled-and-told-otherwise",
        "that a caller stays cancelled if its commit fails",
        "recall_server.storage.driver:run_uncancelled",
        OnlyIf("cancelled", code="task.exception() is None"),
        (
            "tests/integration/storage/test_uncancelled.py::test_who_is_cancelled_meanwhile_is_cancelled_after_it_whatever_came_of_it[it fails]",
        ),
    ),
    Breakage(
        "stopped-and-told-otherwise",
        "that a cancelled caller on Postgres stays cancelled, whatever psycopg raises",
        "recall_server.storage.driver:cancelled_as_such",
        Never("current_task"),
        (
            "tests/integration/storage/test_uncancelled.py::test_a_failure_that_is_made_of_a_cancellation_is_one",
        ),
    ),
    Breakage(
        "any-number-of-values",
        "the limit of values in a request of A2A",
        "recall_server.api.a2a.errors:_check_size",
        Never("VALUES_MAX"),
        (
            "tests/security/test_event_loop.py::test_what_takes_long_does_not_hold_up_the_others[sqlite-many values in a data part]",
        ),
    ),
    Breakage(
        "kept-and-not-counted",
        "that the bytes of a task are counted",
        "recall_server.storage.tables.access:bytes_of",
        Body("return 0"),
        (
            "tests/security/test_kept_bytes.py::test_the_database_grows_by_no_more_than_is_counted[sqlite-dry_runs]",
            "tests/security/test_quota.py::test_a_full_namespace_writes_no_more_and_all_else_goes_on[sqlite]",
        ),
    ),
    Breakage(
        "questions-again",
        "that an answer that is not understood brings no event with all questions",
        "recall_server.services.tasks.transitions:prepared",
        Instead("replace", "after.status"),
        (
            "tests/security/test_kept_bytes.py::test_an_answer_that_is_not_understood_leaves_a_line[sqlite]",
        ),
    ),
    Breakage(
        "a-turn-a-letter",
        "that very short paragraphs of a long text are joined",
        "recall_server.domain.text.transcript:TURNS_MIN",
        Value("10**9"),
        ("tests/security/test_kept_bytes.py::test_very_short_paragraphs_are_joined[sqlite]",),
    ),
    Breakage(
        "compared-with-all",
        "the limit of memories that a claim is compared with",
        "recall_server.storage.tables.memories:RELATED_MAX",
        Value("10**9"),
        (
            "tests/security/test_bounds.py::test_a_claim_is_compared_with_no_more_memories_than_is_allowed[sqlite-one]",
        ),
    ),
    Breakage(
        "masked-on-the-loop",
        "that masking lets other callers go on",
        "recall_server.integrations.redaction:SecretRedactor.redact",
        Body("return redacted(parts)"),
        (
            "tests/security/test_bounds.py::test_masking_lets_the_others_go_on_however_a_text_is_cut",
        ),
    ),
    Breakage(
        "crowds-go-on",
        "that a crowd of calls waits for the single call of another",
        "recall_server.storage.store:Store.transaction",
        Without("yield_to_others"),
        (
            "tests/integration/storage/test_fair_turns.py::test_a_transaction_of_a_crowd_waits_for_the_single_call_of_another",
        ),
    ),
    Breakage(
        "anonymous-without-limit",
        "that calls without a token have a limit",
        "recall_server.api.callers:BearerAuth.__call__",
        Instead("_too_many", "None"),
        (
            "tests/security/test_before_the_token.py::test_every_path_that_needs_no_token_has_a_limit_by_address[sqlite-/v1/receipts/receipt_0]",
        ),
    ),
    Breakage(
        "bodies-before-tokens",
        "that no body is read before the token is known",
        "recall_server.api.callers:BearerAuth.__call__",
        Instead("_bearer", "[_bearer(scope), [await receive() for _ in range(9)]][0]"),
        (
            "tests/security/test_before_the_token.py::test_a_body_is_not_waited_for_before_the_token_is_known[/mcp-sqlite]",
        ),
    ),
    Breakage(
        "places-for-the-first",
        "that connections are shared by address",
        "recall_server.server:Connections.add",
        Forgets("_made_place"),
        (
            "tests/security/test_before_the_token.py::test_silent_connections_of_one_address_leave_the_others_their_places[sqlite]",
        ),
    ),
    Breakage(
        "background-work-ends",
        "that background work continues after an unexpected error",
        "recall_server.services.supervision:Supervisor.keep",
        Body("await begin()"),
        ("tests/faults/test_supervision.py::test_work_is_begun_anew_until_it_returns[sqlite]",),
    ),
    Breakage(
        "shared-files-served",
        "that no server starts on a key or a file that others can read",
        "recall_server.doctor:_OTHERS",
        Value("0"),
        (
            "tests/security/test_doctor.py::test_modes_that_let_others_in_are_named[recall.db-wal-388-database_file-fail]",
        ),
    ),
    Breakage(
        "audit-log-last",
        "that the audit log is locked behind the namespace, and before any row",
        "recall_server.storage.store:Transaction.lock",
        Never("entry"),
        (
            "tests/security/test_lock_order.py::test_every_operation_locks_the_namespace_then_its_audit_log_and_then_the_rest[postgres]",
        ),
    ),
    Breakage(
        "tasks-under-the-lock",
        "that a task is read before the transaction that changes it",
        "recall_server.services.tasks.transitions:change_ahead",
        Body("async with change() as tx:\n    return await write(tx, await plan(tx))"),
        (
            "tests/security/test_tasks_ahead.py::test_a_task_is_read_before_the_lock_whatever_changes_it",
            "tests/security/test_kept_bytes.py::test_a_task_that_is_answered_or_cancelled_is_read_before_the_lock",
        ),
    ),
    Breakage(
        "large-tasks-of-a-token",
        "that a revocation reads small tasks only",
        "recall_server.services.tasks.transitions:Ending._unfinished",
        Never("at_least_one"),
        (
            "tests/security/test_tasks_ahead.py::test_a_task_is_read_before_the_lock_whatever_changes_it",
        ),
    ),
    Breakage(
        "expiry-after-the-end-of-a-token",
        "that time decides nothing for a token that was revoked since",
        "recall_server.services.tasks:Tasks.expire",
        Never("ended_with_token", "cancels"),
        (
            "tests/security/test_tasks_ahead.py::test_a_revocation_that_comes_before_the_expiry_is_written_ends_the_task",
        ),
    ),
    Breakage(
        "erased-plans",
        "that a plan that was erased since it was read is not applied",
        "recall_server.services.tasks.consolidate:Consolidate._add",
        Never("plan_id", "version"),
        (
            "tests/security/test_tasks_ahead.py::test_a_plan_that_is_erased_while_it_is_read_is_not_applied",
        ),
    ),
    Breakage(
        "reads-of-any-length",
        "that the loop reads little of one connection before it serves others",
        "recall_server.server:READ_BYTES_MAX",
        Value("262_144"),
        (
            "tests/security/test_event_loop.py::test_what_is_refused_does_not_hold_up_the_others[chunks of one byte, without a token-sqlite]",
        ),
    ),
)
