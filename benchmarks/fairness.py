"""A quiet tenant beside a flooding one, and the cost of authentication, audit and limits."""

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.attacks import ATTACKS
from benchmarks.clients import Ask, CallTool, plain
from benchmarks.databases import counted, forget_jobs, scratch, settings, settle, size, twin
from benchmarks.fill import Say, tenant
from benchmarks.measure import Measured, Operation, Seconds, inspect, measure, search, store
from benchmarks.report import Check, Figure, Report, Row
from benchmarks.servers import served, target
from benchmarks.target import BARE, GUEST, STALLS
from benchmarks.texts import Texts
from recall_server.bootstrap import open_application
from recall_server.domain.permissions import Rights, Scope
from recall_server.services.auth import TokenRequest

SEED = 20260301
MEMORIES = 1_000
ANY_TOKEN = "any"  # noqa: S105  # the bare server takes every token
BESIDE_MAX = 2.0
COST_MAX = 1.3
STALL_MS_MAX = 50.0
# Bytes of the database for each byte that counts against the quota, as docs/operate/limits.md says.
GROWTH_MAX = 15.0
# A table grows by whole pages.
GROWTH_FREE_BYTES = 2**20
WORKER_JOBS = 4
TURNS = 2
ATTACKER = "attack"
ADMIN = Rights(frozenset({Scope.ADMIN}))
NOTES = (
    "The flood stores and searches without a pause, from a process of its own. Bare is the same "
    "server without authentication, audit records and limits. Each attack is that of a tenant with "
    "two callers, beside a worker, in turn with the same calls without it. A delay is how late the "
    "event loop comes to what is due, and a stall how much of it the loop works: the rest is the "
    "machine's."
)


async def fairness(
    engine: str,
    say: Say,
    *,
    seconds: Seconds = 2.0,
    callers: Annotated[int, typer.Option(min=1, help="Of the tenant that floods.")] = 32,
    db_url: str | None = None,
) -> Report:
    """A quiet tenant beside a flooding one; the cost of authentication, audit and limits."""
    with scratch(engine, db_url) as database:
        say(f"{engine}: writing {MEMORIES:,} memories")
        texts = Texts(SEED)
        async with open_application(settings(database)) as built:
            quiet = await tenant(built, GUEST, texts.statements(MEMORIES))
            flooding = await tenant(built, "flood", texts.statements(MEMORIES))
            attacking = await tenant(built, ATTACKER, wanted=TokenRequest(ADMIN))
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
            async with target(twin(database), 0, BARE) as bare_server:
                bare_address = bare_server.address

                def either(token: str) -> AbstractAsyncContextManager[CallTool]:
                    return plain(bare_address if token == ANY_TOKEN else address, token)

                # The two take turns, so that drift affects both alike.
                pairs = [p for one in operations for p in (one, replace(one, token=ANY_TOKEN))]
                both = await measure(pairs, either, 1, seconds)
        attacked = await _attacked(database, attacking, operations, seconds, say)
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
        *attacked[0],
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
        *attacked[1],
    ]
    return Report("fairness", engine, rows, checks, {"callers": callers}, NOTES)


async def _attacked(
    database: Path | str,
    attacking: str,
    operations: Sequence[Operation],
    seconds: float,
    say: Say,
) -> tuple[list[Row], list[Check]]:
    """Measure a quiet tenant during each attack."""
    rows: list[Row] = []
    checks: list[Check] = []
    async with (
        target(database, WORKER_JOBS, RECALL_PUSH_ALLOWED_HOSTS="127.0.0.0/8") as server,
        plain(server.address, operations[0].token) as ask,
    ):
        connect = partial(plain, server.address)
        await _stalls(ask)  # an idle connection is closed, and a clock starts with it
        for number, (name, attack) in enumerate(ATTACKS.items(), start=1):
            begun = size(database), _counted(database)
            alone, beside, stalls = _none(operations), _none(operations), dict[str, float]()
            # The two take turns, so that other work of the machine affects both alike.
            for turn in range(1, TURNS + 1):
                say(f"attack {number} of {len(ATTACKS)}, {name}: turn {turn} of {TURNS}")
                forget_jobs(database, ATTACKER)
                _add(alone, await measure(operations, connect, 1, seconds / TURNS))
                async with served("benchmarks.attacks", {}, server.address, attacking, name):
                    await _stalls(ask)
                    _add(beside, await measure(operations, connect, 1, seconds / TURNS))
                    for key, value in (await _stalls(ask)).items():
                        stalls[key] = max(stalls.get(key, 0.0), value)
            grown = size(database) - begun[0]
            charged = max(1, _counted(database) - begun[1])
            growth = max(0, grown - GROWTH_FREE_BYTES) / charged
            group = f"beside an attack on {attack.tries}: {name}"
            rows += [one.row(f"{group}: alone", one, "alone") for one in alone]
            rows += [one.row(group, base, "alone") for one, base in zip(beside, alone, strict=True)]
            more = {"growth MB": grown / 1e6, "growth x counted": growth}
            rows.append(_server(group, name, stalls, **more))
            checks += [
                Check(f"{one.name} beside {name}: p95 x alone", _p95(one) / _p95(base), BESIDE_MAX)
                for one, base in zip(beside, alone, strict=True)
            ]
            held_ms = stalls["held_ms"]
            checks.append(Check(f"longest stall beside {name}: ms", held_ms, STALL_MS_MAX))
            checks.append(Check(f"growth beside {name}: x counted", growth, GROWTH_MAX))
    return rows, checks


def _none(operations: Sequence[Operation]) -> list[Measured]:
    return [Measured(one.name) for one in operations]


def _add(found: Sequence[Measured], more: Sequence[Measured]) -> None:
    for one, other in zip(found, more, strict=True):
        one.latencies += other.latencies
        one.seconds += other.seconds


def _server(group: str, name: str, stalls: dict[str, float], **more: Figure) -> Row:
    shown = {"longest stall ms": stalls["held_ms"], "longest delay ms": stalls["late_ms"]}
    return Row(f"{group}: the server", name, {**shown, **more})


def _p95(one: Measured) -> float:
    return one.quantile(0.95)


def _counted(database: Path | str) -> int:
    return sum(counted(database, name) for name in (GUEST, ATTACKER))


async def _stalls(ask: Ask) -> dict[str, float]:
    """Return the stalls of the event loop since the last call: see `benchmarks.target`."""
    answer = json.loads(await ask(STALLS.name, {}))
    found: dict[str, float] = answer["result"]["structuredContent"]["data"]
    return found
