"""The second wall: the database itself refuses access to another tenant's rows, and a job cannot do
work of another.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from recall_server.domain.errors import RecallError
from recall_server.domain.ids import Namespace
from recall_server.storage.store import Store
from tests.support.engines import Postgres, on_postgres
from tests.support.isolation import furnished, rows
from tests.support.server import Running
from tests.support.tables import SERVER_TABLES, TENANT_TABLES

ALICE, BOB = Namespace("alice"), Namespace("bob")


def test_no_role_of_the_application_gets_around_the_wall(postgres: Postgres, migrated: str) -> None:
    """The test asks the catalog, for every table."""
    with psycopg.connect(postgres.named(migrated)) as raw:

        def ask(sql: LiteralString) -> list[Any]:
            return raw.execute(sql).fetchall()

        roles = ask(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'recall\\_%' "
            "AND (rolsuper OR rolbypassrls OR rolcanlogin OR rolcreaterole OR rolcreatedb)"
        )
        owned = ask("SELECT relname FROM pg_class WHERE relowner::regrole::text LIKE 'recall\\_%'")
        tables = ask(
            "SELECT relname, relrowsecurity AND relforcerowsecurity FROM pg_class "
            "WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
        )
        others = ask(
            "SELECT relname FROM pg_class WHERE relkind IN ('v', 'm', 'f') "
            "AND relnamespace = 'public'::regnamespace"
        )
        emptied = ask(
            "SELECT table_name FROM information_schema.role_table_grants WHERE grantee "
            "LIKE 'recall\\_%' AND privilege_type IN ('TRUNCATE', 'TRIGGER', 'REFERENCES')"
        )
        policies = ask(
            "SELECT polrelid::regclass::text, pg_get_expr(polqual, polrelid), "
            "pg_get_expr(polwithcheck, polrelid) FROM pg_policy WHERE polname = 'tenant'"
        )
        definers = ask(
            "SELECT proname FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace"
        )

    assert (roles, owned, others, emptied, definers) == ([], [], [], [], [])
    assert {name for name, walled in tables if walled} >= TENANT_TABLES
    assert {name for name, walled in tables if not walled} <= SERVER_TABLES
    wall = "(namespace = current_setting('recall.namespace'::text, true))"
    assert {(using, check) for _, using, check in policies} == {(wall, wall)}
    assert {table for table, _, _ in policies} == TENANT_TABLES


@on_postgres
async def test_without_a_namespace_the_application_sees_no_row_of_any_table(
    running: Running, database: str
) -> None:
    """It sees none with an empty name either, nor with a name that a pattern would match. It cannot
    write a row for another namespace.
    """
    await furnished(running)
    with psycopg.connect(database) as raw:
        raw.execute("SET ROLE recall_app")

        def seen(name: str | None) -> int:
            raw.execute("SELECT set_config('recall.namespace', %s, false)", (name or "",))
            return sum(
                row[0]
                for table in sorted(TENANT_TABLES)
                for row in raw.execute(f"SELECT count(*) FROM {table}").fetchall()
            )

        counts = {name: seen(name) for name in (None, "%", "ali%", "alice2", "Alice", " alice")}
        alices = seen("alice")
        moved = raw.execute("UPDATE memories SET access_count = 7 WHERE namespace = 'bob'").rowcount
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw.execute("INSERT INTO audit_heads (namespace, seq, digest) VALUES ('bob', 1, 'x')")

    assert set(counts.values()) == {0}
    assert alices > len(TENANT_TABLES)
    assert moved == 0


@on_postgres
async def test_a_connection_brings_nothing_of_its_last_tenant_along(store: Store) -> None:
    """The call before may have failed, been cancelled, taken too long, or lost its server."""
    driver = store.driver
    driver._pool._max_size = 1  # type: ignore[attr-defined]
    await _enter(store)

    async def state() -> tuple[Any, ...]:
        async with driver._pool.connection() as raw:  # type: ignore[attr-defined]
            cursor = await raw.execute(
                "SELECT current_user = session_user AS own, "
                "coalesce(current_setting('recall.namespace', true), '') AS ns"
            )
            row = await cursor.fetchone()
        return row["own"], row["ns"]

    async def bobs() -> list[str]:
        async with driver.transaction(namespace=BOB, write=False) as raw:
            return [row["namespace"] for row in await raw.fetch("SELECT * FROM namespaces", {})]

    begun = asyncio.Event()

    async def hang() -> None:
        async with driver.transaction(namespace=ALICE, write=True) as raw:
            await raw.fetch("SELECT 1", {})
            begun.set()
            await raw.fetch("SELECT pg_sleep(5)", {})

    async def failing(*statements: str) -> None:
        async with driver.transaction(namespace=ALICE, write=True) as raw:
            for sql in statements:
                await raw.fetch(sql, {})

    async def fail(*statements: str) -> None:
        with pytest.raises((RecallError, psycopg.Error)):
            await failing(*statements)

    async def cancelled() -> None:
        task = asyncio.create_task(hang())
        await begun.wait()
        task.cancel()
        with pytest.raises((asyncio.CancelledError, RecallError)):
            await task

    misfortunes: tuple[Callable[[], Awaitable[None]], ...] = (
        lambda: fail("SELECT 1 / 0"),
        cancelled,
        lambda: fail("SET LOCAL statement_timeout = 50", "SELECT pg_sleep(5)"),
        lambda: fail("SELECT pg_terminate_backend(pg_backend_pid())"),
    )
    for misfortune in misfortunes:
        await misfortune()
        assert await state() == (True, "")
        assert await bobs() == ["bob"]


async def _enter(store: Store) -> None:
    for name in (ALICE, BOB):
        async with store.driver.migration() as raw:
            await raw.fetch(
                "INSERT INTO namespaces (namespace, created_at) VALUES (%(name)s, now())",
                {"name": name},
            )


async def test_a_job_that_names_anothers_work_does_nothing_to_it(
    running: Running, database: Path | str
) -> None:
    """The test moves every job of Alice into Bob's namespace past the application. No row of hers
    changes, nothing of hers becomes his, and no model sees it. Her own jobs are done.
    """
    alice = await furnished(running)
    waiting = await _jobs(running, "alice", "queued")
    assert waiting
    shown: list[str] = []
    handlers = running.application.worker.handlers
    before, had = await rows(running), await _counts(running, BOB)
    ingest = running.application.services.ingest
    extract = ingest.extractor.extract

    async def noted(passage: Any) -> Any:
        shown.append(passage.text)
        return await extract(passage)

    object.__setattr__(ingest.extractor, "extract", noted)
    kinds = {job["kind"] for job in await _jobs(running, "alice")}
    await _move(running, "alice", "bob")
    for job in await _jobs(running, "bob", "queued"):
        assert job["kind"] in handlers
    for _ in range(200):
        if not await _run_one(running):
            break

    assert shown == []
    assert {"extract", "embed", "consolidate"} <= kinds
    assert await _counts(running, BOB) == had
    after = await rows(running)
    assert {table for table in before if before[table] != after[table]} <= {"operations", "queues"}
    assert alice.ids


async def _jobs(running: Running, namespace: str, state: str = "") -> list[Any]:
    async with running.application.store.driver.transaction(
        namespace=namespace, write=False
    ) as raw:
        found = await raw.fetch("SELECT * FROM operations", {})
    return [row for row in found if row["namespace"] == namespace and state in ("", row["state"])]


async def _counts(running: Running, namespace: Namespace) -> dict[str, int]:
    found = {}
    async with running.application.store.driver.transaction(
        namespace=namespace, write=False
    ) as raw:
        for table in (
            "episodes",
            "turns",
            "memories",
            "runs",
            "run_events",
            "terms",
            "embeddings",
        ):
            kept = await raw.fetch(f"SELECT namespace FROM {table}", {})
            found[table] = len([row for row in kept if row["namespace"] == namespace])
    return found


async def _move(running: Running, one: str, other: str) -> None:
    """Move all jobs of one namespace to the other and make them due. The owner of the database may
    do that.
    """
    async with running.application.store.driver.migration() as raw:
        await raw.script(
            f"UPDATE operations SET namespace = '{other}', state = 'queued', attempt = 0, "
            f"failures = 0, due_at = '2020-01-01T00:00:00+00:00' WHERE namespace = '{one}'"
        )
    async with running.application.store.transaction(None) as tx:
        await tx.jobs.repair_queues()


async def _run_one(running: Running) -> bool:
    running.application.worker._stopping = False
    return await running.application.worker.run_once()
