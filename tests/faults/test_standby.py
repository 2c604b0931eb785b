"""A standby next to the primary: callers get the current state, and after a failover acknowledged
data is there and writes work.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain.context import Context
from recall_server.domain.errors import DatabaseUnavailable, Unauthenticated
from tests.support.application import settings_for
from tests.support.cluster import WITHIN_S, Cluster, cluster
from tests.support.conversation import ALICE, enter, remember
from tests.support.erasure import found, select
from tests.support.models import HashEmbedder
from tests.support.runtime import Clock

pytestmark = pytest.mark.slow
TEXT = "Alice: I live in Lisbon."
BEFORE_THE_FALL = 5


@pytest.fixture
def lagging() -> Iterator[Cluster]:
    with cluster(late=True) as pair:
        yield pair


@pytest.fixture
def pair() -> Iterator[Cluster]:
    with cluster() as pair:
        yield pair


async def test_a_standby_that_lags_is_asked_nothing_and_alone_it_is_refused(
    lagging: Cluster, clock: Clock
) -> None:
    """The standby is first in the list, and a revoked token is still refused."""
    async with open_application(
        settings_for(lagging.both), embedder=HashEmbedder(), now=clock
    ) as built:
        token = await enter(built)
        info = await built.services.access.verify(token)
        await remember(built, TEXT)
        own = await found(built, "Where does Alice live?")
        line = built.services.audit.begin(ALICE, "revoke_token", "test", None)
        assert await built.services.access.revoke(Context(line), info, force=True)
        with pytest.raises(Unauthenticated):
            await built.services.access.verify(token)
    with psycopg.connect(lagging.two) as behind:
        shown = behind.execute("SELECT * FROM api_tokens").fetchall()  # The control.
    with pytest.raises(DatabaseUnavailable, match="takes writes: each is a standby"):
        async with open_application(settings_for(lagging.two), embedder=HashEmbedder(), now=clock):
            pass

    assert own == [TEXT]
    assert shown == []


async def test_after_a_failover_all_that_was_acknowledged_is_there_and_more_is_taken(
    pair: Cluster, clock: Clock
) -> None:
    """The primary fails during writes and has a synchronous standby. No process is restarted."""
    kept: list[str] = []
    async with open_application(
        settings_for(pair.both), embedder=HashEmbedder(), now=clock
    ) as built:
        await enter(built)
        pair.synchronous()
        enough = asyncio.Event()

        async def writer() -> None:
            while True:
                text = f"I own bike {len(kept)}."
                await remember(built, text, key=text)
                kept.append(text)
                if len(kept) >= BEFORE_THE_FALL:
                    enough.set()

        writing = asyncio.create_task(writer())
        async with asyncio.timeout(WITHIN_S):
            await enough.wait()
            await asyncio.to_thread(pair.fall)
            with pytest.raises(DatabaseUnavailable):
                await writing
        with pytest.raises(DatabaseUnavailable):  # There is no primary.
            await built.check()
        await asyncio.to_thread(pair.promote)
        await _writable(built)
        again = [(await remember(built, text, key=text)).cached for text in kept]
        rows = await select(built.store, "SELECT text FROM episodes")
        await remember(built, TEXT)

    assert all(again)
    assert {*kept} <= {row["text"] for row in rows}


async def _writable(built: Application) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            with suppress(DatabaseUnavailable):
                await built.check()
                return
