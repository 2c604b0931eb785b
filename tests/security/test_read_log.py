"""The records of reads are written after the reply, in order, in batches, and are never lost
without an error.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from recall_server.api.app import create_app
from recall_server.api.operations import BY_NAME
from recall_server.application import Application
from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context
from recall_server.domain.errors import AuditUnavailable, DatabaseUnavailable
from recall_server.domain.ids import Namespace
from recall_server.domain.query import Query
from recall_server.server import bound, listening
from recall_server.services.audit import ReadLog
from recall_server.storage.driver import Connection
from recall_server.storage.store import Store
from tests.support.application import Open
from tests.support.audit import ALICE, ALLOW, BOB, REFUSE, enter
from tests.support.conversation import drained, remember
from tests.support.erasure import select
from tests.support.mcp_clients import request
from tests.support.processes import until
from tests.support.runtime import NOON, Clock
from tests.support.server import WITHIN_S, Running

# This is longer than a test, so only a flush writes.
NEVER_S = 3_600.0


def read(
    built: Application,
    namespace: Namespace = ALICE,
    operation: str = "search_memories",
    accessor: str = "acc_test",
) -> AuditEntry:
    read_only = BY_NAME[operation].read_only
    return built.services.audit.begin(namespace, operation, "test", accessor, read_only=read_only)


async def records(built: Application) -> list[dict[str, Any]]:
    async with built.store.transaction(ALICE, write=False) as tx:
        return await tx.audit.chained(0, 1_000)


async def script(built: Application, statements: dict[str, str]) -> None:
    async with built.store.driver.migration() as raw:
        await raw.script(statements[built.store.engine])


async def search(built: Application, text: str = "jam") -> list[str]:
    entry = read(built)
    found = await built.services.recall.search(Context(entry), Query(text))
    await built.services.audit.note(entry)
    return [hit.item.id for hit in found.hits]


@asynccontextmanager
async def served(open_app: Open) -> AsyncIterator[Running]:
    async with (
        open_app(port=0) as built,
        listening(create_app(built), built.settings, bound(built.settings)) as address,
    ):
        yield Running(built, address)


async def asked(running: Running, token: str, tool: str, **arguments: object) -> dict[str, Any]:
    headers, body = request("tools/call", {"name": tool, "arguments": arguments}, modern=False)
    async with running.http(token) as http:
        answer = await http.post("/mcp", headers=headers, json=body)
    envelope: dict[str, Any] = answer.json()["result"]["structuredContent"]
    return envelope


async def test_a_search_does_not_wait_for_a_change_that_is_under_way(open_app: Open) -> None:
    async with served(open_app) as running:
        token = await running.token()
        stored = await asked(running, token, "store_memory", text="Ann eats jam.")
        async with running.application.store.transaction(ALICE) as tx:
            await tx.lock()
            await tx.audit.require(None)
            found = await asyncio.wait_for(
                asked(running, token, "search_memories", query="jam"), WITHIN_S
            )

    assert stored["status"] == "ok"
    assert [one["text"] for one in found["data"]["results"]] == ["Ann eats jam."]


async def test_records_of_reads_are_written_soon_in_the_order_of_the_replies(
    open_app: Open,
) -> None:
    async with open_app() as built:
        await enter(built, ALICE, BOB)
        entries = [read(built, BOB if i % 5 == 0 else ALICE) for i in range(500)]
        for entry in entries:
            await built.services.audit.note(entry)
        before = len(await records(built))

        async def written() -> bool:
            return (await built.services.verification.verify(ALICE)).seq == 401

        await until(written, WITHIN_S, "the records of alice's reads are written")
        await built.services.audit.reads.flush()
        bobs = await built.services.verification.verify(BOB)
        chained = await records(built)

    assert before == 1
    assert bobs.seq == 101
    expected = [entry.id for entry in entries if entry.namespace == ALICE]
    assert [record["id"] for record in chained[1:]] == expected


async def test_reads_beside_changes_make_one_chain(open_app: Open) -> None:
    async with open_app() as built:
        await enter(built, ALICE)
        await remember(built, "Ann eats jam.")

        async def reading() -> None:
            for _ in range(10):
                await search(built)
                await built.services.audit.reads.flush(ALICE)

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(reading())
            for number in range(10):
                group.create_task(remember(built, f"Ann eats jam number {number}."))
        verified = await built.services.verification.verify(ALICE)

    assert verified.seq == 52


async def test_the_accesses_of_a_batch_are_counted_together(open_app: Open, clock: Clock) -> None:
    async with open_app() as built:
        await enter(built, ALICE)
        await remember(built, "User: My favourite colour is teal.")
        await drained(built)
        shown = await search(built, "favourite colour")
        for _ in range(2):
            clock.pass_(timedelta(minutes=1))
            await search(built, "favourite colour")
        await built.services.audit.reads.flush()
        (memory,) = await select(
            built.store, "SELECT id, access_count, last_accessed_at FROM memories"
        )

    last = NOON + timedelta(minutes=2)
    assert shown == [memory["id"]]
    assert memory["access_count"] == 3
    assert str(memory["last_accessed_at"]).replace(" ", "T").startswith(last.isoformat()[:19])


async def test_the_audit_log_shows_every_read_that_was_answered_before(open_app: Open) -> None:
    async with served(open_app) as running:
        token = await running.token()
        for _ in range(3):
            await asked(running, token, "search_memories", query="jam")
        async with running.http(token) as http:
            shown = (await http.get("/v1/audit")).json()

    operations = [one["operation"] for one in shown["records"]]
    assert operations == [*["search_memories"] * 3, "create_token"]


async def test_an_export_has_the_record_of_every_read_that_was_answered_before(
    open_app: Open,
) -> None:
    async with served(open_app) as running:
        token = await running.token()
        for _ in range(3):
            await asked(running, token, "search_memories", query="jam")
        async with running.http(token) as http:
            lines = [json.loads(line) for line in (await http.get("/v1/export")).text.splitlines()]

    operations = [line["operation"] for line in lines if line["kind"] == "audit"]
    assert sorted(operations) == ["create_token", "export_namespace", *["search_memories"] * 3]


async def test_where_records_cannot_be_written_reads_are_refused_until_they_can(
    open_app: Open,
) -> None:
    async with served(open_app) as running:
        built, token = running.application, await running.token()
        await script(built, REFUSE)
        first = await asked(running, token, "search_memories", query="jam")
        with pytest.raises(AuditUnavailable):
            await built.services.audit.reads.flush()
        refused = await asked(running, token, "search_memories", query="jam")
        async with running.http(token) as http:
            plain, ready = await http.get("/v1/audit"), await http.get("/ready")
            await script(built, ALLOW)
            await built.services.audit.reads.flush()
            again, ready_again = await http.get("/v1/audit"), await http.get("/ready")
        after = await asked(running, token, "search_memories", query="jam")

    assert first["status"] == after["status"] == "ok"
    assert refused["code"] == "AUDIT_UNAVAILABLE"
    assert (plain.status_code, plain.json()["code"]) == (503, "AUDIT_UNAVAILABLE")
    assert (ready.status_code, ready.json()["code"]) == (503, "AUDIT_UNAVAILABLE")
    assert ready_again.status_code == 200
    operations = [one["operation"] for one in again.json()["records"]]
    assert operations == ["search_memories", "create_token"]


async def test_one_namespace_that_cannot_be_written_refuses_no_other(open_app: Open) -> None:
    only_alice = {
        "sqlite": REFUSE["sqlite"].replace(
            "BEGIN SELECT", "WHEN NEW.namespace = 'alice' BEGIN SELECT"
        ),
        "postgres": REFUSE["postgres"].replace(
            "FOR EACH ROW", "FOR EACH ROW WHEN (NEW.namespace = 'alice')"
        ),
    }
    async with open_app() as built:
        await enter(built, ALICE, BOB)
        await script(built, only_alice)
        audit = built.services.audit
        await audit.note(read(built))
        await audit.note(read(built, BOB))
        with pytest.raises(AuditUnavailable):
            await audit.reads.flush(ALICE)
        await audit.reads.flush(BOB)
        with pytest.raises(AuditUnavailable):
            audit.check(read(built))
        audit.check(read(built, BOB))
        await script(built, ALLOW)
        verified = await built.services.verification.verify(BOB)

    assert verified.seq == 2


async def test_where_too_many_records_wait_reads_are_refused_until_they_are_written(
    open_app: Open,
) -> None:
    async with open_app() as built:
        await enter(built, ALICE)
        reads = ReadLog(built.store, built.supervisor, delay_s=NEVER_S, waiting_records_max=2)
        reads.add(read(built))
        reads.add(read(built))
        with pytest.raises(AuditUnavailable):
            reads.add(read(built))
        with pytest.raises(AuditUnavailable):
            reads.check()
        await reads.flush()
        reads.add(read(built))
        await reads.close()
        verified = await built.services.verification.verify(ALICE)

    assert verified.seq == 4


async def test_a_batch_whose_commit_was_not_answered_is_not_written_twice(open_app: Open) -> None:
    async with open_app() as built:
        await enter(built, ALICE)
        store = Store(_LosesTheFirstAnswer(built.store), cache_bytes_max=0, mac_key=_key(built))  # type: ignore[arg-type]
        reads = ReadLog(store, built.supervisor, delay_s=NEVER_S)
        reads.add(read(built))
        with pytest.raises(AuditUnavailable):
            await reads.flush()
        await reads.flush()
        await reads.close()
        verified = await built.services.verification.verify(ALICE)

    assert verified.seq == 2


def _key(built: Application) -> bytes:
    from recall_server.services.audit.verification import PURPOSE  # noqa: PLC0415

    return built.key.derive(PURPOSE)


class _LosesTheFirstAnswer:
    """A driver that commits its first transaction and then fails."""

    def __init__(self, store: Store) -> None:
        self._driver = store.driver
        self.engine = store.engine
        self._answers = False

    @asynccontextmanager
    async def _transaction(self, **how: Any) -> AsyncIterator[Connection]:
        async with self._driver.transaction(**how) as connection:
            yield connection
        if not self._answers:
            self._answers = True
            raise DatabaseUnavailable

    def transaction(self, **how: Any) -> AbstractAsyncContextManager[Connection]:
        return self._transaction(**how)


async def test_a_flush_that_is_cancelled_loses_nothing_and_writes_nothing_twice(
    open_app: Open,
) -> None:
    async with open_app() as built:
        await enter(built, ALICE)
        for turns in range(12):
            await built.services.audit.note(read(built))
            flushing = asyncio.create_task(built.services.audit.reads.flush())
            for _ in range(turns):
                await asyncio.sleep(0)
            flushing.cancel()
            await asyncio.wait({flushing})
        await built.services.audit.reads.flush()
        verified = await built.services.verification.verify(ALICE)

    assert verified.seq == 13


async def test_a_server_that_stops_writes_the_records_that_wait(open_app: Open) -> None:
    async with open_app() as built:
        await enter(built, ALICE)
        await built.services.audit.note(read(built))
    async with open_app() as built:
        verified = await built.services.verification.verify(ALICE)

    assert verified.seq == 2


async def test_the_records_of_a_namespace_that_is_gone_are_dropped(open_app: Open) -> None:
    async with open_app() as built:
        await built.services.audit.note(read(built, Namespace("gone")))
        await built.services.audit.reads.flush()
        built.services.audit.reads.check()


async def test_a_read_whose_token_is_revoked_meanwhile_is_recorded(open_app: Open) -> None:
    async with open_app() as built:
        await enter(built, ALICE)
        (token,) = await built.services.access.tokens(ALICE)
        entry = read(built, accessor=token.accessor)
        async with built.store.transaction(ALICE) as tx:
            assert await tx.access.revoke([token.accessor], NOON)
        await built.services.audit.note(entry)
        await built.services.audit.reads.flush()
        chained = await records(built)

    assert [record["accessor"] for record in chained] == [None, token.accessor]
