"""After any steps in any order, the index equals the stored items."""

from collections import Counter
from datetime import timedelta

import pytest

from recall_server.application import Application
from recall_server.domain.ids import Namespace
from recall_server.domain.screening import Held
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter
from tests.support.erasure import select
from tests.support.index_walk import STEPS, Walk, index, made_anew
from tests.support.lists import listed
from tests.support.runtime import Clock
from tests.support.transfer import BOB, exported, taken_in

FOUND = (
    "SELECT id FROM memories WHERE namespace = 'alice' AND status <> 'forgotten'"
    " UNION SELECT item_id FROM documents WHERE namespace = 'alice' AND findable"
    " AND turn_id IS NOT NULL ORDER BY id"
)
NEAR = (
    "SELECT e.item_id AS id FROM embeddings e JOIN documents d"
    " ON d.namespace = e.namespace AND d.slot = e.document AND d.item_id = e.item_id"
    " WHERE e.namespace = 'alice' AND d.findable ORDER BY id"
)
SHOWN = "SELECT id FROM turns WHERE namespace = 'alice' AND state = 'open'"
COUNTED = "SELECT type, topic, memories FROM memory_counts WHERE namespace = 'alice'"
COUNTED_ANEW = (
    "SELECT type, topic, count(*) AS memories FROM memories"
    " WHERE namespace = 'alice' AND retired_at IS NULL GROUP BY type, topic"
)


async def counts(application: Application, query: str) -> set[tuple[str, str, int]]:
    rows = await select(application.store, query)
    return {(row["type"], row["topic"], int(row["memories"])) for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_is_done_the_index_is_the_one_that_would_be_made_anew(
    open_app: Open, clock: Clock, seed: int
) -> None:
    async with open_app() as application:
        await enter(application)
        walk = Walk(application, seed)
        for number in range(STEPS):
            clock.pass_(timedelta(minutes=number % 7))
            await walk.step()
            assert await index(application) == await made_anew(application), (number, walk.taken)
            found = {row["id"] for row in await select(application.store, FOUND)}
            near = {row["id"] for row in await select(application.store, NEAR)}
            assert near <= found, (number, walk.taken)
            counted = await counts(application, COUNTED)
            assert counted == await counts(application, COUNTED_ANEW), (number, walk.taken)
        await drained(application)

        assert {row["id"] for row in await select(application.store, NEAR)} == {
            row["id"] for row in await select(application.store, FOUND)
        }
        assert len(walk.taken) >= 7, walk.taken
        await _travels(application)


async def _travels(application: Application) -> None:
    """An import in another namespace is indexed by the same words, once the same turns are released
    from quarantine there.
    """
    await enter(application, BOB)
    await taken_in(application, await exported(application), BOB)
    shown = {row["id"] for row in await select(application.store, SHOWN)}
    quarantine, bob = application.services.quarantine, context(application, BOB)
    held = await quarantine.list(bob, state=Held.HELD, limit=50, offset=0)
    for suspect in held.found:
        if suspect.item_id in shown:
            await quarantine.release(context(application, BOB), suspect.item_id)
    await drained(application)

    async def of(namespace: Namespace) -> dict[str, int]:
        found = await listed(application.store, namespace)
        return Counter(one["term"] for one in found if one["findable"])

    assert await of(BOB) == await of(ALICE)
