"""How the audit log is written: with the effect or not at all, one after the
other, and never again touched.
"""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from recall_server import shipped
from recall_server.api.app import create_app
from recall_server.application import Application
from recall_server.bootstrap import open_application, working
from recall_server.domain.context import Context
from recall_server.domain.errors import AuditUnavailable, DatabaseUnusable
from recall_server.domain.query import Query
from recall_server.integrations.audit_files import verified_checkpoint
from recall_server.server import bound, listening
from recall_server.services.memory.ingest import Submission
from recall_server.storage import driver_for
from recall_server.storage.migrations import migrate
from tests.support.application import Open, settings_for
from tests.support.audit import ALICE, ALLOW, BOB, REFUSE, Database, enter, line, more, recall
from tests.support.engines import ENGINES, Postgres, on_postgres
from tests.support.mcp_clients import request
from tests.support.models import Reply
from tests.support.processes import until
from tests.support.receivers import Receiver
from tests.support.runtime import NOON
from tests.support.server import Running

WITHIN_S = 60.0


async def _script(built: Application, statements: dict[str, str]) -> None:
    async with built.store.driver.migration() as raw:
        await raw.script(statements[built.store.engine])


async def _counted(built: Application) -> dict[str, int]:
    tables = ("episodes", "turns", "terms", "operations", "tool_call_records", "audit_details")
    async with built.store.driver.transaction(namespace=ALICE, write=False) as raw:
        return {
            table: (await raw.fetch(f"SELECT count(*) AS n FROM {table}", {}))[0]["n"]
            for table in tables
        }


async def _asked(http: httpx2.AsyncClient, tool: str, **arguments: object) -> dict[str, Any]:
    headers, body = request("tools/call", {"name": tool, "arguments": arguments}, modern=False)
    answer = await http.post("/mcp", headers=headers, json=body)
    envelope: dict[str, Any] = answer.json()["result"]["structuredContent"]
    return envelope


async def _answered_and_not_recorded(built: Application, http: httpx2.AsyncClient) -> None:
    """A read that is answered before its record fails."""
    answer = await _asked(http, "search_memories", query="heron")
    assert answer["status"] == "ok"
    with pytest.raises(AuditUnavailable):
        await built.services.audit.reads.flush()


CALLS: tuple[tuple[str, dict[str, str]], ...] = (
    ("store_memory", {"text": "A heron stood by the pond."}),
    ("search_memories", {"query": "heron"}),
    ("inspect_memories", {}),
    ("get_memory_stats", {}),
)


async def test_what_cannot_be_recorded_neither_happens_nor_is_answered(open_app: Open) -> None:
    """The database refuses the record, and nothing else; of reads one batch was answered before."""
    async with (
        open_app(port=0) as built,
        listening(create_app(built), built.settings, bound(built.settings)) as address,
    ):
        running = Running(built, address)
        async with running.http(await running.token()) as http:
            await _asked(http, *CALLS[0][:1], text="The heron was grey.")
            before = await _counted(built)
            await _script(built, REFUSE)
            await _answered_and_not_recorded(built, http)
            refused = [await _asked(http, tool, **given) for tool, given in CALLS]
            book = await http.get("/v1/audit")
            left = await _counted(built)
            await _script(built, ALLOW)
            await built.services.audit.reads.flush()
            control = [await _asked(http, tool, **given) for tool, given in CALLS]

    for answer in refused:
        assert answer["status"] == "error"
        assert set(answer) == {"status", "code", "message"}
    for text in (str(refused), book.text):
        assert "canary" not in text
    assert (book.status_code, book.json()["status"]) == (503, 503)
    assert left == before
    assert [answer["status"] for answer in control] == ["ok"] * len(CALLS)


@on_postgres
async def test_without_the_right_to_write_the_book_the_server_is_unavailable(
    open_app: Open,
) -> None:
    """A privilege that was revoked; 503 and nothing done."""
    async with (
        open_app(port=0) as built,
        listening(create_app(built), built.settings, bound(built.settings)) as address,
    ):
        running = Running(built, address)
        async with running.http(await running.token()) as http:
            before = await _counted(built)
            async with built.store.driver.migration() as raw:
                await raw.script("REVOKE INSERT ON tool_call_records FROM recall_app")
            await _answered_and_not_recorded(built, http)
            refused = [await _asked(http, tool, **given) for tool, given in CALLS]
            plain = await http.get("/v1/conflicts")
            left = await _counted(built)
            async with built.store.driver.migration() as raw:
                await raw.script("GRANT INSERT ON tool_call_records TO recall_app")

    reads = ["AUDIT_UNAVAILABLE"] * 3
    assert [answer["code"] for answer in refused] == ["DATABASE_UNUSABLE", *reads]
    assert plain.status_code == 503
    assert left == before


async def test_fifty_who_write_at_once_make_one_chain(database: Database, open_app: Open) -> None:
    """In two processes' worth of houses, beside another tenant's chain."""
    async with (
        open_app() as one,
        open_application(settings_for(database, embedder="none")) as two,
    ):
        await enter(one, ALICE, BOB)
        await asyncio.gather(
            *(built.services.audit.write(line(built)) for built in (one, two) for _ in range(25)),
            *(one.services.audit.write(line(one, BOB)) for _ in range(5)),
        )
        alice = await one.services.verification.verify(ALICE)
        bob = await two.services.verification.verify(BOB)
        async with one.store.transaction(ALICE, write=False) as tx:
            records = await tx.audit.chained(0, 100)

    assert (alice.seq, bob.seq) == (51, 6)
    assert [record["seq"] for record in records] == list(range(1, 52))
    assert [record["prev"] for record in records[1:]] == [r["digest"] for r in records[:-1]]


async def test_what_fails_takes_no_place_in_the_chain(open_app: Open) -> None:
    async with open_app() as built:
        await enter(built, ALICE)
        with suppress(ZeroDivisionError):
            async with built.store.transaction(ALICE, entry=line(built)) as tx:
                await tx.lock()
                raise ZeroDivisionError
        await more(built, 1)
        found = await built.services.verification.verify(ALICE)

    assert found.seq == 2


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tool_call_records SET code = 'INNOCENT'",
        "DELETE FROM tool_call_records",
        "UPDATE audit_details SET details = '{}'",
        "DELETE FROM audit_heads",
    ],
)
async def test_the_application_itself_cannot_change_the_book(
    open_app: Open, statement: str
) -> None:
    async with open_app() as built:
        if built.store.engine == "sqlite" and "tool_call_records" not in statement:
            statement = "DELETE FROM tool_call_records WHERE seq = 1"
        await enter(built, ALICE)
        with pytest.raises((DatabaseUnusable, sqlite3.IntegrityError), match=r"never|may not"):
            async with built.store.driver.transaction(namespace=ALICE, write=True) as raw:
                await raw.fetch(statement, {})
        # The control: what it may do there.
        async with built.store.driver.transaction(namespace=ALICE, write=True) as raw:
            await raw.fetch("DELETE FROM audit_details", {})
        found = await built.services.verification.verify(ALICE)

    assert (found.seq, found.details_erased) == (1, 1)


async def test_a_record_outside_of_the_chain_is_not_taken(open_app: Open) -> None:
    async with open_app() as built:
        await enter(built, ALICE)
        with pytest.raises((sqlite3.IntegrityError, psycopg.errors.CheckViolation)):
            async with built.store.driver.transaction(namespace=ALICE, write=True) as raw:
                await raw.fetch(_OLD, {})


_OLD = (
    "INSERT INTO tool_call_records (namespace, id, at, door, operation, request_id, ids, counts, "
    "outcome, milliseconds) VALUES ('alice', 'rec_old', '2026-01-01T00:00:00.000000+00:00', 'mcp', "
    "'store_memory', 'req_old', '[]', '{}', 'ok', 1.5)"
)


@pytest.fixture(params=ENGINES)
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database without tables."""
    if request.param == "sqlite":
        yield tmp_path / "recall.db"
        return
    server: Postgres = request.getfixturevalue("postgres")
    with server.database() as url:
        yield url


async def test_records_from_before_the_chain_are_kept_and_counted(
    empty: Database, tmp_path: Path
) -> None:
    folder = tmp_path / "before"
    folder.mkdir()
    for path in shipped("migrations").glob("*.sql"):
        if "chain" not in path.name:
            shutil.copy(path, folder)
    # What comes after the chain would leave a gap.
    chained = next(p.name[:4] for p in shipped("migrations").glob("*_chain.sqlite.sql"))
    for path in folder.iterdir():
        if path.name[:4] > chained:
            path.unlink()
    driver = driver_for(empty)
    await driver.open()
    await migrate(driver, folder, NOON)
    async with driver.migration() as raw:
        await raw.script(
            "INSERT INTO namespaces (namespace, created_at) "
            "VALUES ('alice', '2026-01-01T00:00:00.000000+00:00')"
        )
        await raw.script(_OLD)
    await driver.close()
    async with open_application(settings_for(empty, embedder="none")) as built:
        before = await built.services.verification.verify(ALICE)
        await more(built, 2)
        after = await built.services.verification.verify(ALICE)
        shown = await built.services.audit.newest(ALICE, 10)

    assert (before.seq, before.unchained) == (0, 1)
    assert (after.seq, after.unchained) == (2, 1)
    assert [record.id for record in shown][-1] == "rec_old"


async def test_details_stand_beside_the_book_and_words_nowhere(open_app: Open) -> None:
    async with open_app() as built:
        await enter(built, ALICE)
        audit, recall_ = built.services.audit, built.services.recall
        await built.services.ingest.remember(
            Context(audit.begin(ALICE, "store_memory", "test", None)),
            Submission("The canary sang.", "birds"),
        )
        searched = audit.begin(ALICE, "search_memories", "test", None, read_only=True)
        await recall_.search(Context(searched), Query(text="which canary sang"))
        await audit.note(searched)
        await audit.reads.flush()
        async with built.store.transaction(ALICE, write=False) as tx:
            records = await tx.audit.chained(0, 10)

    details = [record.pop("details")["values"] for record in records]
    assert details == [{"label": "laptop of alice"}, {"topic": "birds"}, {"mode": "hybrid"}]
    assert "canary" not in json.dumps(records) + json.dumps(details)
    assert "birds" not in json.dumps(records)


async def test_checkpoints_are_written_of_what_has_grown(open_app: Open, tmp_path: Path) -> None:
    path = tmp_path / "kept.jws"
    async with Receiver() as receiver:
        given = {"checkpoint_file": path, "checkpoint_url": receiver.url, "checkpoint_s": 0.05}
        async with open_app(**given) as built:
            await enter(built, ALICE, BOB)

            async def vouched_for(*wanted: tuple[str, int]) -> bool:
                lines = path.read_text().splitlines() if path.exists() else []
                found = [verified_checkpoint(one, built.key.public) for one in lines]
                return [(one.namespace, one.seq) for one in found] == list(wanted)

            async def first() -> bool:
                return await vouched_for(("alice", 1), ("bob", 1))

            async def second() -> bool:
                return await vouched_for(("alice", 1), ("bob", 1), ("bob", 2))

            async def told() -> bool:
                return b"".join(one.body for one in receiver.requests) == path.read_bytes()

            async with working(built):
                await until(first, WITHIN_S, "both are vouched for")
                await more(built, 1, BOB)
                await until(second, WITHIN_S, "bob's is vouched for again, alice's is not")
                # Who stops just after the file was written has not told the address yet.
                await until(told, WITHIN_S, "the address has what the file has")
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_checkpoint_that_found_no_place_is_written_later(open_app: Open) -> None:
    async with (
        Receiver(Reply(status=500)) as receiver,
        open_app(checkpoint_url=receiver.url, checkpoint_s=0.05) as built,
    ):
        await enter(built, ALICE)

        async def twice() -> bool:
            return len(receiver.requests) == 2

        async with working(built):
            await until(twice, WITHIN_S, "it is sent again")
        first, second = (
            verified_checkpoint(r.body.decode().strip(), built.key.public)
            for r in receiver.requests
        )

    assert (first.seq, first.digest) == (second.seq, second.digest)


@pytest.mark.usefixtures("nothing_set")
def test_who_reads_the_book_of_a_namespace_is_in_it(database: Database, tmp_path: Path) -> None:
    recall(database, "create-token", "alice")
    for command in (
        ("audit", "tail", "--namespace", "alice"),
        ("audit", "export", "alice", "--out", tmp_path / "book.jsonl"),
        ("audit", "checkpoint", "alice"),
        ("audit", "verify", "--namespace", "alice"),
        ("tokens", "list", "alice"),
        ("conflicts", "list", "alice"),
        ("conflicts", "policy", "alice"),
    ):
        assert recall(database, *command).code == 0, command
    of_nobody = recall(database, "tokens", "list", "nobody")
    book = recall(database, "audit", "tail", "--json")

    assert of_nobody.code == 2
    assert [one["operation"] for one in json.loads(book.out)] == [
        "create_token",
        "read_audit",
        "export_audit",
        "checkpoint_audit",
        "verify_audit",
        "list_tokens",
        "list_conflicts",
        "get_policy",
    ]


@pytest.mark.usefixtures("nothing_set")
def test_a_checkpoint_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "recall.db")):
        pass
    recall(tmp_path / "recall.db", "create-token", "alice")
    link, folder, good = tmp_path / "link", tmp_path / "folder", tmp_path / "good"
    link.symlink_to(tmp_path / "target")
    folder.mkdir()
    said = {
        path.name: recall(
            tmp_path / "recall.db", "audit", "checkpoint", recall_checkpoint_file=path
        ).code
        for path in (link, folder, good)
    }

    assert said == {"link": 2, "folder": 2, "good": 0}
    assert not (tmp_path / "target").exists()
