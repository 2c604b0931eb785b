"""The tables that reads use are derived from texts and events: they are compared, repaired, and
extracted again.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta

import pytest

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.episode import Span
from recall_server.domain.extraction import Candidate
from recall_server.domain.intents import Intent
from recall_server.domain.memory import Fact, MemoryType
from recall_server.domain.permissions import OPERATOR
from recall_server.domain.query import Query
from recall_server.services.memory import derivation, indexing
from recall_server.services.memory import rebuild as rebuild_module
from recall_server.services.memory.derivation import Compared, Differences
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Wish
from recall_server.services.memory.rebuild import NOT_KEPT, Reextracted
from recall_server.storage.store import Transaction
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, memories, remember
from tests.support.erasure import found, select
from tests.support.extractors import Scripted
from tests.support.index_walk import Walk
from tests.support.models import HashEmbedder
from tests.support.runtime import Clock

HOUR = timedelta(hours=1)


TEXT = "User: Hello there. I live in Porto."


def old_rules() -> Scripted:
    """Return the rules of an older release. They word the place badly, and make a memory of a
    greeting.
    """
    fact = Fact("user", "lives_in", "Porto")
    found = Scripted(
        Hello=Candidate("Hello is said.", MemoryType.FACT, Span(6, 11)),
        Porto=Candidate("User lives Porto", MemoryType.FACT, Span(19, 34), fact),
    )
    found.name = "rules/1"
    return found


def begins(application: Application) -> Callable[[], Context]:
    return lambda: context(application)


async def reextracted(application: Application) -> Reextracted:
    done = await application.services.rebuild.reextract(ALICE, begins(application), lambda _: None)
    await drained(application)
    return done


async def porto_and_figs(application: Application) -> None:
    """Store a text of two statements, and run its jobs."""
    await enter(application)
    await remember(application, "User: I live in Porto. I like figs.")
    await drained(application)


async def test_whatever_was_done_what_is_read_is_what_it_derives_from(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        walk = Walk(application, 4)
        for number in range(30):
            clock.pass_(HOUR)
            await walk.step()
            if number % 3 == 0:
                compared = await application.services.rebuild.compare(context(application))
                assert compared.same, (compared, walk.taken)
        again = await application.services.rebuild.compare(context(application))
        once_more = await application.services.rebuild.compare(context(application))

    assert again == once_more
    assert again.memories > 3


async def test_what_differs_is_named_and_mended(open_app: Open, clock: Clock) -> None:
    async with open_app() as application:
        await porto_and_figs(application)
        rebuild, before = application.services.rebuild, await memories(application)
        whole = await rebuild.compare(context(application))
        broken = next(one.id for one in before if "figs" in one.text)
        async with application.store.driver.transaction(namespace=ALICE, write=True) as raw:
            await raw.fetch(
                f"UPDATE memories SET reinforcements = 7 WHERE id = '{broken}'",
                {},
            )
            await raw.fetch("UPDATE terms SET documents = documents + 1 WHERE term = 'fig'", {})

        compared = await rebuild.compare(context(application))
        assert (compared.same, compared.different, compared.words) == (False, (broken,), 1)
        mended = await rebuild.mend(context(application))
        assert mended == compared
        assert await rebuild.compare(context(application)) == whole
        assert await memories(application) == before


async def test_altered_words_of_a_model_are_written_again_without_it(
    open_app: Open, clock: Clock
) -> None:
    said = Candidate("Ann rows at dawn.", MemoryType.FACT, Span(5, 11), Fact("Ann", "rows", "dawn"))
    model = Scripted(row=said)
    async with open_app(extractor=model) as application:
        await enter(application)
        await remember(application, "Ann: I row.")
        await drained(application)
        rebuild, before = application.services.rebuild, await memories(application)
        whole = await rebuild.compare(context(application))
        for change in ("text = 'Ann sails.'", "value = 'noon'", "type = 'decision', topic = 'x'"):
            async with application.store.driver.transaction(
                namespace=ALICE, write=True, erasing=True
            ) as raw:
                await raw.fetch(f"UPDATE memories SET {change}", {})
            mended = await rebuild.mend(context(application))
            assert mended.repaired == (before[0].id,)
            assert await rebuild.compare(context(application)) == whole
        assert await memories(application) == before
        assert model.asked == 1


async def test_a_lost_memory_of_a_model_is_made_again_unless_the_name_of_the_model_was_erased(
    open_app: Open, clock: Clock
) -> None:
    said = Candidate("Ann rows at dawn.", MemoryType.FACT, Span(5, 11), importance=0.75)
    model = Scripted(row=said)
    model.name = "anthropic/claude/1"
    async with open_app(extractor=model) as application:
        await enter(application)
        await remember(application, "Ann: I row.")
        await drained(application)
        rebuild, before = application.services.rebuild, await memories(application)
        whole = await rebuild.compare(context(application))
        for erased in (False, True):
            if erased:
                await application.services.erase.subject(context(application), "Claude")
            for name in ("citations", "memories"):
                await lose(application, name)
            mended = await rebuild.mend(context(application))
            assert mended.repaired == (() if erased else (before[0].id,))
            if not erased:
                assert await rebuild.compare(context(application)) == whole
                assert await memories(application) == before
        assert mended.unmade == {before[0].id: NOT_KEPT}
        assert model.asked == 1


@pytest.mark.parametrize(
    "lost", [("embeddings",), ("citations", "embeddings", "documents", "memories")]
)
async def test_a_search_goes_by_the_new_vectors_of_what_was_made_again(
    open_app: Open, clock: Clock, lost: Collection[str]
) -> None:
    """They may take the slots of the lost ones, which the cache of vectors still had."""
    async with open_app(embedder=HashEmbedder()) as application:
        await porto_and_figs(application)
        await remember(application, "Ann: I own a boat. I live in Rome.")
        await drained(application)
        before = {asked: await found_by(application, asked) for asked in ("Rome boat", "figs")}
        for name in lost:
            await lose(application, name)
        await application.services.rebuild.mend(context(application))
        await drained(application)
        assert {asked: await found_by(application, asked) for asked in before} == before


async def test_an_erased_passage_of_which_words_were_forgotten_leaves_the_counts_right(
    open_app: Open, clock: Clock
) -> None:
    """The memory that hid them was deleted first, so the index lost words that it had not."""
    async with open_app() as application:
        await enter(application)
        stored = await remember(application, "User: I own a piano. I prefer tabs.")
        await remember(application, "Ann: I live in Porto.")
        await drained(application)
        tabs = next(one.id for one in await memories(application) if "tabs" in one.text)
        await application.services.recall.forget(context(application), tabs)
        await application.services.erase.memory(context(application), f"{stored.episode_id}.0")
        assert (await application.services.rebuild.compare(context(application))).same


async def test_words_that_an_erased_memory_hid_elsewhere_stay_forgotten(
    open_app: Open, clock: Clock
) -> None:
    """They were shown again in the other text, but not found."""
    async with open_app() as application:
        await enter(application)
        stored = [await remember(application, f"User: I prefer tabs. {n}") for n in ("Hm.", "So.")]
        await drained(application)
        tabs = next(one.id for one in await memories(application) if "tabs" in one.text)
        await application.services.recall.forget(context(application), tabs)
        await application.services.erase.memory(context(application), f"{stored[0].episode_id}.0")
        assert (await application.services.rebuild.compare(context(application))).same
        page = await application.services.texts.page(context(application), limit=10, offset=0)
        assert [words for _, words in page.texts if "So" in words] == ["User: … So."]
        assert not any("tabs" in words for _, words in page.texts)


@pytest.mark.parametrize(
    "numbers",
    [
        "code = replace(code, 'f', '0')",
        "vector = (SELECT o.vector FROM embeddings o WHERE o.code <> embeddings.code LIMIT 1)",
    ],
)
async def test_vectors_with_other_numbers_are_made_anew(
    open_app: Open, clock: Clock, numbers: str
) -> None:
    async with open_app(embedder=HashEmbedder()) as application:
        await porto_and_figs(application)
        rebuild = application.services.rebuild
        whole = await rebuild.compare(context(application))
        await run(application, f"UPDATE embeddings SET {numbers}")
        compared = await rebuild.compare(context(application))
        assert (whole.same, whole.broken) == (True, 0)
        assert (compared.same, compared.broken > 0) == (False, True)
        await rebuild.mend(context(application))
        await drained(application)
        assert await rebuild.compare(context(application)) == whole


class Interrupted(Exception):
    """The rebuild was ended from outside."""


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has one memory, or one text."""
    monkeypatch.setattr(derivation, "MEMORIES", 1)
    monkeypatch.setattr(derivation, "TEXTS", 1)


def ends_at(number: int) -> Callable[[int], None]:
    def on_progress(count: int) -> None:
        if count >= number:
            raise Interrupted

    return on_progress


async def found_by(application: Application, words: str) -> list[tuple[str, float | None]]:
    """Return the hits of a search with the cosines of their vectors."""
    answer = await application.services.recall.search(context(application), Query(words))
    return [(hit.text, hit.scores.cosine) for hit in answer.hits]


async def lose(application: Application, table: str) -> None:
    """Delete all rows behind the back of the server."""
    async with application.store.driver.transaction(
        namespace=ALICE, write=True, erasing=True
    ) as raw:
        await raw.fetch(f"DELETE FROM {table} WHERE namespace = '{ALICE}'", {})


async def run(application: Application, sql: str) -> None:
    """Change rows behind the back of the server."""
    async with application.store.driver.transaction(
        namespace=ALICE, write=True, erasing=True
    ) as raw:
        await raw.fetch(sql, {})


async def interrupted(application: Application, number: int) -> None:
    with pytest.raises(Interrupted):
        await application.services.rebuild.mend(context(application), ends_at(number))


async def rows_kept(application: Application) -> int:
    return len(await select(application.store, "SELECT number FROM rebuilt"))


@pytest.mark.usefixtures("small_batches")
async def test_an_interrupted_rebuild_goes_on_where_it_was(open_app: Open, clock: Clock) -> None:
    async with open_app() as application:
        await enter(application)
        rebuild = application.services.rebuild
        for text in ("User: I live in Porto.", "User: I like figs.", "User: I have a boat."):
            await remember(application, text)
        await drained(application)
        whole = await rebuild.compare(context(application))
        assert whole.resumed == 0
        await run(application, "UPDATE memories SET reinforcements = 7")

        await interrupted(application, 2)
        assert await rows_kept(application) == 2
        counted: list[int] = []
        mended = await rebuild.mend(context(application), counted.append)

        assert (mended.resumed, len(mended.different)) == (2, whole.memories)
        assert counted == list(range(2, whole.memories + 4))  # and three texts
        assert await rows_kept(application) == 0
        assert await rebuild.compare(context(application)) == whole


@pytest.mark.usefixtures("small_batches")
async def test_what_another_release_has_derived_is_not_used(open_app: Open, clock: Clock) -> None:
    async with open_app() as application:
        await porto_and_figs(application)
        await interrupted(application, 3)
        await run(application, "UPDATE rebuilt SET release = '0.0.1', derived = 'unreadable'")

        compared = await application.services.rebuild.mend(context(application))

        assert (compared.same, compared.resumed) == (True, 0)
        assert await rows_kept(application) == 0


@pytest.mark.usefixtures("small_batches")
async def test_what_changes_after_it_was_derived_is_derived_again(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await porto_and_figs(application)
        await interrupted(application, 3)
        figs = next(one for one in await memories(application) if "figs" in one.text)
        await application.services.recall.forget(context(application), figs.id)
        await remember(application, "User: I live in Lisbon now.")
        await drained(application)

        compared = await application.services.rebuild.mend(context(application))

        assert (compared.same, compared.resumed) == (True, 3)
        assert compared == await application.services.rebuild.compare(context(application))


@pytest.mark.usefixtures("small_batches")
async def test_an_erasure_leaves_nothing_of_an_interrupted_rebuild(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await porto_and_figs(application)
        await interrupted(application, 3)
        assert await rows_kept(application) == 3
        figs = next(one for one in await memories(application) if "figs" in one.text)

        await application.services.erase.memory(context(application), figs.id)

        assert await rows_kept(application) == 0
        compared = await application.services.rebuild.compare(context(application))
        assert (compared.same, compared.resumed) == (True, 0)


async def test_a_list_that_lost_an_entry_is_made_whole(open_app: Open, clock: Clock) -> None:
    """The counts are as before, so only the postings tell."""
    async with open_app() as application:
        await porto_and_figs(application)
        rebuild = application.services.rebuild
        whole = await rebuild.compare(context(application))
        hits = await found(application, "figs")
        await run(application, "UPDATE terms SET found = '' WHERE term = 'fig'")

        compared = await rebuild.mend(context(application))

        assert (compared.same, compared.words) == (False, 0)
        assert compared.items == len(hits) == 2
        assert await rebuild.compare(context(application)) == whole
        assert await found(application, "figs") == hits


async def test_an_index_of_which_nothing_is_left_is_made_whole(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        walk = Walk(application, 7)
        for _ in range(12):
            clock.pass_(HOUR)
            await walk.step()
        rebuild = application.services.rebuild
        whole = await rebuild.compare(context(application))
        for table in ("terms", "postings", "documents"):
            await run(application, f"DELETE FROM {table}")
        await run(application, "UPDATE namespaces SET documents = 3, words = 99")

        compared = await rebuild.mend(context(application))

        assert not compared.same
        assert compared.digest != whole.digest
        assert compared.rebuilt == whole.rebuilt
        await drained(application)  # makes the lost vectors
        again = await rebuild.compare(context(application))
        assert again == replace(whole, vectors=0)


@pytest.mark.usefixtures("small_batches")
async def test_most_of_an_index_is_made_anew_some_entries_at_a_time(
    open_app: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others write in between, and what they hide is not found again."""
    monkeypatch.setattr(rebuild_module, "ENTRIES_AT_ONCE", 2)
    async with open_app() as application:
        await porto_and_figs(application)
        rebuild = application.services.rebuild
        figs = next(one for one in await memories(application) if "figs" in one.text)
        for table in ("terms", "postings", "documents"):
            await run(application, f"DELETE FROM {table}")
        replace_, calls = indexing.replace, 0

        async def meanwhile(tx: Transaction, ids: Collection[str]) -> None:
            nonlocal calls
            calls += 1
            await replace_(tx, ids)
            if calls == 1:
                hidden.append(asyncio.create_task(forgotten()))

        async def forgotten() -> None:
            await application.services.recall.forget(context(application), figs.id)

        hidden: list[asyncio.Task[None]] = []
        monkeypatch.setattr(indexing, "replace", meanwhile)
        await rebuild.mend(context(application))
        await asyncio.gather(*hidden)

        assert calls > 1
        assert (await rebuild.compare(context(application))).same
        assert await found(application, "figs") == []
        assert "The user lives in Porto." in await found(application, "Porto")


async def test_an_entry_that_should_not_be_is_hidden(open_app: Open, clock: Clock) -> None:
    async with open_app() as application:
        await porto_and_figs(application)
        figs = next(one for one in await memories(application) if "figs" in one.text)
        shown = "UPDATE documents SET findable = TRUE, hidden_at = NULL WHERE item_id = "
        await application.services.recall.forget(context(application), figs.id)
        rebuild = application.services.rebuild
        whole = await rebuild.compare(context(application))
        await run(application, f"{shown}'{figs.id}'")

        compared = await rebuild.mend(context(application))

        assert (compared.same, compared.items) == (False, 1)
        assert await rebuild.compare(context(application)) == whole


async def test_what_changes_between_the_comparison_and_the_switch_is_compared_again(
    open_app: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_app() as application:
        await porto_and_figs(application)
        figs = next(one for one in await memories(application) if "figs" in one.text)
        await run(application, f"UPDATE memories SET reinforcements = 7 WHERE id = '{figs.id}'")
        compare, calls = derivation.compare, 0

        async def meanwhile(tx: Transaction, model: str | None) -> tuple[Compared, Differences]:
            nonlocal calls
            calls += 1
            found = await compare(tx, model)
            if calls == 1:
                await application.services.recall.forget(context(application), figs.id)
            return found

        monkeypatch.setattr(derivation, "compare", meanwhile)
        await application.services.rebuild.mend(context(application))

        assert calls == 2
        assert figs.id not in {one.id for one in await memories(application)}
        assert (await application.services.rebuild.compare(context(application))).same


@pytest.mark.usefixtures("small_batches")
async def test_two_rebuilds_at_a_time_mend_once(open_app: Open, clock: Clock) -> None:
    async with open_app() as application:
        await porto_and_figs(application)
        rebuild = application.services.rebuild
        whole = await rebuild.compare(context(application))
        await run(application, "UPDATE memories SET reinforcements = 7")
        for table in ("terms", "postings"):
            await run(application, f"DELETE FROM {table}")

        await asyncio.gather(*(rebuild.mend(context(application)) for _ in range(2)))

        assert await rows_kept(application) == 0
        assert await rebuild.compare(context(application)) == whole


async def test_texts_are_extracted_anew_as_one_change_that_can_be_undone(
    open_app: Open, clock: Clock
) -> None:
    async with open_app(extractor=old_rules()) as application:
        await enter(application)
        await remember(application, TEXT)
        await drained(application)
        old = {one.text for one in await memories(application)}
        assert old == {"User lives Porto", "Hello is said."}
    clock.pass_(HOUR)
    async with open_app() as application:
        done = await reextracted(application)
        assert (done.texts, done.added, done.superseded, done.deprecated) == (1, 1, 1, 1)
        assert [one.text for one in await memories(application)] == ["The user lives in Porto."]
        assert (await application.services.rebuild.compare(context(application))).same

        again = await reextracted(application)
        assert (again.added, again.superseded, again.deprecated) == (0, 0, 0)

        await application.services.changes.undo(
            context(application),
            done.change_id,
            rights=OPERATOR,
            dry_run=False,
            with_dependents=False,
        )
        assert {one.text for one in await memories(application)} == old


async def test_what_a_person_forgot_is_not_extracted_anew(open_app: Open, clock: Clock) -> None:
    async with open_app(extractor=old_rules()) as application:
        await enter(application)
        await remember(application, TEXT)
        await drained(application)
        place = next(one for one in await memories(application) if "Porto" in one.text)
        await application.services.recall.forget(context(application), place.id)
    async with open_app() as application:
        await reextracted(application)
        assert await memories(application) == []


async def test_what_was_entered_by_hand_is_not_extracted_anew(open_app: Open, clock: Clock) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, "User: We deploy on Fridays.")
        await drained(application)
        (deploys,) = await memories(application)
        clock.pass_(HOUR)
        await application.services.intents.update(
            context(application),
            deploys.id,
            text="We deploy on Thursdays.",
            type_=None,
            confidence=None,
            dry_run=False,
        )
        await drained(application)
        before = [one.text for one in await memories(application)]

        done = await reextracted(application)

        assert before == ["We deploy on Thursdays."]
        assert (done.added, done.superseded, done.deprecated) == (0, 0, 0)
        assert [one.text for one in await memories(application)] == before


async def test_what_was_corrected_does_not_return_in_other_words(
    open_app: Open, clock: Clock
) -> None:
    async with open_app(extractor=old_rules()) as application:
        await enter(application)
        await remember(application, TEXT)
        await drained(application)
        place = next(one for one in await memories(application) if "Porto" in one.text)
        clock.pass_(HOUR)
        wish = Wish(
            Intent.CORRECT, Submission("The house is in Lisbon.", "life"), memory_id=place.id
        )
        await application.services.intents.submit(context(application), wish)
    async with open_app() as application:
        await reextracted(application)

        assert [one.text for one in await memories(application)] == ["The house is in Lisbon."]
