"""The vectors in memory: compared exactly while there are few, and by their codes first when there
are many.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from recall_server.domain.search.ranking import best
from recall_server.storage.index.vector_cache import (
    COPIED_INLINE_MAX,
    EXACT_UP_TO,
    Floats,
    RoundedVectors,
    VectorCache,
    WholeVectors,
    code,
    packed,
)

DIMENSIONS = 100  # This is not a multiple of 64, so the signs are padded.
MANY = EXACT_UP_TO + 1_000


def vectors(count: int, seed: int = 7) -> Floats:
    made = np.random.default_rng(seed).standard_normal((count, DIMENSIONS)).astype(np.float32)
    unit: Floats = made / np.linalg.norm(made, axis=1, keepdims=True)
    return unit


def matrix(rows: Floats, order: list[int] | None = None) -> VectorCache:
    made = VectorCache(DIMENSIONS)
    for slot, i in enumerate(order or range(len(rows)), 1):
        made.apply([change(i, rows[i], slot)])
    return made


def change(i: int, vector: Floats, slot: int) -> dict[str, object]:
    return {
        "vector": packed(vector),
        "code": code(vector),
        "slot": slot,
        "document": i,
    }


def near(
    made: VectorCache, query: Floats, limit: int, without: Sequence[int] = ()
) -> dict[int, float]:
    """Search as the server does, and return the best with their cosines."""
    allowed = ~np.isin(np.arange(2 * MANY), without)
    positions = made.candidates(query, limit, allowed)
    slots = made.codes.documents[positions].astype(np.int64)
    assert made.vectors is not None
    compared = made.vectors.cosines(query, positions)
    found, cosines = best(slots, compared, limit)
    return dict(zip(found.tolist(), cosines.tolist(), strict=True))


def nearest_by_hand(rows: Floats, query: Floats, limit: int) -> list[int]:
    found: list[int] = np.argsort(-(rows @ query))[:limit].tolist()
    return found


@pytest.mark.parametrize("count", [1, 39, 500])
def test_few_vectors_are_all_compared(count: int) -> None:
    rows, query = vectors(count), vectors(1, seed=8)[0]

    assert list(near(matrix(rows), query, 40)) == nearest_by_hand(rows, query, 40)


def test_among_many_the_ten_nearest_are_found() -> None:
    rows = vectors(MANY)
    made = matrix(rows)

    # Random directions are the hardest case: every vector is equally far from every other.
    found = expected = 0
    for query in vectors(20, seed=9):
        truth = nearest_by_hand(rows, query, 10)
        found += len(set(truth) & set(list(near(made, query, 30))[:10]))
        expected += len(truth)
    assert found / expected >= 0.98


def test_a_copy_of_the_query_is_first_among_many() -> None:
    rows = vectors(MANY)
    made = matrix(rows)

    for i in (0, 4_095, 4_096, MANY - 1):
        assert next(iter(near(made, rows[i], 10).items())) == (i, 1.0)


@pytest.mark.parametrize("count", [300, MANY])
def test_the_order_in_which_vectors_came_decides_nothing(count: int) -> None:
    rows, query = vectors(count), vectors(1, seed=8)[0]
    shuffled = np.random.default_rng(1).permutation(count).tolist()

    straight = near(matrix(rows), query, 40)
    assert list(near(matrix(rows, shuffled), query, 40).items()) == list(straight.items())


@pytest.mark.parametrize("count", [300, MANY])
def test_what_is_not_allowed_is_not_found(count: int) -> None:
    rows = vectors(count)
    made = matrix(rows)
    assert 7 in near(made, rows[7], 10)

    assert 7 not in near(made, rows[7], 10, without=[7])
    assert len(near(made, rows[7], 10, without=[7])) == 10


def test_a_vector_whose_document_is_another_now_is_found_by_that() -> None:
    rows = vectors(300)
    made = matrix(rows)
    made.apply([change(900, rows[7], 8)])

    assert next(iter(near(made, rows[7], 10))) == 900
    assert made.codes.positions(np.array([900, 7])).tolist()[0] == 7


async def test_much_is_copied_beside_the_event_loop() -> None:
    """Control: what is expected then has its place, and is found."""
    made = matrix(vectors(300))
    many = COPIED_INLINE_MAX // (4 * DIMENSIONS)
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    await made.expect(10)
    few = beats
    await made.expect(many)
    beating.cancel()

    assert few <= 1 < beats
    assert made.vectors is not None
    assert made.vectors.capacity >= 300 + many
    assert 7 in near(made, vectors(300)[7], 10)


class Interrupted(np.ndarray[tuple[int], np.dtype[np.bool_]]):
    """Flags that call back when they are read."""

    meanwhile: Callable[[], object]

    def take(self, *given: Any, **also: Any) -> Any:
        self.meanwhile()
        return super().take(*given, **also)


def test_a_search_in_a_thread_is_not_broken_by_what_is_taken_in_beside_it() -> None:
    """The flags of allowed documents were made before a vector moved to another document."""
    rows = vectors(300)
    made = matrix(rows)
    allowed = np.ones(400, np.bool_).view(Interrupted)
    allowed.meanwhile = lambda: made.apply([change(900, rows[7], 8)])

    positions = made.candidates(rows[7], 10, allowed)

    assert len(positions) == 300
    assert made.codes.documents[positions].max() == 900, "the positive control"


@pytest.mark.parametrize("rounded", [False, True])
def test_the_documents_of_a_vector_that_many_have_are_repeated_but_for_the_latest(
    rounded: bool,
) -> None:
    other, said = vectors(2)
    near = said.copy()
    # The same code, but another vector.
    near[0] *= np.float32(0.5)
    rows = np.array([other, *[said] * 10, *[near / np.linalg.norm(near)] * 3])
    made = matrix(rows)
    if rounded:
        assert isinstance(made.vectors, WholeVectors)
        made.vectors = RoundedVectors.rounded(made.vectors, len(rows))
    every, allowed = np.arange(len(rows)), np.ones(len(rows), np.bool_)
    # The last two that say the same are forgotten.
    allowed[[9, 10]] = False

    assert made.repeated(every, ~np.zeros_like(allowed), 3).tolist() == list(range(1, 8))
    assert made.repeated(every, allowed, 3).tolist() == list(range(1, 6))
    # All that may be found count, not only those that were; and none if few were.
    assert made.repeated(every[4:9], allowed, 3).tolist() == list(range(1, 6))
    assert made.repeated(every[4:7], allowed, 3).tolist() == []
    made.vectors = None
    assert made.repeated(every, allowed, 3).tolist() == []
