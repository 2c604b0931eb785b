"""The vectors in memory: exact while there are few, by their signs first when there are many."""

import numpy as np
import pytest

from recall_server.storage.codes import Floats, code
from recall_server.storage.matrix import EXACT_UP_TO, Matrix

DIMENSIONS = 100  # not a multiple of 64: the signs are padded
MANY = EXACT_UP_TO + 1_000


def vectors(count: int, seed: int = 7) -> Floats:
    made = np.random.default_rng(seed).standard_normal((count, DIMENSIONS)).astype(np.float32)
    unit: Floats = made / np.linalg.norm(made, axis=1, keepdims=True)
    return unit


def matrix(rows: Floats, order: list[int] | None = None) -> Matrix:
    made = Matrix(DIMENSIONS)
    for slot, i in enumerate(order or range(len(rows)), 1):
        made.apply([change(i, rows[i], slot)])
    return made


def change(i: int, vector: Floats, slot: int, *, findable: bool = True) -> dict[str, object]:
    return {
        "item_id": f"mem_{i:05}",
        "vector": vector.astype("<f4").tobytes(),
        "code": code(vector),
        "slot": slot,
        "findable": findable,
    }


def nearest_by_hand(rows: Floats, query: Floats, limit: int) -> list[str]:
    return [f"mem_{i:05}" for i in np.argsort(-(rows @ query))[:limit]]


@pytest.mark.parametrize("count", [1, 39, 500])
def test_few_vectors_are_all_compared(count: int) -> None:
    rows, query = vectors(count), vectors(1, seed=8)[0]

    assert list(matrix(rows).nearest(query, 40)) == nearest_by_hand(rows, query, 40)


def test_among_many_the_ten_nearest_are_found() -> None:
    rows = vectors(MANY)
    made = matrix(rows)

    # Random directions are the hardest case: everything is equally far from everything.
    found = expected = 0
    for query in vectors(20, seed=9):
        truth = nearest_by_hand(rows, query, 10)
        found += len(set(truth) & set(list(made.nearest(query, 30))[:10]))
        expected += len(truth)
    assert found / expected >= 0.98


def test_a_copy_of_the_query_is_first_among_many() -> None:
    rows = vectors(MANY)
    made = matrix(rows)

    for i in (0, 4_095, 4_096, MANY - 1):
        assert next(iter(made.nearest(rows[i], 10).items())) == (f"mem_{i:05}", 1.0)


@pytest.mark.parametrize("count", [300, MANY])
def test_the_order_in_which_vectors_came_decides_nothing(count: int) -> None:
    rows, query = vectors(count), vectors(1, seed=8)[0]
    shuffled = np.random.default_rng(1).permutation(count).tolist()

    straight = matrix(rows).nearest(query, 40)
    assert list(matrix(rows, shuffled).nearest(query, 40).items()) == list(straight.items())


@pytest.mark.parametrize("count", [300, MANY])
def test_a_concealed_vector_is_not_found(count: int) -> None:
    rows = vectors(count)
    made = matrix(rows)
    assert "mem_00007" in made.nearest(rows[7], 10)

    made.apply([change(7, rows[7], 8, findable=False)])

    assert "mem_00007" not in made.nearest(rows[7], 10)
    assert len(made.nearest(rows[7], 10)) == 10


def test_of_nothing_nothing_is_near() -> None:
    assert Matrix(DIMENSIONS).nearest(vectors(1)[0], 10) == {}
