"""The book: written with what it tells of, and evidence that cannot be forged."""

from tests.sabotage.breakage import Breakage

BREAKAGES = (
    Breakage(
        "record-by-itself",
        "that a record is written in the transaction of its effect",
        "recall_server/storage/store.py",
        """            yield transaction
            if entry is not None:
                await transaction.audit.record(entry)
        if entry is not None:
            entry.written = True
""",
        """            yield transaction
        if entry is not None:
            async with self.transaction(namespace, erasing=erasing) as own:
                await own.audit.record(entry)
            entry.written = True
""",
        (
            "tests/surface/test_faults.py::test_a_write_that_cannot_be_entered_in_the_book_does_not_happen",
        ),
    ),
    Breakage(
        "field-beside-digest",
        "one field from the digest of a record",
        "recall_server/domain/security/audit_chain.py",
        '_BESIDE = frozenset({"digest", "mac", "details"})',
        '_BESIDE = frozenset({"digest", "mac", "details", "counts"})',
        ("tests/domain/test_chain.py::test_every_field_is_under_the_digest",),
    ),
    Breakage(
        "mac-not-checked",
        "the server's own code on each record",
        "recall_server/domain/security/audit_chain.py",
        "if self._mac_key is not None and not hmac.compare_digest(",
        "if self._mac_key == b'' and not hmac.compare_digest(",
        (
            "tests/domain/test_chain.py::test_without_the_key_nobody_continues_the_chain",
            "tests/security/test_audit.py::test_whatever_is_done_to_the_book_is_named[sqlite-edit a code of the key]",
        ),
    ),
    Breakage(
        "chain-not-followed",
        "that each record carries the digest of the one before",
        "recall_server/domain/security/audit_chain.py",
        'if record["prev"] != self.head.digest:',
        'if not record["prev"]:',
        ("tests/domain/test_chain.py::test_what_is_dropped_moved_or_added_is_named",),
    ),
    Breakage(
        "checkpoint-unsigned",
        "the signature of a checkpoint",
        "recall_server/integrations/checkpoints.py",
        "jwt.decode_complete(token, key, algorithms=[ALG])",
        'jwt.decode_complete(token, key, algorithms=[ALG], options={"verify_signature": False})',
        (
            "tests/security/test_audit_exports.py::test_the_operators_key_wins_over_the_one_in_the_export",
        ),
    ),
    Breakage(
        "checkpoint-of-any-kind",
        "that only a checkpoint is one",
        "recall_server/integrations/checkpoints.py",
        'if header["typ"] != TYP or not',
        "if not",
        (
            "tests/security/test_audit_exports.py::test_a_checkpoint_is_not_taken_for_something_else",
        ),
    ),
    Breakage(
        "book-not-append-only",
        "that SQLite refuses to change a record",
        "migrations/0008_chain.sqlite.sql",
        "BEFORE DELETE ON tool_call_records\nBEGIN\n"
        "  SELECT RAISE(ABORT, 'the book is never shortened');\n",
        "BEFORE DELETE ON tool_call_records\nBEGIN\n  SELECT 1;\n",
        (
            "tests/security/test_audit_writes.py::test_the_application_itself_cannot_change_the_book",
        ),
    ),
)
