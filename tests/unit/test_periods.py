"""A period in a question is recognised, and words that only look like one are left alone."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recall_server.domain.text.dates import GRAIN_MIN, PERIODS_MAX, Period, affinity, periods

NOW = datetime(2023, 9, 20, 12, 30, tzinfo=UTC)  # a Wednesday
DAY = timedelta(days=1)
TALK = (Path(__file__).parent / "ordinary_talk.txt").read_text(encoding="utf-8").splitlines()


def at(text: str) -> datetime | None:
    return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else None


@pytest.mark.parametrize(
    ("question", "start", "end"),
    [
        # relative to now
        ("What did I eat yesterday?", "2023-09-19", "2023-09-20"),
        ("What was it the day before yesterday?", "2023-09-18", "2023-09-19"),
        ("Who called last night?", "2023-09-19", "2023-09-20"),
        ("What did we decide this morning?", "2023-09-20", "2023-09-21"),
        ("Who comes tomorrow?", "2023-09-21", "2023-09-22"),
        ("What did we do last week?", "2023-09-11", "2023-09-18"),
        ("What is on this week?", "2023-09-18", "2023-09-25"),
        ("Show me last week's notes.", "2023-09-11", "2023-09-18"),
        ("Where was I last weekend?", "2023-09-16", "2023-09-18"),
        ("What did I buy last month?", "2023-08-01", "2023-09-01"),
        ("What happened last quarter?", "2023-04-01", "2023-07-01"),
        ("Where did I live last year?", "2022-01-01", "2023-01-01"),
        ("What is due next month?", "2023-10-01", "2023-11-01"),
        ("Who came three days ago?", "2023-09-17", "2023-09-18"),
        ("Who came two weeks ago?", "2023-09-04", "2023-09-11"),
        ("Who came a couple of weeks ago?", "2023-09-04", "2023-09-11"),
        ("Who came a few months back?", "2023-06-01", "2023-07-01"),
        ("Where did I live 4 years ago?", "2019-01-01", "2020-01-01"),
        ("What did I do on Monday?", "2023-09-18", "2023-09-19"),
        ("What did I do on Wednesday?", "2023-09-13", "2023-09-14"),
        ("What happened last Friday?", "2023-09-15", "2023-09-16"),
        ("What is on this Wednesday?", "2023-09-20", "2023-09-21"),
        ("What is on next Fri?", "2023-09-22", "2023-09-23"),
        ("What will I do on Monday?", "2023-09-25", "2023-09-26"),
        # dates
        ("What happened on 2023-05-07?", "2023-05-07", "2023-05-08"),
        ("What happened on 3 June?", "2023-06-03", "2023-06-04"),
        ("What happened on the 3rd of June?", "2023-06-03", "2023-06-04"),
        ("What happened on June 3rd, 2021?", "2021-06-03", "2021-06-04"),
        ("What happened on December 1,2021?", "2021-12-01", "2021-12-02"),
        ("What happened on 25 December?", "2022-12-25", "2022-12-26"),
        ("What happened on 29 February?", "2020-02-29", "2020-03-01"),
        ("What happened on 3 may 2022?", "2022-05-03", "2022-05-04"),
        ("Where was Alice in May 2023?", "2023-05-01", "2023-06-01"),
        ("Where was Alice in may?", "2023-05-01", "2023-06-01"),
        ("Where was Alice in October?", "2022-10-01", "2022-11-01"),
        ("Where was Alice last March?", "2023-03-01", "2023-04-01"),
        ("Where was Alice in May last year?", "2022-05-01", "2022-06-01"),
        ("What am I going to do in May?", "2024-05-01", "2024-06-01"),
        ("Which car did I own in 2019?", "2019-01-01", "2020-01-01"),
        ("What sold in Q2 2022?", "2022-04-01", "2022-07-01"),
        # seasons
        ("What did Bob do in the summer of 2022?", "2022-06-01", "2022-09-01"),
        ("What did Bob do last summer?", "2023-06-01", "2023-09-01"),
        ("What did Bob do last fall?", "2022-09-01", "2022-12-01"),
        ("What did Bob do in the winter?", "2022-12-01", "2023-03-01"),
        ("What is planned for next spring?", "2024-03-01", "2024-06-01"),
        # parts
        ("Who moved in early May?", "2023-05-01", "2023-05-11T08:00"),
        ("Who came in the second half of June 2023?", "2023-06-16", "2023-07-01"),
        ("Who came the weekend of 6 July 2023?", "2023-07-08", "2023-07-10"),
        ("Who came the week of 6 July 2023?", "2023-07-03", "2023-07-10"),
        # ranges
        ("What did she paint between March and May?", "2023-03-01", "2023-06-01"),
        ("What did she paint between November and May?", "2022-11-01", "2023-06-01"),
        ("What did she paint between March and May 2021?", "2021-03-01", "2021-06-01"),
        ("Where was I from 2019 to 2021?", "2019-01-01", "2022-01-01"),
        ("Where was I between 3 and 7 June?", "2023-06-03", "2023-06-08"),
        ("Where was I between August 11 and August 15 2022?", "2022-08-11", "2022-08-16"),
        ("What did he do in the last two months?", "2023-07-20T12:30", "2023-09-20T12:30"),
        ("What did he do in the past week?", "2023-09-13T12:30", "2023-09-20T12:30"),
        # Open on one side, and next to a period.
        ("Where has he worked since 2021?", "2021-01-01", ""),
        ("What happened after 3 June?", "2023-06-04", ""),
        ("What was it from May 2023 on?", "2023-05-01", ""),
        ("What did they do before June 2023?", "", "2023-06-01"),
        ("What had she finished by June?", "", "2023-07-01"),
        ("What did he do the week before August 3, 2023?", "2023-07-27", "2023-08-03"),
        ("What did he get two weeks after 3 August 2023?", "2023-08-04", "2023-08-18"),
        ("Where was he the Sunday before October 25, 2022?", "2022-10-18", "2022-10-25"),
    ],
)
def test_a_period_is_found_and_reckoned_from_now(question: str, start: str, end: str) -> None:
    (found,) = periods(question, NOW)

    assert (found.start, found.end) == (at(start), at(end))
    assert found.words in question


@pytest.mark.parametrize(
    "question",
    [
        "What may she want?",
        "May I ask who may come?",
        "What may 3 people do?",
        "Only 3 may enter, who?",
        "Did the soldiers march on?",
        "Did we march 10 miles?",
        "Who is in the march for peace?",
        "What did April say?",
        "What happened after June called?",
        "Who saw August before May left?",
        "Is he the second son?",
        "What is the second thing, wait a second?",
        "Did he fall in the garden?",
        "What was there before the fall?",
        "Does this fall under the rule?",
        "Where does the spring of the mattress go?",
        "Where is the sun, and who sat there?",
        "Who wed whom?",
        "Did it last long, at last?",
        "What is her last name, and the next step?",
        "Did I walk in 2000 steps?",
        "Was it reached by 2050 people?",
        "Which room, 2019 or 2020?",
        "Did it cost $2019 or 1999.50?",
        "Is version 2.2021 out, or id-2021?",
        "What do I do on Mondays, every Friday?",
        "What is the last week of school?",
        "Who has 3 dogs and 2 cats?",
        "What is 12/13?",
        "Does the decision hold, and the janitor, the marble, the monk, the sunflower?",
        "What happened on 31 February 2023?",
        "What happened on 2023-13-45?",
        "",
    ],
)
def test_what_only_looks_like_a_date_is_none(question: str) -> None:
    assert periods(question, NOW) == ()


def test_in_ordinary_talk_nothing_but_times_is_found() -> None:
    found = [period.words for line in TALK for period in periods(line, NOW)]

    assert [words.lower() for words in found] == [
        "in march", "last monday", "on saturday", "tonight", "yesterday", "2024-05-01",
        "this weekend", "last night", "before friday", "yesterday", "from last week", "tomorrow",
        "until wednesday", "in may", "in february", "in january", "in june", "30th of september",
        "in december", "tomorrow", "two years ago", "in winter", "from august", "this week",
        "next year",
    ]  # fmt: skip


def test_several_periods_are_found_in_order_and_not_more_than_some() -> None:
    two = periods("What was it in May 2022, and on 3 June 2023?", NOW)
    many = periods(" ".join(f"in {year}," for year in range(1990, 2020)), NOW)

    assert [period.words for period in two] == ["in May 2022", "on 3 June 2023"]
    assert len(many) == PERIODS_MAX


WORDS = (
    "in on since before after between and to the last next this may march june 3 31 29 0 99 2023 "
    "1999 week weeks day years ago back fall summer of monday sun yesterday early Q2 - , ?"
)


@given(st.text(max_size=300) | st.lists(st.sampled_from(WORDS.split()), max_size=20).map(" ".join))
@example("LAST 0 WEEKS")
def test_no_text_is_too_strange(text: str) -> None:
    for period in periods(text, NOW):
        assert period.words in text
        assert period.grain > timedelta(0)
        assert period.start is None or period.end is None or period.start < period.end


@pytest.mark.parametrize(
    "question", ["What was 999 decades ago?", "What is in the next 999 decades?"]
)
def test_a_time_beyond_the_calendar_is_none(question: str) -> None:
    assert periods(question, NOW) == ()


MAY = Period(datetime(2023, 5, 1, tzinfo=UTC), datetime(2023, 6, 1, tzinfo=UTC), "May", 31 * DAY)
YESTERDAY = Period(datetime(2023, 9, 19, tzinfo=UTC), datetime(2023, 9, 20, tzinfo=UTC), "", DAY)


def fit(period: Period, moment: datetime) -> float:
    (found,) = affinity(period, np.array([moment.timestamp()])).tolist()
    return float(found)


def test_a_moment_inside_fits_wholly_and_outside_the_less_the_further() -> None:
    assert fit(MAY, datetime(2023, 5, 1, tzinfo=UTC)) == 1.0
    assert fit(MAY, datetime(2023, 5, 31, 23, 59, tzinfo=UTC)) == 1.0
    outside = [fit(MAY, datetime(2023, 6, 1, tzinfo=UTC) + n * DAY) for n in (0, 5, 31, 400)]
    assert outside == sorted(outside, reverse=True)
    assert outside[0] == 1.0
    assert outside[2] == pytest.approx(0.368, abs=0.001)
    assert outside[3] < 0.001
    assert fit(MAY, datetime(2023, 4, 30, tzinfo=UTC)) == fit(MAY, datetime(2023, 6, 2, tzinfo=UTC))


def test_a_short_period_forgives_less_than_a_long_one_but_some_days() -> None:
    assert fit(YESTERDAY, NOW + 9 * DAY) < fit(MAY, datetime(2023, 6, 11, tzinfo=UTC))
    assert fit(YESTERDAY, datetime(2023, 9, 20, tzinfo=UTC) + GRAIN_MIN) > 0.3


def test_what_is_open_to_one_side_fits_all_the_way() -> None:
    since = Period(datetime(2021, 1, 1, tzinfo=UTC), None, "since 2021", 365 * DAY)
    before = Period(None, datetime(2021, 1, 1, tzinfo=UTC), "before 2021", 365 * DAY)

    assert fit(since, datetime(2999, 1, 1, tzinfo=UTC)) == 1.0
    assert fit(before, datetime(1950, 1, 1, tzinfo=UTC)) == 1.0
    assert 0 < fit(since, datetime(2020, 1, 1, tzinfo=UTC)) < 0.5
