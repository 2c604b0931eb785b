"""What a quiet tenant notices of one that floods the server, and what it costs a call that somebody
looks who calls, how often, and writes it down.
"""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from recall_server.bench.clients import CallTool, plain
from recall_server.bench.databases import scratch, settings, settle
from recall_server.bench.fill import fill
from recall_server.bench.load import Measured, Operation, measure
from recall_server.bench.open import GUEST
from recall_server.bench.process import served, target
from recall_server.bench.texts import Texts
from recall_server.bootstrap import open_application
from recall_server.domain.namespace import namespace

SEED = 20260301
MEMORIES = 1_000
ANY = "any"


@dataclass(frozen=True)
class Wishes:
    """What is asked for on the command line."""

    seconds: float
    callers: int
    db_url: str | None


@dataclass(frozen=True)
class Run:
    """What one engine did: each operation alone, beside the flood, and with nobody looking."""

    engine: str
    callers: int
    alone: tuple[Measured, ...]
    flooded: tuple[Measured, ...]
    guarded: tuple[Measured, ...]
    bare: tuple[Measured, ...]


async def run(engine: str, wishes: Wishes, say: Callable[[str], None]) -> Run:
    """Measure on a database that is made for it. Raises `Invalid` without a Postgres server."""
    with scratch(engine, wishes.db_url) as database:
        say(f"{engine}: writing {MEMORIES:,} memories")
        tokens = await _prepared(database)
        settle(database)
        operations = _operations(tokens[GUEST])
        async with target(database, 0) as server:
            address = server.address
            connect = partial(plain, address)
            say(f"{engine}: a quiet tenant alone")
            alone = await measure(operations, connect, "socket", 1, wishes.seconds)
            say(f"{engine}: a quiet tenant beside {wishes.callers} callers of another")
            flood = (address, tokens["flood"], str(wishes.callers))
            async with served("recall_server.bench.flood", {}, *flood):
                flooded = await measure(operations, connect, "socket", 1, wishes.seconds)
            say(f"{engine}: with nobody looking")
            async with target(_twin(database), 0, "recall_server.bench.open") as bare:
                both = await _in_turn(operations, server.address, bare.address, wishes.seconds)
    return Run(engine, wishes.callers, tuple(alone), tuple(flooded), both[0::2], both[1::2])


async def _in_turn(
    operations: list[Operation], guarded: str, bare: str, seconds: float
) -> tuple[Measured, ...]:
    """Each operation on one server and then on the other, so that drift hits both alike."""
    pairs = [pair for one in operations for pair in (one, replace(one, token=ANY))]

    def connect(token: str) -> AbstractAsyncContextManager[CallTool]:
        return plain(bare if token == ANY else guarded, token)

    return tuple(await measure(pairs, connect, "socket", 1, seconds))


def _twin(database: Path | str) -> Path | str:
    """Where a second server may run: a file has but one."""
    if isinstance(database, str):
        return database
    twin = database.with_name("twin.db")
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(twin)) as copy:
        source.backup(copy)
    shutil.copy(f"{database}.key", f"{twin}.key")
    return twin


async def _prepared(database: Path | str) -> dict[str, str]:
    texts, tokens = Texts(SEED), {}
    async with open_application(settings(database)) as built:
        for name in (GUEST, "flood"):
            ns = namespace(name)
            entry = built.services.audit.begin(ns, "create_token", "bench", None)
            tokens[name], _ = await built.services.access.issue(ns, label="bench", entry=entry)
            await fill(built, ns, [texts.statement() for _ in range(MEMORIES)])
    return tokens


def _operations(token: str) -> list[Operation]:
    texts = Texts(SEED + 1)
    questions = ({"query": texts.question()} for _ in _forever())
    stores = ({"text": texts.conversation()} for _ in _forever())
    return [
        Operation("store", token, "store_memory", lambda: next(stores)),
        Operation("search", token, "search_memories", lambda: next(questions)),
        Operation("inspect", token, "inspect_memories", dict),
    ]


def _forever() -> Iterator[None]:
    while True:
        yield None
