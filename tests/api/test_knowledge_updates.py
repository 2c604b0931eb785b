"""A search answers what changed as it is now, and as it was at a past moment: the questions about
knowledge updates of BEAM and LoCoMo, as ten cases.
"""

from datetime import timedelta
from typing import NamedTuple

import pytest

from tests.support.runtime import Clock
from tests.support.server import Running


class Update(NamedTuple):
    """Two statements about one thing, a question, and the word that answers it then and now."""

    earlier: str
    later: str
    question: str
    was: str
    holds: str


UPDATES = {
    "home": Update(
        "Ana: I live in Porto.",
        "Ana: I live in Lisbon now.",
        "Where does Ana live?",
        "Porto",
        "Lisbon",
    ),
    "move": Update(
        "Ben: I live in Oslo.", "Ben: I moved to Bergen.", "Where does Ben live?", "Oslo", "Bergen"
    ),
    "work": Update(
        "Cem: I work at Nimbus.",
        "Cem: I work at Stratus now.",
        "Where does Cem work?",
        "Nimbus",
        "Stratus",
    ),
    "editor": Update(
        "Dora: My favourite editor is Vim.",
        "Dora: My favourite editor is Helix now.",
        "What is Dora's favourite editor?",
        "Vim",
        "Helix",
    ),
    "name": Update(
        "Eva: My dog is called Rex.",
        "Eva: My dog is called Bruno now.",
        "What is the name of Eva's dog?",
        "Rex",
        "Bruno",
    ),
    "deadline": Update(
        "The deadline of the report is 3 May.",
        "The deadline of the report is 17 May now.",
        "When is the deadline of the report?",
        "3 May",
        "17 May",
    ),
    "budget": Update(
        "The budget for the garden is 900 euros.",
        "The budget for the garden is 1200 euros now.",
        "What is the budget for the garden?",
        "900",
        "1200",
    ),
    "version": Update(
        "The build uses Python 3.11.",
        "The build uses Python 3.13 now.",
        "Which Python does the build use?",
        "3.11",
        "3.13",
    ),
    "address": Update(
        "The office printer has the address 10.0.0.7.",
        "The office printer has the address 10.0.0.9 now.",
        "Which address does the office printer have?",
        "10.0.0.7",
        "10.0.0.9",
    ),
    "meeting": Update(
        "Finn: Our weekly meeting is on Monday.",
        "Finn: Our weekly meeting is on Thursday now.",
        "On which day is the weekly meeting?",
        "Monday",
        "Thursday",
    ),
}


@pytest.mark.parametrize("name", UPDATES)
async def test_what_changed_is_answered_as_it_is_now_and_as_it_was_then(
    running: Running, clock: Clock, name: str
) -> None:
    update = UPDATES[name]
    async with running.http(await running.token()) as http:
        for text, day in ((update.earlier, "2025-03-01"), (update.later, "2025-06-01")):
            clock.pass_(timedelta(hours=1))
            given = {"text": text, "occurred_at": day}
            assert (await http.post("/v1/memories", json=given)).status_code == 202
            await running.extract()
        known_at = (clock() - timedelta(minutes=30)).isoformat()

        async def first(**past: str) -> str:
            asked = {"query": update.question, "limit": 1, **past}
            found = (await http.post("/v1/search", json=asked)).json()["results"]
            return str(found[0]["text"])

        now = await first()
        true_then = await first(as_of="2025-04-01")
        known_then = await first(known_at=known_at)

    assert update.holds in now
    assert update.was in true_then
    assert update.was in known_then
