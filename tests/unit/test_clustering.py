"""Which memories may be merged: those that are alike in meaning or words and agree in what they
say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from time import thread_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from recall_server.domain.attributes import canonical, normal_entity
from recall_server.domain.episode import Citation, Span
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import Fact, Memory, MemoryType
from recall_server.domain.similarity import NOISE, Verdict, clusters, compare, lexical_threshold
from tests.support.runtime import NOON

Vector = NDArray[np.float32]
TEA, COFFEE = Fact("Ana", "likes", "tea"), Fact("Ana", "likes", "coffee")
OSLO, ROME = Fact("Ana", "lives_in", "Oslo"), Fact("Ana", "lives_in", "Rome")


def memory(
    number: int,
    text: str = "Ana likes tea.",
    fact: Fact | None = None,
    kind: MemoryType = MemoryType.FACT,
) -> Memory:
    cited = Citation("ep_1", Span(0, 4))
    return Memory(f"mem_{number:05}", text, kind, "t", cited, NOON, NOON, NOON, fact)


def at(degrees: float) -> Vector:
    return np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], dtype=np.float32)


def numbers(
    memories: Sequence[Memory],
    vectors: Mapping[int, Vector] | None = None,
    threshold: float = 0.85,
) -> list[list[int]]:
    """Return the clusters as numbers of memories."""
    by_id = {f"mem_{number:05}": vector for number, vector in (vectors or {}).items()}
    found = clusters(memories, by_id, threshold)
    return [[int(one.id.removeprefix("mem_")) for one in cluster] for cluster in found]


# --- alike -------------------------------------------------------------------------------------


def test_memories_are_alike_whose_vectors_point_the_same_way() -> None:
    memories = [memory(1), memory(2, "Tea is her thing."), memory(3, "She drives a red car.")]

    assert numbers(memories, {1: at(0), 2: at(20), 3: at(80)}) == [[1, 2]]


@pytest.mark.parametrize(("degrees", "together"), [(31, True), (32, False)])
def test_the_threshold_is_a_cosine(degrees: float, together: bool) -> None:
    found = numbers([memory(1), memory(2)], {1: at(0), 2: at(degrees)}, threshold=0.85)

    assert found == ([[1, 2]] if together else [])


def test_equal_vectors_are_alike_even_at_a_threshold_of_one() -> None:
    vector = np.full(256, 1 / 16, dtype=np.float32) * np.float32(0.9999999)

    assert numbers([memory(1), memory(2)], {1: vector, 2: vector}, threshold=1.0) == [[1, 2]]


def test_a_cluster_takes_only_what_is_like_every_member() -> None:
    """20 degrees apart is alike, and 40 is not, so a chain is no cluster."""
    vectors = {1: at(0), 2: at(20), 3: at(40), 4: at(60)}

    assert numbers([memory(n) for n in vectors], vectors) == [[1, 2], [3, 4]]


def test_a_memory_joins_the_first_cluster_that_it_fits() -> None:
    vectors = {1: at(0), 2: at(45), 3: at(50), 4: at(22), 5: at(25)}

    assert numbers([memory(n) for n in vectors], vectors) == [[1, 4, 5], [2, 3]]


def test_without_vectors_the_words_decide() -> None:
    memories = [
        memory(1, "The staging database runs Postgres on port 5432."),
        memory(2, "Our staging database runs Postgres, on port 5432!"),
        memory(3, "The staging server runs nginx on port 443."),
    ]

    assert numbers(memories) == [[1, 2]]


def test_where_one_of_two_has_no_vector_or_another_size_their_words_decide() -> None:
    memories = [memory(1), memory(2), memory(3), memory(4, "She drives a red car.")]
    other_size = np.array([1.0, 0.0, 0.0], dtype=np.float32)

    assert numbers(memories, {1: at(0), 2: other_size, 4: at(0)}) == [[1, 2, 3]]


@pytest.mark.parametrize("vector", [np.zeros(2), np.full(2, np.nan)])
def test_a_vector_that_points_nowhere_is_none(vector: Vector) -> None:
    assert numbers([memory(1), memory(2)], {1: vector.astype(np.float32), 2: at(0)}) == [[1, 2]]


def test_the_scale_of_words_meets_that_of_cosines_at_its_end() -> None:
    assert lexical_threshold(1.0) == 1.0
    assert lexical_threshold(0.85) == pytest.approx(0.614, abs=0.001)


def test_texts_without_any_word_are_not_known_to_be_alike() -> None:
    assert numbers([memory(1, "!!!"), memory(2, "!!!")]) == []


@pytest.mark.parametrize("memories", [[], [memory(1)]])
def test_less_than_two_memories_make_no_cluster(memories: list[Memory]) -> None:
    assert numbers(memories) == []


# --- what never goes together ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (TEA, TEA, True),
        (TEA, COFFEE, True),
        (OSLO, TEA, True),
        (OSLO, None, True),
        (OSLO, Fact("Ana", "works_at", "Acme"), False),
        (OSLO, ROME, False),
        (OSLO, Fact("ana", "Lives in", "the oslo."), True),
        (OSLO, Fact("Ana", "lives_in", "Rome", negated=True), True),
        (TEA, Fact("Ana", "likes", "tea", negated=True), False),
        (TEA, Fact("Ana", "dislikes", "tea"), False),
        (TEA, Fact("Bob", "likes", "tea"), False),
        (OSLO, Fact("Bob", "works_at", "Acme"), False),
    ],
)
def test_facts_that_clash_or_are_about_others_are_never_in_one_cluster(
    one: Fact | None, other: Fact | None, together: bool
) -> None:
    assert numbers([memory(1, fact=one), memory(2, fact=other)]) == ([[1, 2]] if together else [])


def test_a_memory_without_a_fact_does_not_bring_together_what_clashes() -> None:
    memories = [memory(1, fact=OSLO), memory(2), memory(3, fact=ROME)]

    assert numbers(memories) == [[1, 2]]


def test_memories_of_different_types_are_never_in_one_cluster() -> None:
    kinds = [MemoryType.FACT, MemoryType.PREFERENCE, MemoryType.FACT]
    memories = [memory(n, kind=kind) for n, kind in enumerate(kinds)]

    assert numbers(memories) == [[0, 2]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ana drinks coffee in the morning.", "Ana does not drink coffee in the morning."),
        ("A deploy to staging takes 5 minutes.", "The deploy to staging takes 7 minutes."),
        ("Ana ran the city race on 3 May 2021.", "Ana ran the city race on 9 May 2022."),
    ],
)
def test_without_facts_a_denial_and_other_numbers_in_the_same_words_keep_apart(
    one: str, other: str
) -> None:
    assert numbers([memory(1, one), memory(2, other)], {1: at(0), 2: at(0)}) == []


def test_numbers_that_add_to_each_other_do_not_keep_apart() -> None:
    memories = [memory(1, "The server has 16 GB of memory."), memory(2, "It has 8 fast cores.")]

    assert numbers(memories, {1: at(0), 2: at(0)}) == [[1, 2]]


def test_the_same_fact_may_be_denied_in_other_words() -> None:
    meat = Fact("Ana", "eats", "meat", negated=True)
    memories = [memory(1, "Ana does not eat meat.", meat), memory(2, "Ana avoids meat.", meat)]

    assert numbers(memories, {1: at(0), 2: at(0)}) == [[1, 2]]


# --- for any memories --------------------------------------------------------------------------

FACTS = st.none() | st.builds(
    Fact,
    st.sampled_from(["Ana", "Bob"]),
    st.sampled_from(["likes", "dislikes", "lives_in", "from"]),
    st.sampled_from(["tea", "Oslo", "the tea"]),
    st.booleans(),
)
TEXTS = st.sampled_from(["Ana likes tea.", "Ana likes green tea.", "Ana lives in Oslo, not Rome."])
MADE = st.tuples(TEXTS, FACTS, st.none() | st.integers(0, 90))


def clash(one: Memory, other: Memory) -> bool:
    if one.fact is None or other.fact is None:
        return False
    fact, known = canonical(one.fact), canonical(other.fact)
    if normal_entity(fact.entity) != normal_entity(known.entity):
        return True
    candidate = Candidate(one.text, one.type, Span(0, 4), fact)
    return compare(candidate, memory(0, fact=known)) is Verdict.CLASHES


@given(st.lists(MADE, max_size=12), st.randoms())
def test_no_cluster_holds_what_clashes_and_no_order_of_the_input_changes_one(
    made: list[tuple[str, Fact | None, int | None]], random: Random
) -> None:
    memories = [memory(number, text, fact) for number, (text, fact, _) in enumerate(made)]
    vectors = {n: at(degrees) for n, (_, _, degrees) in enumerate(made) if degrees is not None}
    shuffled = list(memories)
    random.shuffle(shuffled)

    found = numbers(memories, vectors)

    assert numbers(shuffled, vectors) == found
    for cluster in found:
        for first in cluster:
            for second in cluster[: cluster.index(first)]:
                assert not clash(memories[first], memories[second])
                if first in vectors and second in vectors:
                    assert float(vectors[first] @ vectors[second]) >= 0.85 - 2 * NOISE


@pytest.mark.perf
def test_five_thousand_memories_of_one_topic_take_no_seconds() -> None:
    random = np.random.default_rng(1)
    groups = random.normal(size=(500, 64))
    drawn = random.integers(0, 500, 5_000)
    rows = groups[drawn] + 0.1 * random.normal(size=(5_000, 64))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    memories = [memory(n, f"Ana likes thing {n % 7}") for n in range(5_000)]
    vectors = {one.id: row for one, row in zip(memories, rows, strict=True)}

    started = thread_time()
    found = clusters(memories, vectors, 0.85)

    assert thread_time() - started < 5.0
    assert 500 <= len(found) <= 3_500
