"""Whose word a turn is, and what counts as a second witness."""

import random

import pytest

from recall_server.domain.episode import Span
from recall_server.domain.trust import (
    Trust,
    Witness,
    corroborates,
    corroborations,
    least_trusted,
    trust,
)

HERE = Span(0, 5)


def said(
    by: str | None = None, *, at: str = "ep_1", session: str | None = None, agent: str | None = None
) -> Witness:
    return Witness(at, HERE, by, session, agent)


@pytest.mark.parametrize(
    ("speaker", "agent", "whose"),
    [
        (None, None, Trust.PERSON),
        ("Ana", None, Trust.PERSON),
        ("User", "desk-assistant", Trust.PERSON),
        ("Bottega Toole", None, Trust.PERSON),
        ("Assistant", None, Trust.MODEL),
        ("AI assistant", None, Trust.MODEL),
        ("System", None, Trust.MODEL),
        ("GPT-4o", None, Trust.MODEL),
        ("Claude Monet", None, Trust.PERSON),
        ("Agent Smith", None, Trust.PERSON),
        ("7", None, Trust.PERSON),
        ("Tool", None, Trust.FETCHED),
        ("tool_result", None, Trust.FETCHED),
        ("Web search", None, Trust.FETCHED),
        ("Search results", None, Trust.FETCHED),
        # In a fetched text, its author chooses the names of speakers.
        ("Ana", "web:example.com", Trust.FETCHED),
        (None, "Tool:browser", Trust.FETCHED),
        (None, "web-desk", Trust.PERSON),
    ],
)
def test_trust_goes_by_the_speaker_and_by_the_agent(
    speaker: str | None, agent: str | None, whose: Trust
) -> None:
    assert said(speaker, agent=agent).trust is whose


def test_a_memory_is_trusted_as_its_best_words_are_and_words_as_their_worst_speaker() -> None:
    both = [said("Tool"), said("Ana")]

    assert trust(both) is Trust.PERSON
    assert trust(both[:1]) is Trust.FETCHED
    assert least_trusted(both) == both[0]


def test_one_author_or_one_source_is_one_witness_however_often() -> None:
    """Control: another person in another place is a second one."""
    ana = said("Ana", session="s0")
    in_many_places = [said("ana", at=f"ep_{n}", session=f"s{n}") for n in range(100)]
    under_many_names = [said(f"Speaker {n}", at=f"ep_{n}", session="s0") for n in range(100)]
    nobody_knows_whose = [said(at=f"ep_{n}", session=f"s{n}") for n in range(100)]
    one_crawler = [
        said(f"Speaker {n}", at=f"ep_{n}", session=f"s{n}", agent="web:crawler") for n in range(100)
    ]

    for same in (in_many_places, under_many_names, nobody_knows_whose, one_crawler):
        assert corroborations(same) == 0
    assert corroborates(said("Bob", at="ep_2", session="s2"), [ana])
    assert corroborations([ana, said("Bob", at="ep_2"), said("Cid", at="ep_3")]) == 2


def test_all_witnesses_at_once_count_as_one_after_the_other() -> None:
    """A merge has thousands of them, and comparing each with each took seconds."""
    names, places = ("Ana", "Bob", "Assistant", "Tool", None), ("s1", "s2", "s3", None)
    draw = random.Random(7)
    for _ in range(300):
        some = [
            said(draw.choice(names), at=f"ep_{draw.randrange(4)}", session=draw.choice(places))
            for _ in range(draw.randrange(8))
        ]
        each = [corroborates(one, some[:place]) for place, one in enumerate(some) if place]
        assert corroborations(some) == sum(each)


def test_neither_a_model_nor_what_is_trusted_less_is_evidence_for_a_person() -> None:
    """An assistant may have read it here."""
    assert not corroborates(said("Assistant", at="ep_2"), [said("Ana")])
    assert not corroborates(said("Assistant", at="ep_2"), [said("Tool")])
    assert not corroborates(said("Tool", at="ep_2"), [said("Ana")])
    assert corroborates(said("Ana", at="ep_2"), [said("Tool")])
