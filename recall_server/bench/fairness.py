"""What a quiet tenant notices of one that floods the server, and what it costs a call that somebody
looks who calls, how often, and writes it down.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from recall_server.app import house
from recall_server.bench.clients import plain
from recall_server.bench.databases import scratch, settings, settle
from recall_server.bench.fill import fill
from recall_server.bench.load import Measured, Operation, measure
from recall_server.bench.open import GUEST
from recall_server.bench.process import served, target
from recall_server.bench.texts import Texts
from recall_server.domain.model import namespace

SEED = 20260301
MEMORIES = 1_000


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
    unguarded: tuple[Measured, ...]


async def run(engine: str, wishes: Wishes, say: Callable[[str], None]) -> Run:
    """Measure on a database that is made for it. Raises `Invalid` without a Postgres server."""
    with scratch(engine, wishes.db_url) as database:
        say(f"{engine}: writing {MEMORIES:,} memories")
        tokens = await _prepared(database)
        settle(database)
        operations = _operations(tokens[GUEST])
        async with target(database, 0) as guarded:
            address = guarded.address
            say(f"{engine}: a quiet tenant alone")
            alone = await measure(operations, partial(plain, address), "socket", 1, wishes.seconds)
            say(f"{engine}: a quiet tenant beside {wishes.callers} callers of another")
            flood = (address, tokens["flood"], str(wishes.callers))
            async with served("recall_server.bench.flood", {}, *flood):
                flooded = await measure(
                    operations, partial(plain, address), "socket", 1, wishes.seconds
                )
        async with target(database, 0, "recall_server.bench.open") as bare:
            say(f"{engine}: with nobody looking")
            unguarded = await measure(
                operations, partial(plain, bare.address), "socket", 1, wishes.seconds
            )
    return Run(engine, wishes.callers, tuple(alone), tuple(flooded), tuple(unguarded))


async def _prepared(database: Path | str) -> dict[str, str]:
    texts, tokens = Texts(SEED), {}
    async with house(settings(database)) as built:
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
