"""The audit log is written with the effect that it records, and its evidence cannot be forged."""

from tests.sabotage.breakage import Breakage
from tests.sabotage.changes import Argument, Body, Never, Replaced, Value, Without
from tests.sabotage.queries import Statement

# The record is written after the transaction of its effect.
BY_ITSELF = """
async def transaction(self, namespace, *, entry=None, erasing=False, **given):
    async with self._original_transaction(
        namespace, entry=entry, erasing=erasing, **given
    ) as transaction:
        yield transaction
    if entry is not None:
        async with self._original_transaction(namespace, erasing=erasing) as own:
            await own.audit.record(entry)
        entry.written = True
"""

BREAKAGES = (
    Breakage(
        "record-by-itself",
        "that a record is written in the transaction of its effect",
        "recall_server.storage.store:Store.transaction",
        (Without("record"), Replaced(BY_ITSELF)),
        (
            "tests/api/test_faults.py::test_a_write_that_cannot_be_entered_in_the_book_does_not_happen",
        ),
    ),
    Breakage(
        "reads-never-refused",
        "that reads are refused while their records cannot be written",
        "recall_server.services.audit:ReadLog.check",
        Body("pass"),
        (
            "tests/security/test_read_log.py::test_where_records_cannot_be_written_reads_are_refused_until_they_can[sqlite]",
        ),
    ),
    Breakage(
        "reads-lost-on-stop",
        "that a server which stops writes the records of reads that wait",
        "recall_server.services.audit:ReadLog.close",
        Without("flush"),
        (
            "tests/security/test_read_log.py::test_a_server_that_stops_writes_the_records_that_wait[sqlite]",
        ),
    ),
    Breakage(
        "reads-written-twice",
        "that a batch whose commit was not answered is looked for before it is written again",
        "recall_server.services.audit:write_reads",
        Never("again"),
        (
            "tests/security/test_read_log.py::test_a_batch_whose_commit_was_not_answered_is_not_written_twice[sqlite]",
        ),
    ),
    Breakage(
        "field-beside-digest",
        "one field from the digest of a record",
        "recall_server.domain.audit:_NOT_DIGESTED",
        Value('original | {"counts"}'),
        ("tests/unit/test_chain.py::test_every_field_is_under_the_digest",),
    ),
    Breakage(
        "mac-not-checked",
        "the server's own code on each record",
        "recall_server.domain.audit:Verifier._check",
        Never("compare_digest"),
        (
            "tests/unit/test_chain.py::test_without_the_key_nobody_continues_the_chain",
            "tests/security/test_audit.py::test_whatever_is_done_to_the_book_is_named[sqlite-edit a code of the key]",
        ),
    ),
    Breakage(
        "chain-not-followed",
        "that each record carries the digest of the one before",
        "recall_server.domain.audit:Verifier._check",
        Never("prev"),
        ("tests/unit/test_chain.py::test_what_is_dropped_moved_or_added_is_named",),
    ),
    Breakage(
        "checkpoint-unsigned",
        "the signature of a checkpoint",
        "recall_server.integrations.keys:verified",
        Argument("decode", "options", '{**original, "verify_signature": False}'),
        (
            "tests/security/test_audit_exports.py::test_the_operators_key_wins_over_the_one_in_the_export",
        ),
    ),
    Breakage(
        "checkpoint-of-any-kind",
        "that only a checkpoint is one",
        "recall_server.integrations.keys:verified",
        Never("get_unverified_header"),
        (
            "tests/security/test_audit_exports.py::test_a_checkpoint_is_not_taken_for_something_else",
        ),
    ),
    Breakage(
        "cut-of-any-kind",
        "that only a statement of a cut is one",
        "recall_server.integrations.keys:verified",
        Never("get_unverified_header"),
        (
            "tests/security/test_audit_retention.py::test_a_statement_is_not_taken_for_something_else[sqlite]",
        ),
    ),
    Breakage(
        "book-not-append-only",
        "that SQLite refuses to change a record",
        "migrations/0039_retention.sqlite.sql",
        Statement(
            "SELECT RAISE(ABORT, 'what is not cut of the audit log is never deleted');",
            "SELECT 1;",
        ),
        (
            "tests/security/test_audit_writes.py::test_the_application_itself_cannot_change_the_book",
        ),
    ),
)
