"""When an event was, as far as it is remembered."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from recall_server.domain import event_periods
from recall_server.domain.search.index_entry import Words
from recall_server.domain.search.question_time import Event, Order
from recall_server.domain.text.periods import affinity

MOVE = Event(Order.AFTER, "Ana's move to Lisbon")
IDF = {"move": 2.0, "lisbon": 3.0, "ana": 1.0}
AT = datetime(2023, 5, 8, tzinfo=UTC)
DAY = timedelta(days=1)


def words(**times: list[int]) -> Words:
    columns = {term: np.array(of) for term, of in times.items()}
    return Words(columns, np.full(len(next(iter(times.values()))), 5))


def test_an_event_is_what_was_and_not_who_it_was() -> None:
    weights = event_periods.weights(MOVE, idf=IDF, named=frozenset({"@ana"}), documents=100)

    assert weights == {"move": 2.0, "lisbon": 3.0}


def test_a_word_of_an_event_that_stands_nowhere_weighs_as_much_as_can_be() -> None:
    weights = event_periods.weights(
        Event(Order.BEFORE, "the big move"), idf=IDF, named=frozenset(), documents=100
    )

    assert weights["move"] == 2.0
    assert weights["big"] > 4.6


def test_it_is_told_by_what_says_most_of_it() -> None:
    weights = {"move": 2.0, "lisbon": 3.0}

    assert event_periods.tellers(weights, words(move=[1, 0], lisbon=[1, 1])) == [0]
    assert event_periods.tellers(weights, words(move=[1, 2, 0], lisbon=[1, 1, 1])) == [0, 1]


def test_what_says_too_little_of_it_tells_nothing() -> None:
    weights = {"move": 2.0, "lisbon": 3.0}

    assert event_periods.tellers(weights, words(move=[0], lisbon=[1])) == []
    assert event_periods.tellers(weights, words(move=[], lisbon=[])) == []


@pytest.mark.parametrize(
    ("order", "fits", "fits_not"),
    [
        (Order.BEFORE, AT - 40 * DAY, AT + 40 * DAY),
        (Order.AFTER, AT + 40 * DAY, AT - 40 * DAY),
        (Order.DURING, AT + DAY / 2, AT + 40 * DAY),
    ],
)
def test_what_lies_to_it_as_is_asked_fits_best(
    order: Order, fits: datetime, fits_not: datetime
) -> None:
    found = event_periods.period(Event(order, "the move"), AT)

    assert affinity(found, np.array([fits.timestamp()])) == 1.0
    assert 0.0 < affinity(found, np.array([fits_not.timestamp()])) < 0.01
    assert found.words == "the move"
