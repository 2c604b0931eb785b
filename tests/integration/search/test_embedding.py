"""Which words a vector is made of, and that every item without a vector gets one."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from recall_server.application import Application
from recall_server.domain.episode import Episode, Span, Turn
from recall_server.domain.errors import EmbedderUnavailable
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import MemoryType
from recall_server.domain.query import Query
from recall_server.domain.text.passages import VisiblePassage, visible_passages
from recall_server.integrations.embeddings import HttpEmbedder, Vectors
from recall_server.services.memory import indexing
from recall_server.services.memory.indexing import (
    PREVIOUS_CHARS_MAX,
    RECIPE,
    ItemEmbedder,
    of_memories,
    of_passages,
)
from recall_server.services.memory.reconcile import proposed
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, remember
from tests.support.engines import on_sqlite
from tests.support.extractors import Scripted
from tests.support.length import only_at_full_length
from tests.support.models import HashEmbedder, Reply, ScriptedModel, json_reply
from tests.support.runtime import Clock

# Vectors are stored with half precision.
HALF = 2**-11
TALK = "Ana: Shall we meet on Friday?\nBen: Yes, at noon.\nAna: Fine, in the park."


def episode(*said: tuple[str | None, str], hidden: int = -1, session: int = 10**6) -> Episode:
    """Make an episode with one turn on each line. The turn at `hidden` is held back, and a session
    begins at `session`.
    """
    text, turns = "", []
    for index, (speaker, words) in enumerate(said):
        start = len(text)
        text += f"{words}\n"
        turns.append(
            Turn(
                index,
                Span(start, start + len(words)),
                speaker,
                "two" if index >= session else "one",
                hidden=index == hidden,
            )
        )
    now = datetime(2026, 3, 1, tzinfo=UTC)
    return Episode("ep", text, "life", now, now, "", "job", turns=tuple(turns))


class Watched(HashEmbedder):
    """Count the texts, and call `meanwhile` while it works."""

    texts = 0
    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += len(texts)
        if self.meanwhile is not None:
            happening, self.meanwhile = self.meanwhile, None
            await happening()
        return await super().embed(texts)


def spoken(*turns: tuple[str | None, str], **given: int) -> dict[str, VisiblePassage]:
    return visible_passages(episode(*turns, **given))


async def stored(application: Application) -> dict[str, Vectors]:
    assert application.embedder is not None
    async with application.store.transaction(ALICE, write=False) as tx:
        ids, _ = await tx.findables.page(0)
        return await tx.vectors.get(application.embedder.model, ids)


def test_a_turn_is_embedded_with_its_speaker_behind_the_words_before_it() -> None:
    made = of_passages(
        visible_passages(episode(("Ana", "Tea or coffee?"), ("Ben", "Tea."), (None, "So be it.")))
    )

    assert made == {
        "ep.0": ("Ana: Tea or coffee?",),
        "ep.1": ("Tea or coffee? Ben: Tea.",),
        "ep.2": ("Tea. So be it.",),
    }


def test_a_memory_is_embedded_with_the_turn_it_rests_on() -> None:
    said = episode(("Ana", "Tea or coffee?"), ("Ben", "Tea. Always."))
    found = visible_passages(said)
    texts = of_passages(found)
    always, end = said.text.index("Always"), len(said.text)

    spans = Span(always, always + 6), Span(end, end + 1)
    inside, outside = of_memories([("Ben drinks tea.", span) for span in spans], found, texts)

    assert inside == ("Ben drinks tea.", "Tea or coffee? Ben: Tea. Always.")
    assert outside == ("Ben drinks tea.",)


def test_what_is_hidden_has_no_part_in_a_vector() -> None:
    made = of_passages(
        visible_passages(episode(("Ana", "one"), ("Ben", "two"), ("Ana", "three"), hidden=1))
    )

    assert made == {"ep.0": ("Ana: one",), "ep.2": ("Ana: three",)}


def test_the_words_before_are_those_of_the_same_session() -> None:
    made = of_passages(spoken(("Ana", "one"), ("Ben", "two"), session=1))

    assert made["ep.1"] == ("Ben: two",)


def test_within_a_turn_a_passage_is_embedded_without_the_one_before() -> None:
    made = of_passages(spoken(("Ana", "- Milk for the week."), (None, "- A plumber.\n- No lamps.")))

    assert [*made.values()] == [
        ("Ana: - Milk for the week.",),
        ("- Milk for the week. - A plumber.",),
        ("- No lamps.",),
    ]


def test_of_a_long_turn_before_the_end_counts() -> None:
    made = of_passages(spoken(("Ana", "x" * 9_000 + "end?"), ("Ben", "Yes.")))

    assert made["ep.1"][0] == "x" * (PREVIOUS_CHARS_MAX - 4) + "end? Ben: Yes."


async def test_the_vector_of_several_texts_is_their_mean_of_length_one() -> None:
    embedder = ItemEmbedder(HashEmbedder())
    tea, train = await embedder.embed(["tea", "train"])

    both, alone, nothing, again = await embedder.vectors_of(
        [("tea", "train"), ("train",), ("", ""), ("tea", "train")]
    )

    assert both == pytest.approx((tea + train) / np.linalg.norm(tea + train), abs=1e-6)
    assert alone == pytest.approx(train)
    assert not nothing.any()
    assert both.tobytes() == again.tobytes()
    assert both.dtype == np.float32
    assert (await embedder.vectors_of([])).shape[0] == 0


def test_the_key_of_the_vectors_names_the_recipe() -> None:
    assert ItemEmbedder(HashEmbedder()).model == f"hash/64+{RECIPE}"


async def test_turns_get_the_vectors_of_the_recipe(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        accepted = await remember(application, TALK)
        await drained(application)
        made = await stored(application)
        assert application.embedder is not None
        async with application.store.transaction(ALICE, write=False) as tx:
            kept = await tx.episodes.get(accepted.episode_id)
        assert kept is not None
        texts = of_passages(visible_passages(kept))
        wanted = await application.embedder.vectors_of(list(texts.values()))

    assert texts
    assert np.allclose(np.array([made[i] for i in texts]), wanted, atol=HALF)


async def test_a_job_makes_only_the_vectors_that_are_missing(open_app: Open) -> None:
    embedder = Watched()
    async with open_app(embedder=embedder) as application:
        await enter(application)
        accepted = await remember(application, TALK)
        await drained(application)
        before = embedder.texts
        async with application.store.transaction(ALICE) as tx:
            payload = {"episode_id": accepted.episode_id}
            now = application.runtime.now()
            await tx.jobs.add("job_again", "embed", payload, now, again=True)
        await drained(application)

    assert embedder.texts == before > 0


async def test_what_an_erased_turn_brought_into_the_next_ones_vector_goes_with_it(
    open_app: Open,
) -> None:
    async with open_app() as application:
        await enter(application)
        accepted = await remember(application, TALK)
        await drained(application)
        first, second, third = (f"{accepted.episode_id}.{n}" for n in range(3))
        before = await stored(application)
        assert {first, second, third} <= set(before)
        await application.services.erase.memory(context(application), first)
        at_once = await stored(application)
        await drained(application)
        after = await stored(application)
        assert application.embedder is not None
        (alone,) = await application.embedder.embed(["Ben: Yes, at noon."])

    assert set(at_once) == {third}, "whatever stood beside the words has no vector meanwhile"
    assert set(after) == {second, third}
    assert np.allclose(after[second], alone, atol=HALF)
    assert not np.array_equal(after[second], before[second])
    assert np.array_equal(after[third], before[third])


async def test_what_is_erased_while_a_vector_is_made_has_no_part_in_it(open_app: Open) -> None:
    embedder = Watched()
    async with open_app(embedder=embedder) as application:
        await enter(application)
        accepted = await remember(application, TALK)

        async def meanwhile() -> None:
            await application.services.erase.memory(
                context(application), f"{accepted.episode_id}.0"
            )

        embedder.meanwhile = meanwhile
        await drained(application)
        made = await stored(application)
        (alone,) = await embedder.embed(["Ben: Yes, at noon."])

    assert set(made) == {f"{accepted.episode_id}.{n}" for n in (1, 2)}
    assert np.allclose(made[f"{accepted.episode_id}.1"], alone, atol=HALF)


async def test_without_an_answer_of_the_embedder_the_job_waits(open_app: Open) -> None:
    embedder = HashEmbedder(failing=True)
    async with open_app(embedder=embedder) as application:
        await enter(application)
        await remember(application, TALK)
        await drained(application)
        found = await application.services.recall.search(context(application), Query("noon"))
        with pytest.raises(EmbedderUnavailable):
            await embedder.load()
        counts = await application.services.recall.stats(context(application))

    assert found.degraded
    assert counts.backlog.pending_embeddings == 1


async def test_an_endpoint_that_comes_back_gives_the_vectors_that_it_owed(
    open_app: Open, clock: Clock
) -> None:
    down, text = Reply(status=503), "The heron stood by the pond."
    answer = json_reply({"data": [{"index": 0, "embedding": [0.6, 0.8]}]})
    async with ScriptedModel([down, down, answer, answer], path="/v1/embeddings") as endpoint:
        embedder = HttpEmbedder("m", url=f"{endpoint.url}/v1", api_key=None, timeout_s=30, batch=32)
        async with open_app(embedder=embedder) as application:
            await enter(application)
            await remember(application, text)
            await drained(application)
            words = await application.services.recall.search(context(application), Query("heron"))
            clock.pass_(timedelta(minutes=20))
            await drained(application)
            both = await application.services.recall.search(
                context(application), Query("heron"), cite=True
            )

    assert words.degraded is not None
    assert "answered 503" in words.degraded
    assert [hit.item.text for hit in words.hits] == [text]
    assert both.degraded is None
    assert both.hits[0].scores.signals["cosine"] is not None


@only_at_full_length
@on_sqlite
async def test_thousands_of_memories_of_one_long_text_get_their_vectors(open_app: Open) -> None:
    """Reading the quote of each took over three seconds: the engine reads the whole text for it.
    PostgreSQL, whose statement is the same, takes long to be filled.
    """
    sentence = "Ann counts quokkas. "
    async with open_app(extractor=Scripted()) as application:
        await enter(application)
        accepted = await remember(application, sentence * 9_000)
        async with application.store.transaction(ALICE) as tx:
            kept = await tx.episodes.get(accepted.episode_id)
            assert kept is not None
            candidates = [
                Candidate(f"Ann has {n} quokkas.", MemoryType.FACT, Span(20 * n, 20 * n + 19))
                for n in range(9_000)
            ]
            made = proposed(kept, candidates, "scripted/1", application.runtime.now())
            for one in made.values():
                await tx.memories.add(one)
            await indexing.show(tx, list(made))
        await drained(application)
        async with application.store.transaction(ALICE, write=False) as tx:
            lacking = await tx.vectors.lacking(f"hash/64+{RECIPE}", list(made))

    assert len(made) == 9_000
    assert lacking == []
