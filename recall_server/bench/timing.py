"""What can be learnt from how long an answer takes: whether a token was ever one, and whether
somebody else has the same text.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from time import perf_counter

import numpy as np

from recall_server.application import Application
from recall_server.bench.clients import knocking, plain
from recall_server.bench.databases import scratch, settings, settle
from recall_server.bench.load import Measured
from recall_server.bench.process import target
from recall_server.bench.texts import Texts
from recall_server.bootstrap import open_application
from recall_server.domain.namespace import namespace
from recall_server.domain.security.tokens import new_token
from recall_server.services.auth.access import TokenRequest

SEED = 20260301
WARM_UP = 20
# Refused or let in, and then there is nothing: the guard alone is measured.
NOWHERE = "/v1/nothing"
PREFIX, CHECKSUM, UNKNOWN = "wrong prefix", "wrong checksum", "unknown"
REVOKED, EXPIRED, VALID = "revoked", "expired", "valid"
OTHERS, FRESH = "another's text", "fresh text"


@dataclass(frozen=True)
class Wishes:
    """What is asked for on the command line."""

    calls: int
    texts: int
    db_url: str | None


@dataclass(frozen=True)
class Run:
    """What one engine did: a call with each kind of token, and a store of each kind of text; `p` of
    Mann and Whitney's test is the chance that the two kinds differ so much where nothing is behind.
    """

    engine: str
    tokens: tuple[Measured, ...]
    stores: tuple[Measured, Measured]
    p: float


async def run(engine: str, wishes: Wishes, say: Callable[[str], None]) -> Run:
    """Measure on a database that is made for it. Raises `Invalid` without a Postgres server."""
    with scratch(engine, wishes.db_url) as database:
        tokens, writers = await _prepared(database)
        settle(database)
        async with target(database, 0) as server:
            say(f"{engine}: {wishes.calls:,} calls with each kind of token")
            found = await _knocked(server.address, tokens, wishes.calls)
            say(f"{engine}: {wishes.texts:,} stores of each kind of text")
            stores = await _stored(server.address, writers, wishes.texts)
    p = mann_whitney(stores[0].latencies, stores[1].latencies)
    return Run(engine, found, stores, p)


async def _prepared(database: Path | str) -> tuple[dict[str, str], tuple[str, str]]:
    """A token of each kind; and those of two who store."""
    async with open_application(settings(database)) as built:
        good, revoked = await _issued(built, "guest"), await _issued(built, "guest")
        expired = await _issued(built, "guest", TokenRequest(expires_in=timedelta(milliseconds=1)))
        info = await built.services.access.verify(revoked)
        entry = built.services.audit.begin(info.namespace, "revoke_token", "bench", None)
        await built.services.access.revoke(info, force=True, entry=entry)
        writers = await _issued(built, "first"), await _issued(built, "second")
    tokens = {
        PREFIX: "hvs_" + good[4:],
        CHECKSUM: good[:-1] + ("A" if good[-1] != "A" else "B"),
        UNKNOWN: new_token(),
        REVOKED: revoked,
        EXPIRED: expired,
        VALID: good,
    }
    return tokens, writers


async def _issued(built: Application, name: str, wanted: TokenRequest | None = None) -> str:
    ns = namespace(name)
    entry = built.services.audit.begin(ns, "create_token", "bench", None)
    return (await built.services.access.issue(ns, wanted=wanted, entry=entry))[0]


async def _knocked(address: str, tokens: Mapping[str, str], calls: int) -> tuple[Measured, ...]:
    """One call with each in turn, in another order each time, so that drift hits all alike."""
    found = {kind: Measured(kind, "socket", 1) for kind in tokens}
    order, random_bytes = list(tokens), random.Random(SEED)  # noqa: S311  # an order, no secret
    async with knocking(address, NOWHERE) as knock:
        for number in range(calls + WARM_UP):
            random_bytes.shuffle(order)
            for kind in order:
                before = perf_counter()
                status = await knock(tokens[kind])
                taken = perf_counter() - before
                if status != (HTTPStatus.NOT_FOUND if kind == VALID else HTTPStatus.UNAUTHORIZED):
                    raise RuntimeError(f"A token that is {kind} was answered {status}.")
                if number >= WARM_UP:
                    found[kind].latencies.append(taken)
    return tuple(found.values())


async def _stored(address: str, writers: tuple[str, str], texts: int) -> tuple[Measured, Measured]:
    """What the second writer needs to store what the first has just stored, and what nobody has."""
    said, random_bytes = Texts(SEED), random.Random(SEED)  # noqa: S311  # an order, no secret
    theirs, fresh = Measured(OTHERS, "socket", 1), Measured(FRESH, "socket", 1)
    async with plain(address, writers[0]) as first, plain(address, writers[1]) as second:
        for number in range(texts + WARM_UP):
            known = said.conversation()
            await first("store_memory", {"text": known})
            pair = [(theirs, known), (fresh, said.conversation())]
            random_bytes.shuffle(pair)
            for into, text in pair:
                before = perf_counter()
                await second("store_memory", {"text": text})
                taken = perf_counter() - before
                if number >= WARM_UP:
                    into.latencies.append(taken)
    return theirs, fresh


def mann_whitney(one: Sequence[float], other: Sequence[float]) -> float:
    """The two-sided p of Mann and Whitney's U test, by the normal approximation with its correction
    for ties and continuity (Annals of Mathematical Statistics 18, 1947): right from 20 of each on.
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
