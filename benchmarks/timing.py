"""Checks that response times show neither a revoked token nor a text that another tenant has."""

import math
import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from time import perf_counter
from typing import Annotated

import numpy as np
import typer

from benchmarks.clients import plain, statuses
from benchmarks.databases import scratch, settings, settle
from benchmarks.fill import Say, context, tenant
from benchmarks.measure import Measured
from benchmarks.report import Check, Report
from benchmarks.servers import target
from benchmarks.texts import Texts
from recall_server.bootstrap import open_application
from recall_server.services.auth import TokenRequest, new_token

SEED = 20260301
WARM_UP = 20
# A path that is refused or not found, so that authentication alone is measured.
NOWHERE = "/v1/nothing"
PREFIX, CHECKSUM, UNKNOWN = "wrong prefix", "wrong checksum", "unknown"
REVOKED, EXPIRED, VALID = "revoked", "expired", "valid"
OTHERS, FRESH = "another's text", "fresh text"
APART_MAX = 0.1
P_MIN = 0.01
NOTES = (
    "Unknown, revoked and expired tokens get one status and only the database tells them apart: "
    "their times must not. A wrong prefix or checksum is refused without the database, so it is "
    "faster by design; a valid token is let in and finds nothing. p is Mann and Whitney's, "
    "two-sided."
)


async def timing(
    engine: str,
    say: Say,
    *,
    calls: Annotated[int, typer.Option(min=20, help="With each kind of token.")] = 2_000,
    texts: Annotated[int, typer.Option(min=20, help="Of each kind that are stored.")] = 200,
    db_url: str | None = None,
) -> Report:
    """Check that response times show no revoked token, and no text that another tenant has."""
    with scratch(engine, db_url) as database:
        tokens, writers = await _prepared(database)
        settle(database)
        async with target(database) as server:
            say(f"{engine}: {calls:,} calls with each kind of token")
            found = await _refused(server.address, tokens, calls)
            say(f"{engine}: {texts:,} stores of each kind of text")
            stores = await _stored(server.address, writers, texts)
    return report(engine, found, stores)


def report(engine: str, tokens: Sequence[Measured], stores: Sequence[Measured]) -> Report:
    """Return the report. `stores` are the times to store another tenant's texts, and new ones."""
    by_name = {one.name: one for one in tokens}
    unknown = by_name[UNKNOWN]
    others, fresh = stores
    rows = [
        *(one.row("a call with a token that is", unknown, UNKNOWN) for one in tokens),
        *(one.row("a store of", fresh, FRESH) for one in stores),
    ]
    checks = [
        *(
            Check(f"{name} token: p50 apart from {UNKNOWN}", abs(ratio - 1), APART_MAX)
            for name in (REVOKED, EXPIRED)
            for ratio in [by_name[name].p50 / unknown.p50]
        ),
        Check(
            f"{OTHERS} or {FRESH}: p of no difference",
            mann_whitney(others.latencies, fresh.latencies),
            P_MIN,
            at_least=True,
        ),
    ]
    return Report("timing", engine, rows, checks, notes=NOTES)


async def _prepared(database: Path | str) -> tuple[dict[str, str], tuple[str, str]]:
    """Return a token of each kind, and the tokens of two tenants that store."""
    async with open_application(settings(database)) as built:
        services = built.services
        good, revoked = await tenant(built, "guest"), await tenant(built, "guest")
        wanted = TokenRequest(expires_in=timedelta(milliseconds=1))
        expired = await tenant(built, "guest", wanted=wanted)
        info = await services.access.verify(revoked)
        revoking = context(built, info.namespace, "revoke_token")
        await services.access.revoke(revoking, info, force=True)
        writers = await tenant(built, "first"), await tenant(built, "second")
    tokens = {
        PREFIX: "hvs_" + good[4:],
        CHECKSUM: good[:-1] + ("A" if good[-1] != "A" else "B"),
        UNKNOWN: new_token(),
        REVOKED: revoked,
        EXPIRED: expired,
        VALID: good,
    }
    return tokens, writers


async def _refused(address: str, tokens: Mapping[str, str], calls: int) -> list[Measured]:
    """Make one call with each, in another order each time, so that drift affects all alike."""
    found = {kind: Measured(kind) for kind in tokens}
    order, shuffled = list(tokens), random.Random(SEED)  # noqa: S311  # an order, no secret
    async with statuses(address, NOWHERE) as get:
        for number in range(calls + WARM_UP):
            shuffled.shuffle(order)
            for kind in order:
                before = perf_counter()
                status = await get(tokens[kind])
                taken = perf_counter() - before
                if status != (HTTPStatus.NOT_FOUND if kind == VALID else HTTPStatus.UNAUTHORIZED):
                    raise RuntimeError(f"A token that is {kind} was answered {status}.")
                if number >= WARM_UP:
                    found[kind].latencies.append(taken)
    return list(found.values())


async def _stored(address: str, writers: tuple[str, str], count: int) -> list[Measured]:
    """Let the second writer store a text that the first has just stored, and a new one."""
    texts, shuffled = Texts(SEED), random.Random(SEED)  # noqa: S311  # an order, no secret
    others, fresh = Measured(OTHERS), Measured(FRESH)
    async with plain(address, writers[0]) as first, plain(address, writers[1]) as second:
        for number in range(count + WARM_UP):
            known = texts.conversation()
            await first("store_memory", {"text": known})
            pair = [(others, known), (fresh, texts.conversation())]
            shuffled.shuffle(pair)
            for into, text in pair:
                before = perf_counter()
                await second("store_memory", {"text": text})
                taken = perf_counter() - before
                if number >= WARM_UP:
                    into.latencies.append(taken)
    return [others, fresh]


def mann_whitney(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the two-sided p of Mann and Whitney's U test, by the normal approximation with its
    correction for ties and continuity (Annals of Mathematical Statistics 18, 1947): right from 20
    of each on.
    """
    values = np.array([*one, *other])
    _, place, often = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(often) - (often - 1) / 2)[place]
    n, m = len(one), len(other)
    u = float(ranks[:n].sum()) - n * (n + 1) / 2
    ties = float((often**3 - often).sum()) / ((n + m) * (n + m - 1))
    spread = math.sqrt(n * m / 12 * (n + m + 1 - ties))
    if not spread:
        return 1.0
    z = max(0.0, abs(u - n * m / 2) - 0.5) / spread
    return math.erfc(z / math.sqrt(2))
