"""A quiet tenant beside a flooding one, and the cost of authentication, audit and limits."""

import shutil
import sqlite3
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.clients import CallTool, plain
from benchmarks.databases import scratch, settings, settle
from benchmarks.fill import Say, tenant
from benchmarks.measure import inspect, measure, search, store
from benchmarks.report import Check, Report
from benchmarks.servers import served, target
from benchmarks.target import BARE, GUEST
from benchmarks.texts import Texts
from recall_server.bootstrap import open_application

SEED = 20260301
MEMORIES = 1_000
ANY_TOKEN = "any"  # noqa: S105  # the bare server takes every token
BESIDE_MAX = 2.0
COST_MAX = 1.3
NOTES = (
    "The flood stores and searches without a pause, from a process of its own. Bare is the same "
    "server without authentication, audit records and limits."
)


async def fairness(
    engine: str, say: Say, *, seconds: float, callers: int, db_url: str | None
) -> Report:
    """Measure on a database of its own. Raises `Invalid` without a Postgres server."""
    with scratch(engine, db_url) as database:
        say(f"{engine}: writing {MEMORIES:,} memories")
        texts = Texts(SEED)
        async with open_application(settings(database)) as built:
            quiet = await tenant(built, GUEST, texts.statements(MEMORIES))
            flooding = await tenant(built, "flood", texts.statements(MEMORIES))
        settle(database)
        operations = [
            store("store", quiet, SEED + 1),
            search("search", quiet, SEED + 1),
            inspect("inspect", quiet),
        ]
        async with target(database) as server:
            address, connect = server.address, partial(plain, server.address)
            say(f"{engine}: a quiet tenant alone")
            alone = await measure(operations, connect, 1, seconds)
            say(f"{engine}: a quiet tenant beside {callers} callers of another")
            async with served("benchmarks.flood", {}, address, flooding, str(callers)):
                beside = await measure(operations, connect, 1, seconds)
            say(f"{engine}: without authentication, audit and limits")
            async with target(_twin(database), 0, BARE) as bare_server:
                bare_address = bare_server.address

                def either(token: str) -> AbstractAsyncContextManager[CallTool]:
                    return plain(bare_address if token == ANY_TOKEN else address, token)

                # In turn, so that drift hits both alike.
                pairs = [p for one in operations for p in (one, replace(one, token=ANY_TOKEN))]
                both = await measure(pairs, either, 1, seconds)
    guarded, bare = both[0::2], both[1::2]
    rows = [
        *(one.row("alone", one, "alone") for one in alone),
        *(
            one.row(f"beside {callers} callers of another", base, "alone")
            for one, base in zip(beside, alone, strict=True)
        ),
        *(one.row("bare", one, "bare") for one in bare),
        *(
            one.row("with authentication, audit and limits", base, "bare")
            for one, base in zip(guarded, bare, strict=True)
        ),
    ]
    checks = [
        *(
            Check(
                f"{one.name} beside the flood: p95 x alone",
                one.quantile(0.95) / base.quantile(0.95),
                BESIDE_MAX,
            )
            for one, base in zip(beside, alone, strict=True)
        ),
        *(
            Check(f"{one.name}: p50 x bare", one.p50 / base.p50, COST_MAX)
            for one, base in zip(guarded, bare, strict=True)
        ),
    ]
    return Report("fairness", engine, rows, checks, {"callers": callers}, NOTES)


def _twin(database: Path | str) -> Path | str:
    """A database for a second server: one file serves but one."""
    if isinstance(database, str):
        return database
    twin = database.with_name("twin.db")
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(twin)) as copy:
        source.backup(copy)
    twin.chmod(0o600)
    shutil.copy(f"{database}.key", f"{twin}.key")
    return twin
