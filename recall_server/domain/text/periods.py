"""The periods that a text names, such as "last week", "in May 2023", "between March and May", and
how well a moment fits one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.text.dates import (
    COUNT,
    EXPRESSIONS,
    Clock,
    Expression,
    Span,
    count,
    length,
    start_of,
)

PERIODS_MAX = 4
TEXT_CHARS_MAX = 2_000
"""Only this much of a longer text is searched."""
GRAIN_MIN = timedelta(days=4)
"""Events are reported some days later. Of 1 to 14 days, 4 and 7 find most on LoCoMo."""


@dataclass(frozen=True)
class Period:
    """From `start` (inclusive) to `end` (exclusive), both in UTC; None: open on that side.

    `words` are those of the text. `grain` is the length of what was named: a year for "since 2021",
    a day for "yesterday".
    """

    start: datetime | None
    end: datetime | None
    words: str
    grain: timedelta


def affinity(period: Period, moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how well each moment (seconds since 1970) fits a period, in (0, 1]: 1 inside, outside
    `exp(-distance / grain)` with a grain of at least `GRAIN_MIN`: a vague year is off by more than
    a precise day.
    """
    outside = np.zeros(len(moments))
    if period.end is not None:
        outside = np.maximum(outside, moments - period.end.timestamp())
    if period.start is not None:
        outside = np.maximum(outside, period.start.timestamp() - moments)
    fit: NDArray[np.float64] = np.exp(-outside / max(period.grain, GRAIN_MIN).total_seconds())
    return fit


def may_name_time(text: str) -> bool:
    """Return False if a text certainly names no time. Takes some microseconds."""
    return _GATE.search(text) is not None


def periods(text: str, now: datetime) -> tuple[Period, ...]:
    """Return the periods that a text names, in order, at most `PERIODS_MAX`; relative ones as of
    `now`.

    "In May" is the last one that has begun, or the next one if the text is about the future.
    """
    text = text[:TEXT_CHARS_MAX]
    if not may_name_time(text):
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
        elif one.standalone and not (named and _leads_to(one, named[0])):
            found.append(_period(text, one))
    return tuple(found)


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
    """A date in a text; `begin` includes its leading words. One that does not stand by itself
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
        for match in expression.pattern.finditer(text):
            if not any(m.start() < match.end() and match.start() < m.end() for m, _ in taken):
                taken.append((match, expression))
    for match, expression in sorted(taken, key=lambda one: one[0].start()):
        found = _one(match, expression, clock)
        if found is not None:
            yield found


def _one(match: re.Match[str], expression: Expression, clock: Clock) -> _Named | None:
    text = match.string
    lead = _LEAD.search(text, max(0, match.start() - _LEAD_CHARS_MAX), match.start())
    assert lead is not None
    way, part = (lead["way"] or "").lower(), (lead["part"] or "").lower()
    which = (match.groupdict().get("which") or "").lower()
    if not expression.meant(match, which or way or part, text[match.end() :]):
        return None
    try:
        span = expression.read(match, clock)
    except (ValueError, OverflowError):
        return None
    if span is None:
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


def _leads_to(one: _Named, other: _Named) -> bool:
    """Whether one date only positions another: the Sunday of "the Sunday before 25 October"."""
    return other.way in ("before", "after") and one.match.end() + 1 == other.begin


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
    """Return a date as a period; after "since" and "before" it is one end."""
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
    """Return the counted days just before or after a date, as in "two days after"."""
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
