"""After a change of the embedder: vectors of its model for all that lacks one, and of no other."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import numpy as np
import pytest

from recall_server.app import House
from recall_server.domain.failures import EmbedderUnavailable
from recall_server.domain.model import AuditEntry, Namespace, Query, SearchMode
from recall_server.providers.embedding import Vectors
from recall_server.services import embedding
from recall_server.services.ingest import Submission
from recall_server.storage.rows import document
from tests.conftest import Open
from tests.fakes import HashEmbedder
from tests.security.erasing import select
from tests.services.conversation import ALICE, drained, enter, entry, remember

BOB = Namespace("bob")
TALK = "Ana: Shall we meet on Friday?\nBen: Yes, at noon.\nAna: Fine, in the park."
Entry = Callable[[str], AuditEntry]


class Other(HashEmbedder):
    """Another model, which answers so many times and then fails; `meanwhile` happens first."""

    model = "other/64"

    def __init__(self, answers: int = 1_000) -> None:
        super().__init__()
        self.answers = answers
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if self.meanwhile is not None:
            happening, self.meanwhile = self.meanwhile, None
            await happening()
        if self.answers == 0:
            raise EmbedderUnavailable
        self.answers -= 1
        return -await super().embed(texts)


def lines(house: House, namespace: Namespace = ALICE) -> Entry:
    return partial(house.services.audit.begin, namespace, door="cli", accessor=None)


async def known(house: House, namespace: Namespace = ALICE) -> dict[str, set[str]]:
    """The items that have a vector, by model."""
    found: dict[str, set[str]] = {}
    rows = await select(
        house.store,
        f"SELECT model, item_id FROM embeddings WHERE namespace = '{namespace}'",
        namespace,
    )
    for row in rows:
        found.setdefault(row["model"], set()).add(row["item_id"])
    return found


async def lived(house: House) -> None:
    """Two tenants with memories, turns, and something that was forgotten."""
    await enter(house)
    await enter(house, BOB)
    await remember(house, TALK)
    await remember(house, "Ana: I live in Lisbon. I like green tea.")
    await house.services.ingest.remember(
        BOB, Submission("Bob: I live in Oslo.", "life"), entry=entry(house, BOB)
    )
    await drained(house)


async def test_whatever_search_finds_gets_a_vector_of_the_new_model(open_house: Open) -> None:
    async with open_house() as house:
        await lived(house)
        before = await known(house)
    heard: list[int] = []
    async with open_house(embedder=Other()) as house:
        assert await house.services.embedding.lacking(ALICE) == len(before["hash/64+2"])
        made = await house.services.embedding.reembed(ALICE, entry=lines(house), told=heard.append)
        after = await known(house)
        bobs = await known(house, BOB)
        again = await house.services.embedding.reembed(ALICE, entry=lines(house))
        lacking = await house.services.embedding.lacking(ALICE)
        found = await house.services.recall.search(
            ALICE, Query("noon", mode=SearchMode.VECTOR), entry=entry(house)
        )
        book = await select(
            house.store, "SELECT counts FROM tool_call_records WHERE operation = 'reembed'"
        )

    assert made == heard[-1] == len(before["hash/64+2"]) > 3
    assert after["other/64+2"] == before["hash/64+2"] == after["hash/64+2"]
    assert set(bobs) == {"hash/64+2"}
    assert (again, lacking) == (0, 0)
    assert found.hits
    assert sum(document(row["counts"])["embedded"] for row in book) == made


async def test_who_is_stopped_goes_on_where_it_ended(
    open_house: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "BATCH", 1)
    async with open_house() as house:
        await lived(house)
        everything = (await known(house))["hash/64+2"]
    async with open_house(embedder=Other(answers=2)) as house:
        with pytest.raises(EmbedderUnavailable):
            await house.services.embedding.reembed(ALICE, entry=lines(house))
        some = (await known(house))["other/64+2"]
    async with open_house(embedder=Other()) as house:
        rest = await house.services.embedding.reembed(ALICE, entry=lines(house))
        after = await known(house)

    assert len(some) == 2
    assert rest == len(everything) - 2
    assert after["other/64+2"] == everything


async def test_the_vectors_of_other_models_are_deleted_when_that_is_asked_for(
    open_house: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "DROPPED_AT_ONCE", 2)
    async with open_house() as house:
        await lived(house)
        before = await known(house)
        bobs = await known(house, BOB)
    async with open_house(embedder=Other()) as house:
        await house.services.embedding.reembed(ALICE, entry=lines(house))
        dropped = await house.services.embedding.drop_others(ALICE, entry=lines(house))
        none = await house.services.embedding.drop_others(ALICE, entry=lines(house))
        after = await known(house)
        bobs_after = await known(house, BOB)

    assert dropped == len(before["hash/64+2"])
    assert none == 0
    assert after == {"other/64+2": before["hash/64+2"]}
    assert bobs_after == bobs


async def test_what_is_erased_meanwhile_has_no_part_in_any_vector(open_house: Open) -> None:
    """No job is fenced here: the batch itself notices, and is made again."""
    async with open_house() as house:
        await enter(house)
        accepted = await remember(house, TALK)
        await drained(house)
    turns = [f"{accepted.episode_id}.{n}" for n in range(3)]
    embedder = Other()
    async with open_house(embedder=embedder) as house:

        async def meanwhile() -> None:
            await house.services.erase.memory(ALICE, turns[0], entry=entry(house))

        embedder.meanwhile = meanwhile
        made = await house.services.embedding.reembed(ALICE, entry=lines(house))
        after = await known(house)
        async with house.store.transaction(ALICE, write=False) as tx:
            (vector,) = (await tx.vectors.of("other/64+2", [turns[1]])).values()
        (alone,) = await embedder.embed(["Ben: Yes, at noon."])

    assert made == 2
    assert after["other/64+2"] == set(turns[1:])
    assert np.array_equal(vector, alone)
