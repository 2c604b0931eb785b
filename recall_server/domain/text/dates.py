"""Finds date expressions in a text and the days they mean: in English, with northern seasons.

A word with another meaning ("may", "march", "fall", "sun", 2000) is a date only if it can be
nothing else. The patterns are here; dateutil parses and computes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

import numpy as np
from dateutil.parser import parse
from dateutil.relativedelta import relativedelta, weekday
from numpy.typing import NDArray

Span = tuple[datetime, datetime]
"""From `start` (inclusive) to `end` (exclusive), in UTC."""


@dataclass(frozen=True)
class Clock:
    """The time of the question, in UTC, and whether it is about the future."""

    now: datetime
    ahead: bool = False


@dataclass(frozen=True)
class Expression:
    """A pattern of dates. `meant` decides, by the words before and after the match, whether it is
    one. `bare`: it is a date only after a leading word.
    """

    pattern: re.Pattern[str]
    read: Callable[[re.Match[str], Clock], Span | None]
    meant: Callable[[re.Match[str], str, str], bool] = lambda _match, _led, _rest: True
    bare: bool = False


def start_of(at: datetime, unit: str) -> datetime:
    """Return the start of the day, week (Monday), month, quarter, year or decade that contains
    `at`.
    """
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "week":
        return day - timedelta(days=day.weekday())
    if unit == "month":
        return day.replace(day=1)
    if unit == "quarter":
        return day.replace(day=1, month=day.month - (day.month - 1) % 3)
    if unit == "year":
        return day.replace(month=1, day=1)
    return day.replace(year=day.year - day.year % 10, month=1, day=1) if unit == "decade" else day


def length(unit: str, count: int = 1) -> relativedelta:
    """Return the length of so many days, fortnights, weekends and so on."""
    days = {"day": 1, "weekend": 2, "week": 7, "fortnight": 14}.get(unit)
    if days is not None:
        return relativedelta(days=days * count)
    return relativedelta(months={"month": 1, "quarter": 3, "year": 12, "decade": 120}[unit] * count)


_DAYS_OFF = {
    "day before yesterday": -2,
    "yesterday": -1,
    "last night": -1,
    "tomorrow": 1,
    "day after tomorrow": 2,
}
_MONDAY = datetime(2024, 1, 1, tzinfo=UTC)
_STEPS = {"last": -1, "past": -1, "previous": -1, "this": 0, "next": 1, "coming": 1}
_NUMBERS = {
    word: value
    for value, words in enumerate(
        ("a an one", "couple two", "few three", "several four", "five", "six", "seven", "eight",
         "nine", "ten", "eleven", "twelve"), 1
    )
    for word in words.split()
}  # fmt: skip


def count(words: str | None) -> int:
    """Parse "3", "a few" or "a couple of"; None is one."""
    said = [word for word in (words or "one").lower().split() if word != "of"]
    named = said[-1]
    return int(named) if named.isdigit() else _NUMBERS[named]


def _span(start: datetime, unit: str) -> Span:
    start = start_of(start, unit)
    return start, start + length(unit)


def _dated(words: str, year: str | None, unit: str, clock: Clock) -> Span | None:
    """Resolve a day or month; without a year, the last one that has begun, or, if the text is about
    the future, the next one to end.
    """
    now = clock.now.year
    # 29 February is at most eight years apart.
    years = range(now, now + 9) if clock.ahead else range(now, now - 9, -1)
    for default in [int(year)] if year else years:
        try:
            start = parse(words, default=datetime(default, 1, 1, tzinfo=UTC))
        except ValueError:
            continue
        start, end = _span(start, unit)
        if year or (end > clock.now if clock.ahead else start <= clock.now):
            return start, end
    return None


def _iso(match: re.Match[str], _clock: Clock) -> Span | None:
    return _span(datetime.fromisoformat(match[0]).replace(tzinfo=UTC), "day")


def _day(match: re.Match[str], clock: Clock) -> Span | None:
    return _dated(match[0], match["year"], "day", clock)


def _days(match: re.Match[str], clock: Clock) -> Span | None:
    """Resolve "the 3rd to the 7th of June"."""
    last = _dated(match["last"], match["year"], "day", clock)
    if last is None:
        return None
    start = last[0].replace(day=int(match["first"]))
    return (start, last[1]) if start < last[0] else None


def _month(match: re.Match[str], clock: Clock) -> Span | None:
    """Resolve "May 2023", "May last year", "last May"."""
    which, year = (match["which"] or "").lower(), match["year"]
    if match["relative"] or which == "this":
        year = str(clock.now.year + _STEPS[(match["relative"] or which).lower()])
    ahead = which in ("next", "coming") or (clock.ahead and not which)
    return _dated(f"{match['month']} {year or ''}", year, "month", Clock(clock.now, ahead))


def _weekday(match: re.Match[str], clock: Clock) -> Span | None:
    """Resolve a weekday; never today, except for "this"."""
    which = (match["which"] or "").lower()
    day = parse(match["day"], default=_MONDAY).weekday()
    ahead = which in ("this", "next", "coming") or (clock.ahead and not which)
    step = 0 if which == "this" else 1 if ahead else -1
    at = clock.now + relativedelta(days=step, weekday=weekday(day, 1 if ahead else -1))
    return _span(at, "day")


def _year(match: re.Match[str], _clock: Clock) -> Span | None:
    return _span(datetime(int(match[0]), 1, 1, tzinfo=UTC), "year")


def _quarter(match: re.Match[str], _clock: Clock) -> Span | None:
    month = 3 * int(match["number"]) - 2
    return _span(datetime(int(match["year"]), month, 1, tzinfo=UTC), "quarter")


def _about_today(match: re.Match[str], clock: Clock) -> Span | None:
    said = match[0].lower().removeprefix("the ")
    return _span(clock.now + timedelta(days=_DAYS_OFF.get(said, 0)), "day")


def _ago(match: re.Match[str], clock: Clock) -> Span | None:
    unit = match["unit"].lower()
    at = clock.now - length(unit, count(match["count"]))
    return _span(at, "week" if unit == "fortnight" else unit)


def _rolling(match: re.Match[str], clock: Clock) -> Span | None:
    number = count(match["count"])
    if not number:  # "the last 0 weeks" are no time at all
        return None
    duration = length(match["unit"].lower(), number)
    if _STEPS[match["which"].lower()] > 0:
        return clock.now, clock.now + duration
    return clock.now - duration, clock.now


def _unit(match: re.Match[str], clock: Clock) -> Span | None:
    unit, step = match["unit"].lower(), _STEPS[match["which"].lower()]
    if unit == "weekend":
        start = start_of(clock.now, "week") + timedelta(days=5, weeks=step)
    else:
        start = start_of(clock.now, unit) + length(unit, step)
    return start, start + length(unit)


def _season(match: re.Match[str], clock: Clock) -> Span | None:
    month = {"spring": 3, "summer": 6, "winter": 12}.get(match["season"].lower(), 9)
    which, year = (match["which"] or "").lower(), match["year"]
    at = start_of(clock.now, "year").replace(month=month)
    if year or match["relative"]:
        step = 0 if year else _STEPS[match["relative"].lower()]
        at = at.replace(year=int(year) if year else at.year + step)
    elif which in ("next", "coming") or (clock.ahead and not which):
        at += length("year", int(at <= clock.now))
    elif which != "this":
        # "Last summer" is over; "the summer" may have begun.
        ends = at + length("quarter") if which else at
        at -= length("year", int(ends > clock.now))
    return at, at + length("quarter")


_MONTH = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|(?-i:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\b\.?)"
)
# Next to a number, a short month name needs no capital letter.
_SHORT = rf"(?:{_MONTH}|(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?)"
_WEEKDAY = (
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?-i:Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun))"
)
_DAY = r"\d\d?(?:st|nd|rd|th)?"
_YEAR = r"(?:19|20)\d\d(?![\d%]|[.,]\d)"
_OF_YEAR = rf"(?:(?:, ?| )(?P<year>{_YEAR}))?"
_WHICH = r"(?P<which>last|past|previous|this|next|coming)"
_SEASON = r"(?P<season>spring|summer|autumn|fall|winter)"
COUNT = (
    r"(?P<count>\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|(?:a )?couple(?: of)?|(?:a )?few|several)"
)
_UNIT = r"(?P<unit>day|week|fortnight|month|year|decade)"

CLAUSE_ENDS = re.compile(
    r"\s*(?:$|[?!,;:.)]|(?:and|or|until|till|to|through|last|this|next)\b)", re.IGNORECASE
)
_CALLED = frozenset(["april", "may", "june", "august", "march", "jan"])
_ALWAYS = frozenset(["in", "during", "last", "this", "next"])
_TELLING = _ALWAYS | {"on", "since", "until", "till", "by", "before", "after", "from", "past"}
# "In 2000 steps", "by 2050 people": a number of things, not a year.
_COUNTED = re.compile(
    r"\s+(?!(?:was|is|has|does|as|his|its|this|us|yes|across|towards|besides|always)\b)"
    r"(?:[a-z]+s|k[mg]|[mgk]|ml|people|men|women|children|percent|euro)\b"
)


def _no_number(_match: re.Match[str], _led: str, rest: str) -> bool:
    return _COUNTED.match(rest) is None


def _no_verb(match: re.Match[str], led: str, rest: str) -> bool:
    """Accept a day: "May 3", "on 3 may"; not "only 3 may come" or "march 10 miles"."""
    if match["month"].lower() not in ("may", "march") or match["year"]:
        return True
    capital = match["month"][0].isupper() and match.start() > 0
    return capital or led in _TELLING or CLAUSE_ENDS.match(rest) is not None


def _no_name(match: re.Match[str], led: str, rest: str) -> bool:
    """Accept a month: "in June", "after June?"; not "after June called", "in the march"."""
    if match.string[: match.start()].lower().endswith("the "):
        return False
    if match["month"].lower() not in _CALLED:
        return True
    return led in _ALWAYS or CLAUSE_ENDS.match(rest) is not None


def _no_fall(match: re.Match[str], led: str, rest: str) -> bool:
    """Accept a season: "in the fall", "this fall?"; not "after the fall", "did this fall on"."""
    if match["year"] or match["relative"]:
        return True
    if match["season"].lower() not in ("fall", "spring"):
        return bool(led)
    if led == "this":
        return CLAUSE_ENDS.match(rest) is not None
    return led in _ALWAYS or led == "over"


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w$€£#'’-])(?:{pattern})(?![\w-])", re.IGNORECASE)


EXPRESSIONS: tuple[Expression, ...] = (
    Expression(_compile(r"\d{4}-\d\d-\d\d"), _iso),
    Expression(
        _compile(
            r"(?P<first>\d\d?)(?:st|nd|rd|th)?(?: ?[-–] ?| (?:and|to|until|till|through) )(?:the )?"
            rf"(?P<last>{_DAY} (?:of )?(?P<month>{_SHORT}){_OF_YEAR})"
        ),
        _days,
        _no_verb,
    ),
    Expression(_compile(rf"{_DAY} (?:of )?(?P<month>{_SHORT}){_OF_YEAR}"), _day, _no_verb),
    Expression(_compile(rf"(?P<month>{_SHORT}) (?:the )?{_DAY}{_OF_YEAR}(?!:\d)"), _day, _no_verb),
    Expression(
        _compile(
            rf"(?P<which>)(?P<month>{_SHORT})(?:,| of)? (?:(?P<year>{_YEAR})"
            r"|(?P<relative>last|this|next) year)"
        ),
        _month,
    ),
    Expression(
        _compile(
            r"(?:the )?day before yesterday|yesterday|(?:the )?day after tomorrow|tomorrow|today"
            r"|tonight|last night|this (?:morning|afternoon|evening)"
        ),
        _about_today,
    ),
    Expression(_compile(rf"{COUNT} {_UNIT}s? (?:ago|back)"), _ago),
    Expression(_compile(rf"(?P<which>last|past|previous|next|coming) {COUNT} {_UNIT}s"), _rolling),
    Expression(_compile(r"(?P<which>past) (?P<count>)(?P<unit>week|month|year|decade)"), _rolling),
    Expression(
        _compile(rf"{_WHICH} (?P<unit>weekend|week|month|quarter|year|decade)(?:['’]s)?(?! of\b)"),
        _unit,
    ),
    Expression(
        _compile(
            rf"(?P<which>){_SEASON},?(?: of)? (?:(?P<year>{_YEAR})"
            r"|(?P<relative>last|this|next) year)"
        ),
        _season,
        _no_fall,
    ),
    Expression(
        _compile(rf"(?:{_WHICH} )?{_SEASON}(?P<year>)(?P<relative>)(?! of\b)"),
        _season,
        _no_fall,
        bare=True,
    ),
    Expression(_compile(rf"Q(?P<number>[1-4]),?(?: of)? (?P<year>{_YEAR})"), _quarter),
    Expression(_compile(rf"(?:{_WHICH} )?(?P<day>{_WEEKDAY})(?P<year>)"), _weekday, bare=True),
    Expression(
        _compile(rf"(?:{_WHICH} )?(?P<month>{_MONTH})(?P<year>)(?P<relative>)"),
        _month,
        _no_name,
        bare=True,
    ),
    Expression(_compile(_YEAR), _year, _no_number, bare=True),
)


PERIODS_MAX = 4
# How many matches of each expression are read: each takes about 80 µs.
DATES_MAX = 16
TEXT_CHARS_MAX = 1_000
"""Only this much of a longer text is searched."""
GRAIN_MIN = timedelta(days=4)
"""Events are reported some days later. Of 1 to 14 days, 4 and 7 find the most on LoCoMo."""


@dataclass(frozen=True)
class Period:
    """From `start` (inclusive) to `end` (exclusive), both in UTC; None: open on that side.

    `words`: those of the text. `grain`: the length of the date named: a year for "since 2021", a
    day for "yesterday".
    """

    start: datetime | None
    end: datetime | None
    words: str
    grain: timedelta


def affinity(period: Period, moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how well each moment (seconds since 1970) fits a period, in (0, 1]: 1 inside; outside
    `exp(-distance / grain)` with a grain of at least `GRAIN_MIN`, as a vague year is off by more
    than a precise day.
    """
    outside = np.zeros(len(moments))
    if period.end is not None:
        outside = np.maximum(outside, moments - period.end.timestamp())
    if period.start is not None:
        outside = np.maximum(outside, period.start.timestamp() - moments)
    fit: NDArray[np.float64] = np.exp(-outside / max(period.grain, GRAIN_MIN).total_seconds())
    return fit


def periods(text: str, now: datetime) -> tuple[Period, ...]:
    """Return the periods that a text names, in order, at most `PERIODS_MAX`; relative ones as of
    `now`.

    "In May" is the last one that has begun, or the next one if the text is about the future.
    """
    text = text[:TEXT_CHARS_MAX]
    if _GATE.search(text) is None:  # a few microseconds
        return ()
    clock = Clock(now.astimezone(UTC), bool(_AHEAD.search(text)))
    named = list(_named(text, clock))
    found: list[Period] = []
    while named and len(found) < PERIODS_MAX:
        one = named.pop(0)
        both = _range(text, one, named[0]) if named else None
        if both is not None:
            named.pop(0)
            found.append(both)
            continue
        # One date may only position another, as Sunday in "the Sunday before 25 October".
        leads = named and named[0].way in ("before", "after")
        if one.standalone and not (leads and one.match.end() + 1 == named[0].begin):
            found.append(_period(text, one))
    return tuple(found)


def began(text: str, now: datetime, *, past: bool) -> datetime | None:
    """Return the date from which a statement says that it is true, if it names just one: "since
    June 2024", or "in June 2024" of something `past`. A date without figures is too vague for that.
    """
    named = [one for one in periods(text, now) if any(map(str.isdigit, one.words))]
    if len(named) != 1 or named[0].start is None or named[0].start >= now:
        return None
    (one,) = named
    since = one.end is None and not one.words.lower().startswith("after ")
    return one.start if since or (past and one.end is not None) else None


_GATE = re.compile(
    r"\b(?:(?:19|20)\d\d|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
    r"|mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}|yesterday|today|tonight|tomorrow|ago|back"
    r"|last|past|previous|this|next|coming|spring|summer|autumn|fall|winter)\b",
    re.IGNORECASE,
)
_AHEAD = re.compile(
    r"\b(?:will|shall|going to|gonna|upcoming|plan(?:s|ned|ning)?|scheduled|booked)\b",
    re.IGNORECASE,
)
# The words before a date: its direction, and which part of it is meant.
_LEAD = re.compile(
    r"(?:\b(?P<way>in|on|during|over|within|through|throughout|around|from|since|after|before|until"
    r"|till|by|between|to|and) )?(?:the )?"
    r"(?:(?P<part>early|beginning of|start of|mid|middle of|late|end of|(?:first|second) half of"
    r"|(?:first|second|third|fourth|last) week of|week of|weekend of)(?: |-)(?:the )?)?$",
    re.IGNORECASE,
)
_LEAD_CHARS_MAX = 40
_SHARES = {
    "early": (0, 1 / 3),
    "beginning of": (0, 1 / 3),
    "start of": (0, 1 / 3),
    "mid": (1 / 3, 2 / 3),
    "middle of": (1 / 3, 2 / 3),
    "late": (2 / 3, 1),
    "end of": (2 / 3, 1),
    "first half of": (0, 1 / 2),
    "second half of": (1 / 2, 1),
    "first week of": (0, 1 / 4),
    "second week of": (1 / 4, 1 / 2),
    "third week of": (1 / 2, 3 / 4),
    "fourth week of": (3 / 4, 1),
    "last week of": (3 / 4, 1),
}
# "The week before", "two days after", "the Sunday before" a date.
_OFFSET = re.compile(
    rf"\b(?:{COUNT} |(?:the|last|next) )(?P<unit>day|week|weekend|month|year|night|evening|morning"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day)s? $",
    re.IGNORECASE,
)
_JOINT = re.compile(r"(?P<word>| ?[-–—] ?| (?:to|and|until|till|through) )(?:the )?", re.IGNORECASE)
_BY_ITSELF = frozenset(["", "to", "and", "around", "over"])


@dataclass(frozen=True)
class _Named:
    """A date in a text; `begin` includes its leading words. A date that is not `standalone`
    ("March", "2021") may still be one end of a range.
    """

    begin: int
    match: re.Match[str]
    expression: Expression
    span: Span
    way: str
    standalone: bool

    def by(self, now: datetime) -> Span:
        """Return the last such date that has begun by `now`, unless the text names the year."""
        said = self.match.groupdict()
        if "year" not in said or said["year"] or said.get("relative") or said.get("which"):
            return self.span
        return self.expression.read(self.match, Clock(now)) or self.span


def _named(text: str, clock: Clock) -> Iterator[_Named]:
    taken: list[tuple[re.Match[str], Expression]] = []
    for expression in EXPRESSIONS:
        for match in islice(expression.pattern.finditer(text), DATES_MAX):
            if not any(m.start() < match.end() and match.start() < m.end() for m, _ in taken):
                taken.append((match, expression))
    # The same words are read once: "Dec" may stand there hundreds of times.
    known: dict[tuple[str, str], Span | None] = {}
    for match, expression in sorted(taken, key=lambda one: one[0].start()):
        key = expression.pattern.pattern, match[0]
        if key not in known:
            known[key] = _read(match, expression, clock)
        found = _one(match, expression, known[key])
        if found is not None:
            yield found


def _read(match: re.Match[str], expression: Expression, clock: Clock) -> Span | None:
    try:
        return expression.read(match, clock)
    except (ValueError, OverflowError):
        return None


def _one(match: re.Match[str], expression: Expression, span: Span | None) -> _Named | None:
    if span is None:
        return None
    text = match.string
    lead = _LEAD.search(text, max(0, match.start() - _LEAD_CHARS_MAX), match.start())
    assert lead is not None
    way, part = (lead["way"] or "").lower(), (lead["part"] or "").lower()
    which = (match.groupdict().get("which") or "").lower()
    if not expression.meant(match, which or way or part, text[match.end() :]):
        return None
    led = bool(which or part) or way not in _BY_ITSELF
    return _Named(
        lead.start() if part or way not in _BY_ITSELF else match.start(),
        match,
        expression,
        _part(span, part),
        way,
        standalone=led or not expression.bare,
    )


def _part(span: Span, part: str) -> Span:
    start, end = span
    if part in ("week of", "weekend of"):
        monday = start_of(start, "week")
        return monday + timedelta(days=5 if part == "weekend of" else 0), monday + timedelta(days=7)
    first, last = _SHARES.get(part, (0, 1))
    return start + first * (end - start), start + last * (end - start)


def _range(text: str, one: _Named, other: _Named) -> Period | None:
    """Join two dates to one period: "between March and May 2022", "from 2019 to 2021", "May-
    June".
    """
    joint = _JOINT.fullmatch(text, one.match.end(), other.match.start())
    if joint is None or not joint["word"]:
        return None
    if "and" in joint["word"].lower() and one.way != "between":
        return None
    if one.way not in ("between", "from") and not (one.standalone or other.standalone):
        return None
    end = other.span[1]
    # "Between November and May" begins in the November before that May.
    start, _ = one.by(end - timedelta(days=1))
    if start >= other.span[0]:
        return None
    return Period(start, end, text[one.begin : other.match.end()], end - start)


def _period(text: str, one: _Named) -> Period:
    """Return a date as a period; after words like "since" and "before" it is one end of it."""
    words, (start, end) = text[one.begin : one.match.end()], one.span
    grain = end - start
    onwards = re.match(r" on(?:wards?)?\b", text[one.match.end() :])
    if one.way in ("before", "after"):
        return _beside(text, one) or (
            Period(end, None, words, grain)
            if one.way == "after"
            else Period(None, start, words, grain)
        )
    if one.way == "since" or (one.way == "from" and onwards):
        return Period(start, None, words, grain)
    if one.way in ("until", "till", "by"):
        return Period(None, end, words, grain)
    return Period(start, end, words, grain)


def _beside(text: str, one: _Named) -> Period | None:
    """Return the counted time just before or after a date, as in "two days after"."""
    offset = _OFFSET.search(text, max(0, one.begin - _LEAD_CHARS_MAX), one.begin)
    if offset is None:
        return None
    unit = offset["unit"].lower()
    if unit not in ("day", "week", "month", "year"):
        unit = "day" if unit in ("night", "evening", "morning") else "week"
    duration = length(unit, count(offset["count"]))
    words = text[offset.start() : one.match.end()]
    start, end = one.span
    if one.way == "before":
        return Period(start - duration, start, words, start - (start - duration))
    return Period(end, end + duration, words, end + duration - end)
