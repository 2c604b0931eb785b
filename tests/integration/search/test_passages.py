"""A stored text is found by its own words, whatever memories cite, forget and correct."""

import random
from collections.abc import Sequence
from datetime import timedelta

import pytest

from recall_server.application import Application
from recall_server.domain.episode import Span
from recall_server.domain.errors import MemoryNotFound
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import Fact, MemoryType, Status
from recall_server.domain.query import Hit, ItemKind, Query, SearchMode
from tests.support.application import Open
from tests.support.conversation import context, drained, enter, memories, remember
from tests.support.extractors import Scripted
from tests.support.length import at_full_length, has_full_length
from tests.support.runtime import Clock

MANUAL = """# House manual

## Heating
The boiler is in the cellar behind the wine rack. Bleed the radiators in October.

## Phones
- Vet: 0171 2233
- Tom's number is the one on the fridge
- Plumber: ask at the bakery

The blue bin goes out on Tuesdays. Nobody may feed the heron."""
MARCUS = """Marcus:
- job: teacher at the grammar school
- city: Bonn
- allergy: hazelnuts
- prefers answers short"""


STEPS = at_full_length(30, otherwise=15)


def citing(words: str, text: str, statement: str, fact: Fact | None = None) -> Candidate:
    start = text.index(words)
    return Candidate(statement, MemoryType.FACT, Span(start, start + len(words)), fact)


async def asked(application: Application, question: str, limit: int = 5) -> Sequence[Hit]:
    query = Query(question, limit=limit)
    return (await application.services.recall.search(context(application), query)).hits


async def shown(application: Application, question: str, limit: int = 5) -> str:
    return "\n".join(
        f"{hit.text}\n{hit.quote}" for hit in await asked(application, question, limit)
    )


async def test_all_of_a_house_manual_is_found_though_memories_cite_some_of_it(
    open_app: Open,
) -> None:
    words = "Tom's number is the one on the fridge"
    extractor = Scripted(fridge=citing(words, MANUAL, "Tom's number is on the fridge."))
    async with open_app(extractor=extractor) as application:
        await enter(application)
        await remember(application, MANUAL)
        await drained(application)
        assert len(await memories(application)) == 1

        assert "0171 2233" in await shown(application, "What is the vet's phone number?")
        for question, answer in {
            "Where is the boiler?": "cellar",
            "Which month do we bleed the radiators?": "October",
            "Who knows a plumber?": "bakery",
            "When does the blue bin go out?": "Tuesdays",
            "May I feed the heron?": "Nobody",
            "Where is Tom's number?": "fridge",
        }.items():
            assert answer in await shown(application, question), question


async def test_a_memory_and_the_passage_that_it_cites_are_one_hit(open_app: Open) -> None:
    text = "Ann: I moved to Porto in May. The boat was late.\nBen: Porto is lovely."
    extractor = Scripted(Porto=citing("I moved to Porto in May", text, "Ann lives in Porto."))
    async with open_app(extractor=extractor) as application:
        await enter(application)
        await remember(application, text)
        await drained(application)
        first, second = await asked(application, "Did Ann move to Porto?")

    assert (first.item.kind, first.text) == (ItemKind.MEMORY, "Ann lives in Porto.")
    assert first.quote == "I moved to Porto in May. The boat was late."
    assert first.item.citation.quote == "I moved to Porto in May"
    assert first.item.citation.speaker == "Ann"
    assert (second.item.kind, second.text) == (ItemKind.PASSAGE, "Ben: Porto is lovely.")


async def test_a_passage_is_quoted_as_a_whole_once(open_app: Open) -> None:
    text = "Ann: I moved to Porto in May. I work for a bakery in Porto."
    extractor = Scripted(
        moved=citing("I moved to Porto in May.", text, "Ann lives in Porto."),
        bakery=citing("I work for a bakery in Porto.", text, "Ann works for a bakery in Porto."),
    )
    async with open_app(extractor=extractor) as application:
        await enter(application)
        await remember(application, text)
        await drained(application)
        first, second = await asked(application, "Does Ann work in Porto?")

    assert first.quote == "I moved to Porto in May. I work for a bakery in Porto."
    assert second.quote == second.item.citation.quote != first.quote


async def test_a_quote_is_the_passages_that_are_cited(open_app: Open) -> None:
    shelf = "- tea from Assam\n- jam of quinces\n- bread with seeds"
    extractor = Scripted(
        Assam=citing("jam of quinces", shelf, "There are quinces in the larder."),
        seeds=citing("Assam\n- jam of quin", shelf, "There is breakfast in the larder."),
    )
    async with open_app(extractor=extractor) as application:
        await enter(application)
        await remember(application, shelf)
        await drained(application)
        quotes = {
            hit.item.text: hit.item.quote
            for hit in await asked(application, "What breakfast and quinces are in the larder?")
        }

    assert quotes["There are quinces in the larder."] == "- jam of quinces"
    assert quotes["There is breakfast in the larder."] == "- tea from Assam\n- jam of quinces"


async def test_several_passages_of_one_message_are_one_hit(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, f"{MARCUS}\n\n{MANUAL}")
        hits = await asked(application, "What do you know of the heron, the vet and the plumber?")

    turns = [hit.item.id.split(".")[1] for hit in hits]
    assert len(turns) == len(set(turns))
    both = next(hit.text for hit in hits if "Vet" in hit.text)
    assert "Plumber" in both


async def test_a_question_that_was_asked_is_shown_with_what_was_answered(open_app: Open) -> None:
    talk = "Ana: When is the fair in Graz?\nBen: On the ninth, they moved it. Bring the red banner."
    async with open_app(extractor=Scripted()) as application:
        await enter(application)
        await remember(application, talk)
        await drained(application)

        [hit] = await asked(application, "When is the fair in Graz?", limit=1)
        assert [said.text for said in hit.around] == [
            "Ben: On the ninth, they moved it. Bring the red banner."
        ]
        context_ = context(application)
        both = (await application.services.recall.search(context_, Query("fair Graz moved"))).hits
        assert not any(hit.around for hit in both), "the answer is a hit itself"
        short = Query("When is the fair in Graz?", limit=1, max_tokens=10)
        [hit] = (await application.services.recall.search(context(application), short)).hits
        assert not hit.around


@pytest.mark.parametrize(
    ("talk", "question"),
    [
        (
            (
                "Eva: Let us hold the review in room Heron.\nTom: I am in Oslo then.\n"
                "Eva: Wednesday, in Kingfisher.\nTom: Who feeds the cat?"
            ),
            "In which room is the review held?",
        ),
        (
            (
                "Mel: I can send a plumber. Would Thursday suit?\n"
                "Ravi: On Thursdays I am in Derby.\n"
                "Mel: Friday between twelve and two?\nRavi: Perfect."
            ),
            "When does the plumber come?",
        ),
    ],
    ids=["a proposal that is changed", "an offer that is answered by another"],
)
async def test_the_best_hit_of_a_conversation_is_shown_with_the_next_two_turns(
    open_app: Open, talk: str, question: str
) -> None:
    async with open_app(extractor=Scripted()) as application:
        await enter(application)
        await remember(application, talk)
        await remember(application, "The shed is green.\n\nIts door is blue.\n\nIts roof is old.")
        await drained(application)

        [best] = await asked(application, question, limit=1)
        [control] = await asked(application, "Which colour does the shed have?", limit=1)
    first, *following = talk.split("\n")
    assert best.text == first
    assert [said.text for said in best.around] == following[:2]
    assert control.text == "The shed is green."
    assert not control.around, "it is no conversation"


async def test_a_memory_is_shown_with_the_answer_to_the_question_behind_it(
    open_app: Open,
) -> None:
    talk = "Ben: I moved to Graz in May. When do we meet?\nAna: At eight, on Jule's terrace."
    async with open_app() as application:
        await enter(application)
        await remember(application, talk)
        await drained(application)

        [hit] = await asked(application, "When did Ben move to Graz?", limit=1)
    assert hit.item.kind is ItemKind.MEMORY
    assert [said.text for said in hit.around] == ["Ana: At eight, on Jule's terrace."]


async def test_a_short_message_is_shown_with_the_next_one_of_its_speaker(open_app: Open) -> None:
    talk = (
        "Ana: I bought the train tickets to Graz.\nAna: 64 euros each.\n"
        "Ben: I bought the paint for the banner.\nAna: We leave at nine."
    )
    async with open_app(extractor=Scripted()) as application:
        await enter(application)
        await remember(application, talk)
        await remember(application, "Train tickets to Graz, paint for the banner: what we bought.")
        await drained(application)

        question = "Train tickets to Graz and the paint for the banner"
        best, *others = await asked(application, question, limit=3)
        assert best.text.startswith("Train")
        around = {hit.text: [said.text for said in hit.around] for hit in others}
        assert around == {
            "Ana: I bought the train tickets to Graz.": ["Ana: 64 euros each."],
            # Somebody else goes on.
            "Ben: I bought the paint for the banner.": [],
        }


async def test_what_a_text_says_beside_its_hits_is_shown_with_the_best_of_them(
    open_app: Open,
) -> None:
    talk = "\n".join(
        f"{speaker}: {said}"
        for speaker, said in (
            ("Ana", "The ferry to the island of Vis leaves at seven."),
            ("Ben", "Then the ferry arrives before the bakery opens."),
            ("Ana", "I reserved the cabin above the harbour."),
            ("Ben", "Did anybody feed the ferry cat?"),
            ("Ana", "The ferry costs nine euros for a bicycle."),
            ("Ben", "Seagulls followed the ferry all morning."),
            ("Ana", "Our ferry has a piano on the upper deck."),
        )
    )
    async with open_app(extractor=Scripted()) as application:
        await enter(application)
        await remember(application, talk)
        await remember(application, "Another ferry is painted green.")
        await drained(application)

        first, *others = await asked(application, "Which ferry leaves at seven?", limit=2)
        beside = [said.text for hit in (first, *others) for said in hit.around]
        following = [
            "Ben: Then the ferry arrives before the bakery opens.",
            "Ana: I reserved the cabin above the harbour.",
        ]
        assert len({*beside} - {*following}) == 1, "one of two hits is the most"
        hits = await asked(application, "Which ferry leaves at seven?", limit=3)
        texts = [hit.text for hit in hits]
        around = [said.text for hit in hits for said in hit.around if said.text not in following]
        assert hits[0].text == "Ana: The ferry to the island of Vis leaves at seven."
        assert len(around) == 2
        assert all("ferry" in said for said in around)
        assert not set(around) & {*texts, "Ben: Did anybody feed the ferry cat?"}

        [alone] = await asked(application, "Which ferry leaves at seven?", limit=1)
        assert [said.text for said in alone.around] == following


@pytest.mark.parametrize("moved", [True, False])
async def test_what_no_longer_holds_is_not_shown_beside_a_hit(open_app: Open, moved: bool) -> None:
    """The control: it is, as long as it holds."""
    later = "I live in Porto now." if moved else "I paint ships now."
    talk = (
        "Ana: I live in Lisbon.\nBen: The tram is slow.\nBen: The bridge is red.\n"
        f"Ben: The market is loud.\nBen: The museum is free.\nAna: {later}"
    )
    around: set[str] = set()
    async with open_app() as application:
        await enter(application)
        await remember(application, talk)
        await drained(application)
        for of in ("tram", "bridge", "market", "museum"):
            query = Query(f"Is the {of} slow, red, loud or free?", limit=4, score_threshold=0.0)
            found = await application.services.recall.search(context(application), query)
            around |= {said.text for hit in found.hits for said in hit.around}
    assert any("Porto" in said or "ships" in said for said in around)
    assert any("Lisbon" in said for said in around) is not moved


async def test_every_memory_is_quoted_without_headings_that_it_has(open_app: Open) -> None:
    text = "# Harbour\n\nThe crane is green. It was painted in May.\n\nThe gate closes at nine."
    extractor = Scripted(
        crane=citing("The crane is green.", text, "Harbour: The crane is green."),
        gate=citing("The gate closes at nine.", text, "Harbour: The gate closes at nine."),
    )
    async with open_app(extractor=extractor) as application:
        await enter(application)
        await remember(application, text)
        await drained(application)
        crane, *_ = await asked(application, "Is the crane green?")
        gate, *_ = await asked(application, "When does the gate close?")
        assert crane.quote == "The crane is green. It was painted in May."
        assert gate.quote == "The gate closes at nine."


async def test_a_german_question_finds_another_form_of_its_word(open_app: Open) -> None:
    async with open_app(extractor=Scripted()) as application:
        await enter(application)
        for text in ("Wir feiern im Rosengarten.", "Die Treppe ist steil.", "Das Brot ist alt."):
            await remember(application, text)
        await drained(application)
        query = Query("Wo ist denn die Feier?", limit=1, mode=SearchMode.KEYWORD)
        [hit] = (await application.services.recall.search(context(application), query)).hits
        assert hit.text == "Wir feiern im Rosengarten."


async def test_forgetting_a_memory_hides_its_words_and_nothing_else(open_app: Open) -> None:
    words = "prefers answers short"
    extractor = Scripted(**{words: citing(words, MARCUS, "Marcus prefers short answers.")})
    async with open_app(extractor=extractor) as application:
        await enter(application)
        await remember(application, MARCUS)
        await drained(application)
        (memory,) = await memories(application)
        recall = application.services.recall

        await recall.forget(context(application), memory.id)
        await drained(application)
        everything = await shown(application, "Marcus prefers short answers", 20)
        assert "short" not in everything
        for answer in ("grammar school", "Bonn", "hazelnuts"):
            assert answer in everything
        assert "short" not in await shown(application, "short answers")

        await recall.restore(context(application), memory.id)
        await drained(application)
        (hit, *_) = await asked(application, "Does Marcus prefer short answers?")
        assert hit.text == "Marcus prefers short answers."
        assert hit.quote.startswith(f"- {words}")


async def test_a_passage_is_forgotten_and_restored(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, MANUAL)
        (hit, *_) = await asked(application, "blue bin on Tuesdays")
        recall = application.services.recall

        await recall.forget(context(application), hit.item.id)
        assert "bin" not in await shown(application, "blue bin on Tuesdays", 20)
        with pytest.raises(MemoryNotFound):
            await recall.forget(context(application), hit.item.id)

        await recall.restore(context(application), hit.item.id)
        assert (await asked(application, "blue bin on Tuesdays"))[0].text == hit.text
        with pytest.raises(MemoryNotFound):
            await recall.restore(context(application), hit.item.id)


PEANUTS = "I live in Lisbon and I am allergic to peanuts."
PORTO = "I moved to Porto."


def _living(words: str, text: str, city: str) -> Candidate:
    return citing(words, text, f"The user lives in {city}.", Fact("user", "lives_in", city))


def relocated() -> Scripted:
    return Scripted(
        Lisbon=_living("I live in Lisbon", PEANUTS, "Lisbon"),
        Porto=_living("I moved to Porto", PORTO, "Porto"),
    )


async def test_a_correction_leaves_what_else_the_sentence_says(open_app: Open) -> None:
    async with open_app(extractor=relocated()) as application:
        await enter(application)
        for text in (PEANUTS, PORTO):
            await remember(application, text)
            await drained(application)
        (porto,) = await memories(application)

        assert "peanuts" in await shown(application, "What is the user allergic to?")
        first, second = await asked(application, "Where does the user live? In Lisbon?")
        assert (first.item.id, second.item.superseded_by) == (porto.id, porto.id)
        assert second.item.valid_until is not None
        (only,) = await asked(application, "Does the user live in Lisbon?", limit=1)
        assert only.item.id == porto.id, "what holds now is shown above what does not"
        recalled = Query("Where does the user live? In Lisbon?", mode=SearchMode.RECALL)
        answer = await application.services.recall.search(context(application), recalled)
        assert porto.id in {hit.item.id for hit in answer.hits}
        assert second.item.id not in {hit.item.id for hit in answer.hits}


async def test_a_restored_memory_gives_way_to_what_was_stated_since(
    open_app: Open, clock: Clock
) -> None:
    async with open_app(extractor=relocated()) as application:
        await enter(application)
        await remember(application, PEANUTS)
        await drained(application)
        (lisbon,) = await memories(application)
        recall = application.services.recall
        await recall.forget(context(application), lisbon.id)
        await drained(application)
        assert "peanuts" in await shown(application, "allergic to peanuts")
        assert "Lisbon" not in await shown(application, "allergic to peanuts in Lisbon", 20)
        clock.pass_(timedelta(days=1))
        await remember(application, PORTO)
        await drained(application)

        await recall.restore(context(application), lisbon.id)
        (active,) = await memories(application)
        assert active.fact is not None
        assert active.fact.value == "Porto"
        chain = (await recall.history(context(application), lisbon.id)).chain
        assert [(one.id, one.status) for one in chain] == [
            (lisbon.id, Status.SUPERSEDED),
            (active.id, Status.ACTIVE),
        ]
        assert "Lisbon" in await shown(application, "Where did the user live?")


SENTENCES = (
    "I live in Lisbon.",
    "I live in Porto now.",
    "My sister Eve owns a piano.",
    "I am allergic to peanuts.",
    "I prefer tabs over spaces.",
    "The harbour was lovely in autumn.",
    "I work at Initech.",
    "I no longer work at Initech.",
    "We decided to use Postgres.",
    "The vet closes at noon.",
)


@has_full_length
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_sentence_that_is_not_forgotten_is_a_hit_for_its_own_words(
    open_app: Open, seed: int
) -> None:
    chance = random.Random(seed)
    async with open_app() as application:
        await enter(application)
        recall = application.services.recall
        forgotten: dict[str, str] = {}
        said: set[str] = set()
        for _ in range(STEPS):
            match chance.randrange(4):
                case 0 | 1:
                    some = chance.sample(SENTENCES, k=chance.randint(1, 4))
                    await remember(application, chance.choice([" ", "\n", "\n\n"]).join(some))
                    said.update(some)
                    await drained(application)
                case 2 if known := await memories(application, limit=50):
                    chosen = chance.choice(known)
                    await recall.forget(context(application), chosen.id)
                    forgotten[chosen.id] = chosen.citation.quote
                case 3 if forgotten:
                    item_id = chance.choice(sorted(forgotten))
                    await recall.restore(context(application), item_id)
                    del forgotten[item_id]
            for sentence in said:
                found = await shown(application, sentence)
                gone = any(sentence in words or words in sentence for words in forgotten.values())
                assert gone or sentence in found, sentence
