"""After a change of the embedder, every item without a vector of its model gets one, and no other
model's.
"""

from dataclasses import replace

import numpy as np
import pytest

from recall_server.application import Application
from recall_server.domain.errors import EmbedderUnavailable
from recall_server.domain.ids import Namespace
from recall_server.domain.query import Query, SearchMode
from recall_server.services.memory.indexing import RECIPE
from recall_server.services.memory.ingest import Submission
from recall_server.storage.driver import document
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, remember
from tests.support.erasure import select
from tests.support.reembedding import Other, lines

BOB = Namespace("bob")
HASH, OTHER = f"hash/64+{RECIPE}", f"other/64+{RECIPE}"
# Vectors are stored with half precision.
HALF = 2**-11
TALK = "Ana: Shall we meet on Friday?\nBen: Yes, at noon.\nAna: Fine, in the park."


async def known(application: Application, namespace: Namespace = ALICE) -> dict[str, set[str]]:
    """Return the items that have a vector, by model."""
    found: dict[str, set[str]] = {}
    rows = await select(
        application.store,
        f"SELECT model, item_id FROM embeddings WHERE namespace = '{namespace}'",
        namespace,
    )
    for row in rows:
        found.setdefault(row["model"], set()).add(row["item_id"])
    return found


async def lived(application: Application) -> None:
    """Store memories, turns and a forgotten memory for two tenants."""
    await enter(application)
    await enter(application, BOB)
    await remember(application, TALK)
    await remember(application, "Ana: I live in Lisbon. I like green tea.")
    await application.services.ingest.remember(
        context(application, BOB), Submission("Bob: I live in Oslo.", "life")
    )
    await drained(application)


async def test_whatever_search_finds_gets_a_vector_of_the_new_model(open_app: Open) -> None:
    async with open_app() as application:
        await lived(application)
        before = await known(application)
    heard: list[int] = []
    async with open_app(embedder=Other()) as application:
        assert await application.services.embedding.lacking(ALICE) == len(before[HASH])
        made = await application.services.embedding.reembed(
            ALICE, entry=lines(application), on_progress=heard.append
        )
        after = await known(application)
        bobs = await known(application, BOB)
        again = await application.services.embedding.reembed(ALICE, entry=lines(application))
        lacking = await application.services.embedding.lacking(ALICE)
        found = await application.services.recall.search(
            context(application), Query("noon", mode=SearchMode.VECTOR)
        )
        book = await select(
            application.store, "SELECT counts FROM tool_call_records WHERE operation = 'reembed'"
        )

    assert made == heard[-1] == len(before[HASH]) > 3
    assert after[OTHER] == before[HASH] == after[HASH]
    assert set(bobs) == {HASH}
    assert (again, lacking) == (0, 0)
    assert found.hits
    assert sum(document(row["counts"])["embedded"] for row in book) == made


async def test_who_is_stopped_goes_on_where_it_ended(open_app: Open) -> None:
    async with open_app() as application:
        await lived(application)
        everything = (await known(application))[HASH]
    async with open_app(embedder=Other(answers=2)) as application:
        one_by_one = replace(application.services.embedding, batch=1)
        with pytest.raises(EmbedderUnavailable):
            await one_by_one.reembed(ALICE, entry=lines(application))
        some = (await known(application))[OTHER]
    async with open_app(embedder=Other()) as application:
        rest = await application.services.embedding.reembed(ALICE, entry=lines(application))
        after = await known(application)

    assert len(some) == 2
    assert rest == len(everything) - 2
    assert after[OTHER] == everything


async def test_the_vectors_of_other_models_are_deleted_when_that_is_asked_for(
    open_app: Open,
) -> None:
    async with open_app() as application:
        await lived(application)
        before = await known(application)
        bobs = await known(application, BOB)
    async with open_app(embedder=Other()) as application:
        await application.services.embedding.reembed(ALICE, entry=lines(application))
        in_twos = replace(application.services.embedding, dropped_at_once=2)
        dropped = await in_twos.drop_others(ALICE, entry=lines(application))
        none = await in_twos.drop_others(ALICE, entry=lines(application))
        after = await known(application)
        bobs_after = await known(application, BOB)

    assert dropped == len(before[HASH])
    assert none == 0
    assert after == {OTHER: before[HASH]}
    assert bobs_after == bobs


async def test_what_is_erased_meanwhile_has_no_part_in_any_vector(open_app: Open) -> None:
    """No job is stopped here: the batch notices the erasure itself, and is made again."""
    async with open_app() as application:
        await enter(application)
        accepted = await remember(application, TALK)
        await drained(application)
    turns = [f"{accepted.episode_id}.{n}" for n in range(3)]
    embedder = Other()
    async with open_app(embedder=embedder) as application:

        async def meanwhile() -> None:
            await application.services.erase.memory(context(application), turns[0])

        embedder.meanwhile = meanwhile
        made = await application.services.embedding.reembed(ALICE, entry=lines(application))
        after = await known(application)
        async with application.store.transaction(ALICE, write=False) as tx:
            (vector,) = (await tx.vectors.get(OTHER, [turns[1]])).values()
        (alone,) = await embedder.embed(["Ben: Yes, at noon."])

    assert made == 2
    assert after[OTHER] == set(turns[1:])
    assert np.allclose(vector, alone, atol=HALF)
