"""Which token vectors the cache holds, and for which namespace."""

from collections.abc import Sequence

import numpy as np

from recall_server.domain.ids import namespace
from recall_server.integrations.rerankers import Tokens, TokenVectors

ANA, BO = namespace("ana"), namespace("bo")
ROWS_BYTES = 2 * 4 * 2


class Maker:
    """Make two rows of four numbers for each text, and record the texts."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, texts: Sequence[str]) -> list[Tokens]:
        self.made += texts
        return [np.full((2, 4), len(text), dtype=np.float16) for text in texts]


def test_what_was_made_is_not_made_again() -> None:
    held, make = TokenVectors(10 * ROWS_BYTES), Maker()
    first = held.vectors(ANA, 0, ["one", "three", "one"], make)
    again = held.vectors(ANA, 0, ["three", "seven"], make)

    assert [int(tokens[0, 0]) for tokens in [*first, *again]] == [3, 5, 3, 5, 5]
    assert make.made == ["one", "three", "seven"]
    assert held.bytes == 3 * ROWS_BYTES


def test_no_namespace_gets_what_another_one_holds() -> None:
    """A namespace is not faster for another's vectors either."""
    held, make = TokenVectors(10 * ROWS_BYTES), Maker()
    held.vectors(ANA, 0, ["secret"], make)
    held.vectors(BO, 0, ["secret"], make)
    held.vectors(ANA, 0, ["secret"], make)

    assert make.made == ["secret", "secret"]


def test_it_stays_within_its_budget_and_drops_what_was_not_met_for_longest() -> None:
    held, make = TokenVectors(3 * ROWS_BYTES), Maker()
    held.vectors(BO, 0, ["b"], make)
    held.vectors(ANA, 0, ["1", "2"], make)
    held.vectors(ANA, 0, ["1"], make)
    held.vectors(ANA, 0, ["3", "4"], make)
    assert held.bytes == 3 * ROWS_BYTES

    make.made.clear()
    held.vectors(ANA, 0, ["1", "3", "4"], make)
    assert make.made == []
    held.vectors(ANA, 0, ["2"], make)
    held.vectors(BO, 0, ["b"], make)
    assert make.made == ["2", "b"]


def test_what_does_not_fit_at_all_is_made_and_not_held() -> None:
    held, make = TokenVectors(0), Maker()

    assert len(held.vectors(ANA, 0, ["1", "2"], make)) == 2
    assert held.bytes == 0


def test_an_erasure_drops_what_was_held_before_it() -> None:
    """A reader that still sees the state before the erasure puts nothing back."""
    held, make = TokenVectors(10 * ROWS_BYTES), Maker()
    held.vectors(ANA, 1, ["secret"], make)
    held.vectors(ANA, 2, ["new"], make)
    assert held.bytes == ROWS_BYTES
    held.vectors(ANA, 1, ["secret"], make)
    assert held.bytes == ROWS_BYTES
    held.forget(ANA)
    held.forget(BO)
    assert held.bytes == 0
