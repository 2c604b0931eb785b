"""An export of the audit log that was changed on its way, and which key is trusted."""

import errno
import json
import socket
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from recall_server.domain.audit import Checkpoint
from recall_server.domain.errors import Invalid
from recall_server.domain.ids import Namespace
from recall_server.integrations.audit_files import CHECKPOINT_TYP, signed, verified_checkpoint
from recall_server.integrations.keys import ServerKey
from recall_server.services.audit.verification import Verification
from tests.support.audit import (
    ALICE,
    BOB,
    Database,
    Record,
    as_owner,
    export,
    fill,
    named,
    parsed,
    public,
    rebuilt,
    recall,
    vouch,
    written,
)
from tests.support.engines import on_sqlite

pytestmark = [
    pytest.mark.usefixtures("nothing_set"),
    # A file of lines of any origin.
    on_sqlite,
]

# Ten records of the audit log, and the one that the export leaves.
RECORDS = 11
Lines = list[Record]


def _edited(lines: Lines) -> Lines:
    return [{**one, "counts": {}} if one.get("seq") == 4 else one for one in lines]


def _forged(lines: Lines) -> Lines:
    """Rebuild an export from record 4 on, with another key."""
    manifest, *records, _ = lines
    key = ServerKey.from_private(Ed25519PrivateKey.generate())
    records = rebuilt(records, 4, b"x" * 32)
    last = Checkpoint(ALICE, RECORDS, records[-1]["digest"], "2026-03-01T12:00:00+00:00")
    return [{**manifest, "key": dict(key.public)}, *records, {"seal": signed(key, last)}]


TAMPERS: dict[str, tuple[Callable[[Lines], Lines], int]] = {
    "edit": (_edited, 4),
    "delete": (lambda lines: [one for one in lines if one.get("seq") != 4], 4),
    "reorder": (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], 3),
    "repeat": (lambda lines: [*lines[:4], *lines[3:]], 4),
    "truncate, with the seal": (lambda lines: lines[:8], 8),
    "truncate, before the seal": (lambda lines: [*lines[:8], lines[-1]], 8),
    "no seal": (lambda lines: lines[:-1], RECORDS + 1),
    "add after the seal": (lambda lines: [*lines, lines[-2]], RECORDS + 1),
    "rebuild": (lambda lines: [lines[0], *rebuilt(lines[1:-1], 4, b"x" * 32), lines[-1]], 1),
    "edit the details": (
        lambda lines: [
            {**one, "details": {**one["details"], "values": {"topic": "x"}}}
            if one.get("seq") == 4
            else one
            for one in lines
        ],
        4,
    ),
    "not a record": (lambda lines: [*lines[:4], {}, *lines[5:]], 4),
}


@pytest.mark.parametrize("name", TAMPERS)
def test_an_export_that_was_changed_on_its_way_does_not_verify(
    database: Database, tmp_path: Path, name: str
) -> None:
    tamper, first = TAMPERS[name]
    fill(database)
    path = export(database, tmp_path / "book.jsonl")
    control = recall(None, "audit", "verify", path)

    written(path, tamper(parsed(path)))
    said = recall(None, "audit", "verify", path)

    assert control.code == 0, control.err
    assert named(said, first), said


def test_the_operators_key_wins_over_the_one_in_the_export(
    database: Database, tmp_path: Path
) -> None:
    """An attacker who rewrites a whole export can put another key into it."""
    fill(database)
    path = export(database, tmp_path / "book.jsonl")
    key = public(path)
    kept = vouch(database, tmp_path / "kept.jws")
    good = recall(None, "audit", "verify", path, "--key", key)

    written(path, _forged(parsed(path)))
    believed = recall(None, "audit", "verify", path)
    refused = recall(None, "audit", "verify", path, "--key", key)
    by_checkpoint = recall(None, "audit", "verify", path, "--checkpoints", kept, "--key", key)
    wrong_key = recall(None, "audit", "verify", path, "--checkpoints", kept)

    assert good.code == 0
    assert "of the operator" in good.err
    assert "of the export itself: give --key" in believed.err
    assert believed.code == 0
    assert named(refused, 1), refused
    assert by_checkpoint.code == 1
    assert (wrong_key.code, "Line 1" in wrong_key.err) == (2, True)


def test_records_of_two_namespaces_cannot_be_exchanged(database: Database, tmp_path: Path) -> None:
    fill(database, 10, ALICE, BOB)
    alice = parsed(export(database, tmp_path / "alice.jsonl"))
    bob = parsed(export(database, tmp_path / "bob.jsonl", "bob"))
    path = tmp_path / "mixed.jsonl"

    written(path, [*alice[:3], bob[3], *alice[4:]])
    row = recall(None, "audit", "verify", path)
    written(path, [alice[0], *bob[1:]])
    book = recall(None, "audit", "verify", path)
    written(path, [*alice[:-1], bob[-1]])
    seal = recall(None, "audit", "verify", path)

    assert named(row, 3), row
    assert named(book, 1), book
    assert named(seal, 1), seal


def test_verifying_an_export_takes_no_database_and_no_network(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(database)
    path = export(database, tmp_path / "book.jsonl")
    kept = vouch(database, tmp_path / "kept.jws")
    assert isinstance(database, Path)
    database.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    def none(*_: Any) -> None:
        raise AssertionError("it connects")

    monkeypatch.setattr(socket.socket, "connect", none)
    said = recall(None, "audit", "verify", path, "--checkpoints", kept, "--json")

    assert said.code == 0, said.err
    (found,) = json.loads(said.out)
    assert (found["seq"], found["vouched_for"]) == (RECORDS, RECORDS)
    assert not list(elsewhere.iterdir())


def test_what_cannot_be_verified_is_refused_in_one_line(database: Database, tmp_path: Path) -> None:
    fill(database)
    path = export(database, tmp_path / "book.jsonl")
    kept = vouch(database, tmp_path / "kept.jws")
    junk = tmp_path / "junk"
    for content in ("", "junk\n", '{"format": "other/1"}\n', "\udcff"):
        junk.write_bytes(content.encode(errors="surrogateescape"))
        assert recall(None, "audit", "verify", junk).code == 2
    junk.write_text(kept.read_text()[:-30] + "\n")
    forged = recall(None, "audit", "verify", path, "--checkpoints", junk)
    junk.write_text('{"kty": "RSA"}')
    no_key = recall(None, "audit", "verify", path, "--key", junk)
    both = recall(None, "audit", "verify", path, "--db", str(database))
    again = recall(database, "audit", "export", "alice", "--out", path)
    unknown = recall(database, "audit", "export", "nobody")

    for said in (forged, no_key, both, again, unknown):
        assert said.code == 2, said
        assert said.err.strip().count("\n") <= 1
    assert recall(None, "audit", "verify", path, "--checkpoints", kept).code == 0


def test_a_checkpoint_is_not_taken_for_something_else(database: Database) -> None:
    """A statement that the same key has signed for another purpose confirms nothing (RFC 8725
    3.11).
    """
    del database
    key = ServerKey.from_private(Ed25519PrivateKey.generate())
    at = datetime(2026, 3, 1, tzinfo=UTC).isoformat()
    claims = {"namespace": "alice", "seq": 1, "digest": "f" * 64, "at": at}
    assert verified_checkpoint(key.sign(claims, CHECKPOINT_TYP), key.public).seq == 1
    for token in (
        key.sign(claims, "recall-receipt+jwt"),
        ServerKey.from_private(Ed25519PrivateKey.generate()).sign(claims, CHECKPOINT_TYP),
        key.sign({**claims, "seq": "1"}, CHECKPOINT_TYP),
        key.sign({"namespace": "alice"}, CHECKPOINT_TYP),
        "junk",
    ):
        with pytest.raises(Invalid):
            verified_checkpoint(token, key.public)


def test_what_erases_the_details_leaves_the_proof(database: Database, tmp_path: Path) -> None:
    fill(database)
    before = parsed(export(database, tmp_path / "before.jsonl"))
    as_owner(database, "DELETE FROM audit_details WHERE namespace = 'alice'")
    path = export(database, tmp_path / "after.jsonl")
    said = recall(None, "audit", "verify", path)

    assert "laptop of alice" in json.dumps(before)
    assert "laptop of alice" not in path.read_text()
    assert said.code == 0
    assert "details of 10 erased" in said.out
    assert [one["digest"] for one in before[1:-1]] == [
        one["digest"] for one in parsed(path)[1 : len(before) - 1]
    ]


def test_a_book_has_its_name_when_it_is_whole(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export that was cut off leaves no file, not even half of one."""
    fill(database)
    path = tmp_path / "exports" / "book.jsonl"
    path.parent.mkdir()
    whole = Verification.export

    async def cut_off(self: Verification, namespace: Namespace) -> AsyncIterator[str]:
        async for line in whole(self, namespace):
            yield line
            assert [one.name for one in path.parent.iterdir()] == ["book.jsonl.part"]
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Verification, "export", cut_off)
    said = recall(database, "audit", "export", "alice", "--out", path)
    left = list(path.parent.iterdir())
    monkeypatch.undo()

    assert said.code == 2
    assert "No space left" in said.err
    assert left == []
    assert recall(database, "audit", "export", "alice", "--out", path).code == 0
    assert path.stat().st_mode & 0o777 == 0o600
