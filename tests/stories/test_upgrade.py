"""Only a role with the right may migrate a database of an earlier release, which then works on."""

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest

from recall_server import shipped
from recall_server.storage.migrations import read
from tests.support.cli import Said, recall, refused
from tests.support.engines import ENGINES, Postgres
from tests.support.paths import ROOT
from tests.support.processes import START_S, Process, Server, calling, new_token, until
from tests.support.releases import Released, next_release, released

STORES = 40

pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture(params=ENGINES)
def first(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: Postgres, migrated: str
) -> Iterator[Released]:
    """`migrated` has made the roles. A server of the release would have made them."""
    tmp_path.chmod(0o700)
    with released(request.param, tmp_path, postgres) as found:
        yield found


def on(found: Released, *command: str) -> Said:
    url = str(found.database)
    if not isinstance(found.database, Path):
        url = f"postgresql:///?{urlencode(psycopg.conninfo.conninfo_to_dict(found.database))}"
    return recall(*command, "--db", url, RECALL_KEY_FILE=found.key)


def test_no_migration_was_ever_edited() -> None:
    lines = (ROOT / "tests" / "data" / "migrations.sha256").read_text("utf-8").splitlines()
    known = {name: digest for digest, name in (line.split() for line in lines)}
    here = {
        name: hashlib.sha256((shipped("migrations") / name).read_bytes()).hexdigest()
        for name in known
    }

    assert here == known


def test_only_migrate_migrates_and_every_other_command_says_so(first: Released) -> None:
    for command in (("status",), ("tokens", "list"), ("search", "alice", "tea")):
        refused(on(first, *command), "SCHEMA_OUTDATED", "20", "recall migrate")
    examined = on(first, "doctor")
    checked = on(first, "migrate", "--check")
    tried = on(first, "migrate", "--dry-run", "--json").json()
    again = on(first, "migrate", "--check")
    done = on(first, "migrate", "--json").json()
    nothing = on(first, "migrate", "--check")

    assert (examined.code, "SCHEMA_OUTDATED" in examined.out) == (1, True)
    assert (checked.code, "0021_closed_containers" in checked.out) == (1, True)
    assert again.out == checked.out
    assert checked.out.count("0022_tags") == 1
    assert ("Make a backup first" in checked.out) is not isinstance(first.database, Path)
    assert isinstance(tried, dict)
    assert isinstance(done, dict)
    assert tried["migrations"] == done["migrations"]
    assert (nothing.code, nothing.out) == (0, "The database is up to date.\n")
    assert on(first, "status").code == 0
    if isinstance(first.database, Path):
        copy = Released(Path(done["backup"]), first.key, first.tokens, first.checkpoints)
        assert Path(done["backup"]).stat().st_mode & 0o777 == 0o600
        refused(on(copy, "status"), "SCHEMA_OUTDATED")


def test_a_newer_schema_is_told_with_a_code(url: str) -> None:
    recall("create-token", "alice", "--db", url)
    newer = (
        "INSERT INTO schema_version (version, name, checksum, applied_at)"
        " VALUES (9999, 'later', 'x', '2026')"
    )
    if "://" in url:
        with psycopg.connect(url, autocommit=True) as raw:
            raw.execute(newer)
    else:
        with closing(sqlite3.connect(url, isolation_level=None)) as lite:
            lite.execute(newer)

    for command in (("status",), ("migrate",), ("serve", "--port", "0")):
        refused(recall(*command, "--db", url), "SCHEMA_TOO_NEW", "9999")


async def test_what_the_first_release_wrote_is_found_verified_and_goes_on(first: Released) -> None:
    """A server of this release migrates it at its start, and accepts tokens from before."""
    settings = {"key_file": first.key, "embedder": "none"}
    async with Server(first.database, **settings) as server:
        async with calling(server.address, first.tokens["alice"]) as call:
            before = await call("search_memories", query="Where does Anna work?")
            await call("store_memory", text="User: My favourite cake is a madeleine.")
            after = await call("search_memories", query="What cake does the user like?")
        async with calling(server.address, first.tokens["bob"]) as call:
            bobs = await call("search_memories", query="What is the dog called?")
        assert await server.stop() == 0
    verify = ("audit", "verify", "--checkpoints", str(first.checkpoints), "--json")
    verified = await asyncio.to_thread(on, first, *verify)

    assert "painter" in json.dumps(before)
    assert "madeleine" in json.dumps(after)
    assert "Rex" in json.dumps(bobs)
    found = {one["namespace"]: one for one in verified.json()}  # type: ignore[attr-defined]
    assert found["alice"]["confirmed_up_to"] == 15
    assert found["alice"]["seq"] > 15


@pytest.mark.slow
async def test_servers_of_neighbouring_releases_serve_one_postgres_while_it_is_migrated(
    tmp_path: Path, postgres: Postgres, migrated: str
) -> None:
    number = len(read(shipped("migrations"), "postgres"))
    reads = f"-- reads: {number:04}\n"
    additive = next_release(tmp_path / "additive", f"{reads}ALTER TABLE turns ADD COLUMN hue TEXT;")
    breaking = next_release(tmp_path / "breaking", "SELECT 1;", after=additive)
    async with AsyncExitStack() as stack:
        database = stack.enter_context(postgres.database(migrated))
        token = (await new_token(database, "alice"))["token"]
        old = await stack.enter_async_context(Server(database, turn_wait_s=60))
        here = await stack.enter_async_context(calling(old.address, token))

        async with asyncio.TaskGroup() as group:
            for one in range(STORES):
                group.create_task(here("store_memory", text=f"User: My number {one} is {one}."))
            migrating = Process(database, "migrate").of(additive)
            await stack.enter_async_context(migrating)
            group.create_task(until(lambda: over(migrating), START_S, "it is migrated"))
        new = await stack.enter_async_context(Server(database).of(additive))
        there = await stack.enter_async_context(calling(new.address, token))
        for call, other, colour in ((here, there, "teal"), (there, here, "ochre")):
            await call("store_memory", text=f"User: My favourite colour is {colour}.")
            found = await other("search_memories", query="favourite colour", mode="keyword")
            assert colour in json.dumps(found)
        assert await old.stop() == 0
        await old.start()  # The old server is started once more before it is replaced.
        found = await here("search_memories", query=f"my number {STORES - 1}", mode="keyword")
        assert f"My number {STORES - 1} is" in json.dumps(found)
        assert await old.stop() == 0

        last = await stack.enter_async_context(Server(database).of(breaking))
        with pytest.raises(AssertionError, match="SCHEMA_TOO_NEW"):
            await old.start()
        assert last.alive


async def over(process: Process) -> bool:
    return not process.alive and await process.stop() == 0
