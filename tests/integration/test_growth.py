"""The daily growth of a database, estimated from what is stored."""

from datetime import timedelta

import pytest

from recall_server import doctor
from recall_server.services.metrics import Size
from recall_server.storage.inspection import Level
from tests.support.application import Open
from tests.support.conversation import drained, enter, remember
from tests.support.runtime import Clock

DAY = timedelta(days=1)


async def test_growth_is_that_of_the_last_days_by_kind(open_app: Open, clock: Clock) -> None:
    """A fifth of the texts came in the last week, and none in the following weeks."""
    async with open_app() as application:
        await enter(application)
        for number in range(8):
            await remember(application, f"Ann: I own the bike number {number}.")
        await drained(application)
        first = await doctor.sizes(application)
        clock.pass_(30 * DAY)
        for number in range(2):
            await remember(application, f"Ann: I own the boat number {number}.")
        await drained(application)
        later = await doctor.sizes(application)
        clock.pass_(30 * DAY)
        idle = await doctor.sizes(application)

    for kind in ("texts", "memories", "embeddings", "words", "audit"):
        # A database that is one day old has grown by all of its size in that day.
        assert first[kind].bytes_a_day == first[kind].bytes > 0
        assert idle[kind].bytes_a_day == 0
    assert later["texts"].bytes_a_day == pytest.approx(later["texts"].bytes / 5 / 7, rel=0.05)
    assert 0 < later["audit"].bytes_a_day < later["audit"].bytes / 7


async def test_doctor_warns_of_a_disk_that_will_be_full_in_a_month(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, "Ann: I live in Lisbon.")
        good = await doctor.growth(application)
    growing = [Size(bytes=10**9, bytes_a_day=10**8)]
    short, long = (doctor.judged_growth(growing, days * 10**8) for days in (12, 31))
    still = doctor.judged_growth([Size(bytes=10**9, bytes_a_day=0)], 0)

    assert (good.level, "grows by" in good.text) == (Level.OK, True)
    assert (short.level, "full in 12 days" in short.text) == (Level.WARN, True)
    assert long.level is still.level is Level.OK
