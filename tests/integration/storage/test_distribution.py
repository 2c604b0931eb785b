"""The schema and the queries hold nothing that Citus refuses, and `distribute` runs against a
stand-in. These tests do not show that Citus itself accepts it.
"""

import re
from collections.abc import Iterator

import psycopg
import pytest

from recall_server import shipped
from recall_server.bootstrap import open_application
from recall_server.doctor import examine
from recall_server.domain.errors import DatabaseUnavailable, NotDistributable
from recall_server.storage import driver_for
from recall_server.storage.bound_connection import Query, load
from recall_server.storage.inspection import Level
from recall_server.storage.migrations import read
from recall_server.storage.postgres import MIGRATION_LOCK
from recall_server.storage.postgres.distribution import distribute, placed
from recall_server.storage.store import Store
from recall_server.storage.tables import registry
from tests.support.application import settings_for
from tests.support.citus import with_stand_in
from tests.support.engines import Postgres
from tests.support.rows import ALICE, BOB, an_episode, enter

TABLE = re.compile(r"\b(?:FROM|JOIN|UPDATE|INTO)\s+(\w+)\b")
LOCAL = {table.name for table in registry.TABLES if table.local}
SPREAD = {table.name for table in registry.TABLES if table.tenant and not table.local}
# The first migration for Citus.
FROM = 43


def bare(query: Query) -> str:
    return re.sub(r"--[^\n]*", "", query.sql)


def spread_in(text: str) -> list[str]:
    return [name for name in TABLE.findall(text) if name in SPREAD]


QUERIES = load("postgres").values()
ACROSS = [query for query in QUERIES if query.across]


@pytest.mark.parametrize("query", ACROSS, ids=lambda query: query.name)
def test_no_query_over_all_namespaces_is_recursive_or_locks(query: Query) -> None:
    text = bare(query)
    of_one = "namespace = %(owner)s" in text

    assert of_one or not spread_in(text) or not re.search(r"RECURSIVE|FOR (NO KEY )?UPDATE", text)
    changes = re.match(r"\s*(UPDATE|DELETE FROM) (\w+)", text)
    if changes and changes[2] in SPREAD and not of_one:
        assert "SELECT" not in text, "a change on many nodes takes its rows from no subquery"


@pytest.mark.parametrize(
    "query", [query for query in QUERIES if not query.across], ids=lambda query: query.name
)
def test_every_table_in_a_query_of_a_namespace_is_held_to_it(query: Query) -> None:
    text = bare(query)

    assert len(re.findall(r"\bnamespace\b", text)) >= len(spread_in(text)), text


def test_no_table_that_is_spread_has_a_trigger(postgres: Postgres, migrated: str) -> None:
    with psycopg.connect(postgres.named(migrated)) as raw:
        found = raw.execute("SELECT tgrelid::regclass FROM pg_trigger WHERE NOT tgisinternal")

        assert found.fetchall() == []


def test_every_table_stands_behind_those_that_it_refers_to(
    postgres: Postgres, migrated: str
) -> None:
    order = [table.name for table in placed()]
    with psycopg.connect(postgres.named(migrated)) as raw:
        found = raw.execute(
            "SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint"
            " WHERE contype = 'f' AND conrelid <> confrelid"
        ).fetchall()

    assert found
    assert order[0] == "namespaces"
    assert {*order} | LOCAL == set(registry.BY_NAME)
    for one, other in found:
        assert order.index(other) < order.index(one), (one, other)


@pytest.mark.parametrize("migration", read(shipped("migrations"), "postgres")[FROM - 1 :], ids=str)
def test_a_new_table_refers_to_no_other_as_it_is_not_spread_when_it_is_made(
    migration: object,
) -> None:
    text = re.sub(r"--[^\n]*", "", getattr(migration, "sql"))  # noqa: B009

    assert not re.search(r"\bREFERENCES\b|\bTRIGGER\b(?<!DROP TRIGGER)", text)


@pytest.fixture
def citus(postgres: Postgres, migrated: str) -> Iterator[str]:
    with with_stand_in(postgres, migrated) as url:
        yield url


def ledger(url: str) -> dict[str, tuple[str, str | None]]:
    with psycopg.connect(url) as raw:
        rows = raw.execute(
            "SELECT logicalrelid::text, partmethod, colocated FROM pg_dist_partition"
        ).fetchall()
    return {name: (method, beside) for name, method, beside in rows}


async def test_all_tables_are_spread_once_with_the_rows_of_a_namespace_together(
    citus: str,
) -> None:
    first = await distribute(citus, MIGRATION_LOCK)
    again = await distribute(citus, MIGRATION_LOCK)

    found = ledger(citus)
    assert set(found) == set(registry.BY_NAME) - LOCAL
    assert (first, again) == ([table.name for table in placed()], [])
    assert {name for name, (method, _) in found.items() if method == "n"} == {
        table.name for table in registry.TABLES if not (table.tenant or table.local)
    }
    assert {beside for name, (_, beside) in found.items() if name in SPREAD} == {
        "default",
        "namespaces",
    }
    with psycopg.connect(citus) as raw:
        cut = raw.execute("SELECT relation::text FROM citus_stand_in.truncated").fetchall()
        forced = raw.execute(
            "SELECT count(*) FROM pg_class WHERE relrowsecurity AND NOT relforcerowsecurity"
        ).fetchone()
        roles = raw.execute(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'recall\\_%' AND rolcanlogin"
        ).fetchall()
    assert {name for (name,) in cut} == set(found)
    assert forced == (0,)
    assert {name for (name,) in roles} >= {"recall_app", "recall_eraser", "recall_system"}


async def test_a_distribution_that_broke_off_goes_on_where_it_was(citus: str) -> None:
    with psycopg.connect(citus, autocommit=True) as raw:
        raw.execute("INSERT INTO citus_stand_in.refused VALUES ('turns')")
    with pytest.raises(DatabaseUnavailable):
        await distribute(citus, MIGRATION_LOCK)
    before = set(ledger(citus))
    with psycopg.connect(citus, autocommit=True) as raw:
        raw.execute("DELETE FROM citus_stand_in.refused")

    done = await distribute(citus, MIGRATION_LOCK)

    assert {"namespaces", "episodes"} <= before
    assert "turns" not in before
    assert done[0] == "turns"
    assert before | set(done) == set(ledger(citus))


async def test_what_cannot_be_done_is_refused_and_changes_nothing(
    citus: str, postgres: Postgres, migrated: str
) -> None:
    with postgres.database(migrated) as url, pytest.raises(NotDistributable, match="no Citus"):
        await distribute(url, MIGRATION_LOCK)
    with psycopg.connect(citus, autocommit=True) as raw:
        raw.execute(
            "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
        )
        raw.execute("CREATE TRIGGER theirs AFTER INSERT ON turns EXECUTE FUNCTION nothing()")
        with pytest.raises(NotDistributable, match="triggers on turns"):
            await distribute(citus, MIGRATION_LOCK)
        raw.execute("DROP TRIGGER theirs ON turns")

    assert ledger(citus) == {}


async def test_it_is_refused_while_a_server_is_connected(
    citus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recall_server.storage.postgres.distribution.STOPPING_S", 0.2)
    driver = driver_for(citus)
    await driver.open()
    with pytest.raises(NotDistributable, match="are connected"):
        await distribute(citus, MIGRATION_LOCK)
    await driver.close()

    assert ledger(citus) == {}


async def test_a_spread_database_binds_every_transaction_to_its_namespace(citus: str) -> None:
    """It sends separate statements, which Citus passes on, and no function call."""
    await distribute(citus, MIGRATION_LOCK)
    driver = driver_for(citus)
    await driver.open()
    store = Store(driver, cache_bytes_max=1_000_000, mac_key=bytes(32))
    await enter(store, ALICE, BOB)
    for namespace in (ALICE, BOB):
        async with store.transaction(namespace) as tx:
            await tx.episodes.add(an_episode(text=f"I am {namespace}."), "key", "digest")
    seen = {}
    for write in (True, False):
        async with store.transaction(BOB, write=write) as tx:
            rows = await tx.bound.connection.fetch("SELECT namespace FROM episodes", {})
            (told,) = await tx.bound.connection.fetch(
                "SELECT current_user AS who, current_setting('recall.namespace') AS namespace", {}
            )
            seen[write] = ([row["namespace"] for row in rows], told["who"], told["namespace"])
    async with store.snapshot(BOB) as tx:
        rows = await tx.bound.connection.fetch("SELECT namespace FROM episodes", {})
    texts = [line async for line in store.texts()]
    await store.close()

    assert seen == dict.fromkeys((True, False), ([BOB], "recall_app", BOB))
    assert [row["namespace"] for row in rows] == [BOB]
    assert {namespace for table, line in texts if table == "episodes" for namespace in (ALICE, BOB)
            if f"I am {namespace}." in line} == {ALICE, BOB}  # fmt: skip


async def test_doctor_tells_what_is_not_spread_yet(citus: str) -> None:
    async def told() -> dict[str, tuple[Level, str]]:
        async with open_application(settings_for(citus, embedder="none")) as built:
            return {one.check: (one.level, one.text) for one in await examine(built)}

    before = await told()
    await distribute(citus, MIGRATION_LOCK)
    after = await told()
    with psycopg.connect(citus, autocommit=True) as raw:
        raw.execute("ALTER ROLE recall_system NOLOGIN")
    barred = await told()

    assert before["distribution"][0] is Level.WARN
    assert before["roles"][0] is after["roles"][0] is Level.OK
    assert after["distribution"][0] is Level.OK
    assert barred["distribution"][0] is Level.FAIL
    assert "recall_system" in barred["distribution"][1]
