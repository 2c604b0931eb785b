"""Codes in cells: what a search looks into, and what it finds there."""

import numpy as np
import pytest

from recall_server.storage.index.codes import Codes, Flags, Floats, Positions, code
from recall_server.storage.index.ivf import IvfIndex

DIMENSIONS = 100  # not a multiple of 64: the signs are padded
GROUPS, OF_EACH = 40, 50
COUNT = GROUPS * OF_EACH


def vectors(seed: int = 7) -> Floats:
    """In groups that lie close together, one of each after the other."""
    rng = np.random.default_rng(seed)
    middles = np.tile(rng.standard_normal((GROUPS, DIMENSIONS)), (OF_EACH, 1))
    rows = middles + 0.3 * rng.standard_normal((COUNT, DIMENSIONS))
    unit: Floats = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def put(codes: Codes, rows: Floats, first: int = 0) -> Positions:
    slots = np.arange(first, first + len(rows), dtype=np.uint32)
    return codes.put(slots + 1, "".join(code(row) for row in rows), slots)


@pytest.fixture
def codes() -> Codes:
    made = Codes(DIMENSIONS)
    put(made, vectors())
    return made


def made(codes: Codes) -> IvfIndex:
    one = IvfIndex(codes)
    one.make()
    one.open()
    return one


def allowed(*but: int) -> Flags:
    return ~np.isin(np.arange(2 * COUNT), but)


def alike(one: IvfIndex, query: Floats, of: Flags, seen: int = 4 * OF_EACH) -> list[int]:
    found: list[int] = one.alike(query, of, seen, OF_EACH // 2).tolist()
    return found


def test_what_is_near_is_found_by_looking_into_a_tenth_of_all(codes: Codes) -> None:
    one = made(codes)

    for group in range(GROUPS):
        query = vectors()[group]
        whole = codes.alike(query, codes.of(allowed()), OF_EACH // 2).tolist()
        assert alike(one, query, allowed()) == whole
        assert {position % GROUPS for position in whole} == {group}


def test_no_more_is_looked_into_than_it_takes(codes: Codes) -> None:
    """All that is looked into, as all of it is wanted. Control: wanting all that there is."""
    one = made(codes)

    def looked_into(seen: int) -> int:
        return len(one.alike(vectors()[0], allowed(), seen, COUNT))

    assert 4 * OF_EACH <= looked_into(4 * OF_EACH) < COUNT / 4
    assert looked_into(COUNT) == COUNT


def test_what_is_far_is_found_where_nothing_else_may_be(codes: Codes) -> None:
    """A token that reaches one group only, asking for another."""
    of_group = np.arange(COUNT) % GROUPS == 3

    found = alike(made(codes), vectors()[5], of_group)
    assert len(found) >= OF_EACH // 2
    assert of_group[found].all()


def test_what_comes_later_is_found_and_what_changes_is_where_it_is_now(codes: Codes) -> None:
    one = made(codes)
    query, other = vectors()[0], -vectors()[0]
    one.stray(put(codes, query[None], COUNT))
    one.stray(put(codes, other[None], GROUPS))

    near = alike(one, query, allowed())
    assert COUNT in near
    assert GROUPS not in near
    assert alike(one, other, allowed())[:1] == [GROUPS]
    assert len(set(near)) == len(near)
    assert one.strays == 2


def test_what_comes_while_they_are_made_is_found(codes: Codes) -> None:
    one = IvfIndex(codes)
    one.stray(put(codes, vectors()[:1], COUNT))
    one.make()
    one.stray(put(codes, -vectors()[:1], GROUPS))
    one.open()

    near = alike(one, vectors()[0], allowed())
    assert COUNT in near
    assert GROUPS not in near


def test_what_is_not_allowed_is_not_found(codes: Codes) -> None:
    one = made(codes)
    first, *rest = alike(one, vectors()[0], allowed())

    assert first not in alike(one, vectors()[0], allowed(first))
    assert set(rest) <= set(alike(one, vectors()[0], allowed(first)))
    assert alike(one, vectors()[0], np.zeros(0, np.bool_)) == []


def test_the_same_codes_make_the_same_cells(codes: Codes) -> None:
    again = Codes(DIMENSIONS)
    put(again, vectors()[: COUNT // 3])
    put(again, vectors()[COUNT // 3 :], COUNT // 3)

    query = vectors(seed=8)[0]
    for seen in (1, OF_EACH, 5 * OF_EACH):
        assert alike(made(codes), query, allowed(), seen) == alike(
            made(again), query, allowed(), seen
        )


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_codes_make_cells_too(count: int) -> None:
    few = Codes(DIMENSIONS)
    put(few, vectors()[:count])

    assert alike(made(few), vectors()[0], allowed()) == list(range(count))


def test_codes_that_are_all_one_make_one_cell() -> None:
    same = Codes(DIMENSIONS)
    put(same, np.repeat(vectors()[:1], 300, axis=0))

    assert alike(made(same), vectors()[0], allowed()) == list(range(300))
