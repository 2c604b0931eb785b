"""Migrations run in order, once, under a lock, and completely or not at all."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import psycopg
import pytest

from recall_server import shipped
from recall_server.domain.errors import DatabaseUnusable
from recall_server.storage import driver_for
from recall_server.storage.bound_connection import load
from recall_server.storage.index.vector_cache import code
from recall_server.storage.migrations import migrate, pending, read
from recall_server.storage.sqlite import SqliteDriver
from recall_server.storage.tables import registry
from recall_server.storage.tables.access import EVENT_BYTES
from recall_server.storage.tables.registry import Part, Table
from tests.support.columns import INNER, OURS
from tests.support.engines import Postgres
from tests.support.migrations import empty, released, run
from tests.support.runtime import NOON
from tests.support.tables import SERVER_TABLES, TENANT_TABLES

__all__ = ["empty"]


async def told(database: Path | str, folder: Path) -> tuple[list[str], list[str]]:
    """Return the migrations to apply, and those of them that the release before cannot read."""
    driver = driver_for(database)
    await driver.open()
    try:
        found = await pending(driver, folder)
    finally:
        await driver.close()
    return found.names, found.breaking


def write(folder: Path, *texts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(texts, 1):
        (folder / f"{number:04}_step.sql").write_text(text)
    return folder


async def test_each_migration_is_applied_once(empty: Path | str) -> None:
    names = [f"{m.version:04}_{m.name}" for m in read(shipped("migrations"), "sqlite")]

    assert await run(empty, shipped("migrations")) == names
    assert await run(empty, shipped("migrations")) == []


async def test_all_who_create_a_file_at_once_open_it(tmp_path: Path) -> None:
    # In one of eight rounds, two of four switch the journal at the same moment.
    for number in range(30):
        drivers = [SqliteDriver(tmp_path / f"{number}.db") for _ in range(4)]
        await asyncio.gather(*(driver.open() for driver in drivers))
        await asyncio.gather(*(driver.close() for driver in drivers))


async def test_replicas_that_start_at_once_migrate_once(empty: Path | str) -> None:
    applied = await asyncio.gather(*(run(empty, shipped("migrations")) for _ in range(4)))

    assert sorted(name for names in applied for name in names) == sorted(
        f"{m.version:04}_{m.name}" for m in read(shipped("migrations"), "sqlite")
    )


async def test_a_new_database_is_never_seen_half_made(empty: Path | str, tmp_path: Path) -> None:
    """A command that found one would take it for that of an older release, and refuse it."""
    texts = ("CREATE TABLE one (a TEXT);", "CREATE TABLE two (a TEXT); NONSENSE;")
    with pytest.raises(Exception, match=r"(?i)nonsense"):
        await run(empty, write(tmp_path / "m", *texts))

    assert await told(empty, tmp_path / "m") == (["0001_step", "0002_step"], [])


async def test_a_failing_migration_leaves_nothing_of_itself(
    empty: Path | str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "m", "CREATE TABLE one (a TEXT);")
    await run(empty, folder)
    write(folder, "CREATE TABLE one (a TEXT);", "CREATE TABLE two (a TEXT); NONSENSE;")
    with pytest.raises(Exception, match=r"(?i)nonsense"):
        await run(empty, folder)
    write(folder, "CREATE TABLE one (a TEXT);", "CREATE TABLE two (a TEXT);")

    assert await run(empty, folder) == ["0002_step"]


async def test_an_edited_migration_is_refused(empty: Path | str, tmp_path: Path) -> None:
    folder = write(tmp_path / "m", "CREATE TABLE one (a TEXT);")
    await run(empty, folder)
    write(folder, "CREATE TABLE one (a TEXT, b TEXT);")
    with pytest.raises(DatabaseUnusable, match="was edited"):
        await run(empty, folder)


async def test_a_database_of_a_newer_release_is_refused(empty: Path | str, tmp_path: Path) -> None:
    folder = write(tmp_path / "m", "CREATE TABLE one (a TEXT);", "CREATE TABLE two (a TEXT);")
    await run(empty, folder)
    (folder / "0002_step.sql").unlink()
    with pytest.raises(DatabaseUnusable, match="at least as new"):
        await run(empty, folder)


async def test_a_database_of_a_newer_release_that_reads_this_one_is_used_as_it_is(
    empty: Path | str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "m", "CREATE TABLE one (a TEXT);")
    await run(empty, folder)
    write(
        tmp_path / "m",
        "CREATE TABLE one (a TEXT);",
        "-- reads: 0001\nCREATE TABLE two (a TEXT);",
        "-- reads: 0002\nDROP TABLE one;",
    )
    (folder / "0003_step.sql").rename(tmp_path / "0003_step.sql")
    assert await run(empty, folder) == ["0002_step"]
    (folder / "0002_step.sql").unlink()

    assert await run(empty, folder) == []

    write(folder, "CREATE TABLE one (a TEXT);", "-- reads: 0001\nCREATE TABLE two (a TEXT);")
    (tmp_path / "0003_step.sql").rename(folder / "0003_step.sql")
    assert await told(empty, folder) == (["0003_step"], [])
    assert await run(empty, folder) == ["0003_step"]
    for name in ("0002_step.sql", "0003_step.sql"):
        (folder / name).unlink()
    with pytest.raises(DatabaseUnusable, match="at least as new"):
        await run(empty, folder)


async def test_a_migration_that_the_release_before_cannot_read_is_told(
    empty: Path | str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "m", "CREATE TABLE one (a TEXT);")
    assert await told(empty, folder) == (["0001_step"], [])
    await run(empty, folder)
    write(folder, "CREATE TABLE one (a TEXT);", "-- reads: 0001\nSELECT 1;", "DROP TABLE one;")

    assert await told(empty, folder) == (["0002_step", "0003_step"], ["0003_step"])


def test_both_texts_of_a_migration_state_the_same() -> None:
    lite, post = read(shipped("migrations"), "sqlite"), read(shipped("migrations"), "postgres")

    assert [one.reads for one in lite] == [one.reads for one in post]


@pytest.mark.parametrize("names", [("0002_a.sql",), ("0001_a.sqlite.sql",), ("first.sql",)])
def test_a_gap_or_a_missing_half_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).write_text("SELECT 1;")
    with pytest.raises(ValueError, match=r"numbered|named"):
        read(tmp_path, "postgres")


Columns = set[tuple[str, str]]


async def schema(database: Path | str) -> tuple[Columns, dict[str, tuple[str, ...]]]:
    """Return the columns of all tables, and their primary keys."""
    if isinstance(database, Path):
        with closing(sqlite3.connect(database)) as lite:
            found = lite.execute(
                "SELECT m.name, p.name, p.pk FROM sqlite_master m "
                "JOIN pragma_table_info(m.name) p WHERE m.type = 'table' ORDER BY m.name, p.pk"
            ).fetchall()
            keyed = [(table, column) for table, column, place in found if place]
            columns = {(table, column) for table, column, _ in found}
    else:
        with psycopg.connect(database) as post:
            columns = set(
                post.execute(
                    "SELECT table_name, column_name FROM information_schema.columns "
                    "WHERE table_schema = 'public'"
                ).fetchall()
            )
            keyed = post.execute(
                "SELECT c.conrelid::regclass::text, a.attname FROM pg_constraint c "
                "JOIN unnest(c.conkey) WITH ORDINALITY k (number, place) ON true "
                "JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number "
                "WHERE c.contype = 'p' AND c.connamespace = 'public'::regnamespace "
                "ORDER BY 1, k.place"
            ).fetchall()
    keys: dict[str, tuple[str, ...]] = {}
    for table, column in keyed:
        keys[table] = (*keys.get(table, ()), column)
    return columns, keys


async def test_both_engines_have_the_same_tables_and_columns(
    migrated_file: Path, postgres: Postgres, migrated: str
) -> None:
    lite, post = await schema(migrated_file), await schema(postgres.named(migrated))

    assert lite == post


async def test_the_registry_has_every_table_with_its_key_and_its_exported_columns(
    database: Path | str,
) -> None:
    """A new table, or a new column of an exported one, fails here until it has an entry."""
    columns, keys = await schema(database)

    assert {table for table, _ in columns} == {table.name for table in registry.TABLES}
    assert len(registry.TABLES) == len(registry.BY_NAME)
    for table in registry.TABLES:
        assert keys[table.name] == (("namespace",) if table.tenant else ()) + table.key
        named = {column for owner, column in columns if owner == table.name}
        listed = [name for name, _ in table.fields]
        erased = {*table.redacted, *table.words, *table.labels, *dict(table.goes_with).values()}
        assert erased <= named, table.name
        inner = INNER.get(table.name, ())
        if table.tenant:
            assert {"namespace", *table.key, *listed, *table.derived, *inner} == named
        assert bool(listed) == bool(table.exported)


@pytest.mark.parametrize("table", [table for table in registry.TABLES if table.tenant], ids=str)
def test_every_tenants_table_says_what_each_erasure_does_to_it(table: Table) -> None:
    assert bool(table.goes_with or table.redacted) != bool(table.rest)
    assert not (table.kept and (table.goes_with or table.redacted or table.ends_work))


def test_every_column_that_can_hold_words_is_known_with_what_erasures_do_to_it(
    postgres: Postgres, migrated: str
) -> None:
    """A new text column fails here until it has an entry. `test_erasure_canaries` checks that no
    other column holds words.
    """
    with psycopg.connect(postgres.named(migrated)) as raw:
        found = raw.execute(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = 'public' AND data_type IN ('text', 'jsonb', 'bytea')"
        ).fetchall()
    for table in (one for one in registry.TABLES if one.tenant):
        of_text = {column for owner, column in found if owner == table.name}
        assert {*table.said} <= of_text
        assert of_text <= {*table.said, *OURS}, table.name
        # A task is read whole. Of other tables, these columns are read. If no part deletes the row,
        # the purge looks for the name.
        read = {*table.words, *table.labels, *table.redacted, *table.derived}
        task = Part.TASK in dict(table.goes_with)
        assert task or table.named or {*table.said} <= read, table.name


@pytest.mark.parametrize("table", registry.DIGESTED)
def test_a_redaction_overwrites_the_columns_of_the_registry(table: str) -> None:
    entry = registry.BY_NAME[table]

    assert load("sqlite")[f"redact_{table}"].parameters == {
        "namespace",
        "id",
        *entry.redacted,
        *entry.labels,
    }


def test_every_key_of_a_tenants_table_begins_with_the_namespace(
    postgres: Postgres, migrated: str
) -> None:
    with psycopg.connect(postgres.named(migrated)) as raw:
        keys = raw.execute(
            "SELECT c.conrelid::regclass::text, c.conname, a.attname FROM pg_constraint c "
            "JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1] "
            "WHERE c.contype IN ('p', 'u', 'f') AND c.connamespace = 'public'::regnamespace"
        ).fetchall()

    assert {table for table, _, _ in keys} >= TENANT_TABLES
    assert {(table, name) for table, name, first in keys if first != "namespace"} == {
        (table, f"{table}_pkey") for table in SERVER_TABLES
    }


def test_every_tenants_table_stands_behind_row_level_security(
    postgres: Postgres, migrated: str
) -> None:
    with psycopg.connect(postgres.named(migrated)) as raw:
        walls = raw.execute(
            "SELECT c.relname FROM pg_class c WHERE c.relkind = 'r' AND c.relrowsecurity "
            "AND c.relforcerowsecurity AND c.relnamespace = 'public'::regnamespace "
            "AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid "
            "AND p.polname = 'tenant')"
        ).fetchall()
        roles = raw.execute(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'recall\\_%' "
            "AND NOT rolsuper AND NOT rolbypassrls AND NOT rolcanlogin"
        ).fetchall()
        owned = raw.execute(
            "SELECT count(*) FROM pg_tables WHERE tableowner LIKE 'recall\\_%'"
        ).fetchone()

    assert {name for (name,) in walls} == TENANT_TABLES
    assert {name for (name,) in roles} == {"recall_app", "recall_eraser", "recall_system"}
    assert owned == (0,)


def test_the_application_role_sees_one_namespace_only(postgres: Postgres, migrated: str) -> None:
    with postgres.database(migrated) as url, psycopg.connect(url) as raw:
        for name in ("alice", "bob"):
            raw.execute("INSERT INTO namespaces VALUES (%s, now(), 0, 0, 0)", (name,))
        raw.execute("SET LOCAL ROLE recall_app")
        without = raw.execute("SELECT namespace FROM namespaces").fetchall()
        raw.execute("SELECT set_config('recall.namespace', 'alice', true)")
        seen = raw.execute("SELECT namespace FROM namespaces").fetchall()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw.execute("INSERT INTO namespaces VALUES ('carol', now(), 0, 0, 0)")

    assert without == []
    assert seen == [("alice",)]


@pytest.mark.parametrize("dimensions", [1, 8, 20, 256])
async def test_vectors_of_an_older_release_get_the_codes_that_new_ones_have(
    empty: Path | str, tmp_path: Path, dimensions: int
) -> None:
    rows = np.random.default_rng(1).standard_normal((5, dimensions)).astype(np.float32)
    rows[0] = 0.0
    rows[1, 0] = -0.0
    async with released(empty, tmp_path, before="0014") as driver:
        async with driver.migration() as connection:
            for number, row in enumerate(rows):
                blob = row.astype("<f4").tobytes().hex()
                await connection.script(
                    "INSERT INTO embeddings (namespace, model, item_id, vector, version) "
                    f"VALUES ('a', 'm', 'mem_{number}', {_blob(driver.engine, blob)}, 9 - {number})"
                )
        await migrate(driver, shipped("migrations"), NOON)
        async with driver.migration() as connection:
            found = await connection.fetch("SELECT item_id, slot, code FROM embeddings", {})

    codes = {row["item_id"]: row["code"] for row in found}
    assert codes == {f"mem_{number}": code(row) for number, row in enumerate(rows)}
    # The slots are in the order of the writes.
    assert {row["item_id"]: row["slot"] for row in found} == {
        f"mem_{number}": 5 - number for number in range(5)
    }


async def test_what_an_older_release_has_kept_is_counted(empty: Path | str, tmp_path: Path) -> None:
    """Bytes are counted for each namespace."""
    async with released(empty, tmp_path, before="0017") as driver:
        async with driver.migration() as connection:
            for owner, number, text in (("a", 1, "Köln"), ("a", 2, "🙂"), ("b", 1, "tea")):
                await connection.script(
                    "INSERT INTO episodes (namespace, id, idempotency_key, request_digest, job_id, "
                    "text, content_hash, topic, occurred_at, recorded_at) VALUES "
                    f"('{owner}', 'e{number}', 'k{number}', '', '', '{text}', '', '', "
                    "'2026-03-01', '2026-03-01')"
                )
        await migrate(driver, shipped("migrations"), NOON)
        async with driver.transaction(namespace=None, write=False) as raw:
            found = await raw.fetch("SELECT namespace, stored_bytes FROM namespaces", {})

    # Each text has one event since events exist.
    counted = {"a": 9 + 2 * EVENT_BYTES, "b": 3 + EVENT_BYTES, "c": 0}
    assert {row["namespace"]: row["stored_bytes"] for row in found} == counted


async def test_what_an_older_release_has_erased_is_known(empty: Path | str, tmp_path: Path) -> None:
    async with released(empty, tmp_path, before="0019") as driver:
        async with driver.migration() as connection:
            await connection.script(
                "INSERT INTO erasures (namespace, id, kind, requested_by, requested_at, state, "
                "claims, receipt, sealed) VALUES ('a', 'ers_1', 'subject', 'operator', "
                "'2026-03-01', 'logical', '{}', 'receipt', 'line')"
            )
        await migrate(driver, shipped("migrations"), NOON)
        async with driver.migration() as connection:
            kept = await connection.fetch("SELECT id, kind, receipt, sealed FROM erasures", {})
            await connection.script("UPDATE erasures SET kind = 'container'")

    assert [dict(row) for row in kept] == [
        {"id": "ers_1", "kind": "subject", "receipt": "receipt", "sealed": "line"}
    ]


async def test_what_an_older_release_has_remembered_has_the_events_that_its_rows_tell(
    empty: Path | str, tmp_path: Path
) -> None:
    async with released(empty, tmp_path, before="0036") as driver:
        async with driver.migration() as connection:
            await connection.script(
                "INSERT INTO episodes (namespace, id, idempotency_key, request_digest, job_id, "
                "text, content_hash, topic, occurred_at, recorded_at) VALUES "
                "('a', 'ep_1', 'k', '', '', 'tea', '', '', '2026-03-01', '2026-03-01')"
            )
            for name, status, until, retired in (
                ("mem_1", "active", "NULL", "NULL"),
                ("mem_2", "superseded", "'2026-03-02'", "'2026-03-03'"),
            ):
                await connection.script(
                    "INSERT INTO memories (namespace, id, text, type, topic, status, said_at, "
                    "valid_from, valid_until, recorded_at, retired_at, importance, confidence, "
                    f"extractor) VALUES ('a', '{name}', 'tea', 'fact', '', '{status}', "
                    f"'2026-03-01', '2026-03-01', {until}, '2026-03-01', {retired}, 0.5, 0.8, '')"
                )
            await connection.script(
                "INSERT INTO citations (namespace, memory_id, position, episode_id, span_start, "
                "span_end) VALUES ('a', 'mem_1', 0, 'ep_1', 0, 3), ('a', 'mem_1', 1, 'ep_1', 0, 2)"
            )
            await connection.script(
                "INSERT INTO forgotten (namespace, item_id, episode_id, span_start, span_end, "
                "forgotten_at) VALUES ('a', 'ep_1.0', 'ep_1', 0, 3, '2026-03-04'), "
                "('a', 'mem_9', 'ep_1', 0, 3, '2026-03-04')"
            )
        await migrate(driver, shipped("migrations"), NOON)
        async with driver.transaction(namespace="a", write=False) as raw:
            rows = await raw.fetch("SELECT * FROM memory_events ORDER BY seq", {})
            (kept,) = await raw.fetch("SELECT last_event FROM namespaces WHERE namespace = 'a'", {})

    names = ("seq", "item_id", "kind", "status", "citations")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (1, "ep_1", "added", None, None),
        (2, "mem_1", "added", "active", 2),
        (3, "mem_2", "added", "active", None),
        (4, "mem_2", "superseded", "superseded", None),
        (5, "ep_1.0", "forgotten", None, None),
    ]
    assert [row["valid_until"] is None for row in rows] == [True, True, True, False, True]
    assert kept["last_event"] == 5


def _blob(engine: str, digits: str) -> str:
    return f"x'{digits}'" if engine == "sqlite" else f"decode('{digits}', 'hex')"
