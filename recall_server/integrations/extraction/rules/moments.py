"""The words of time, and the day each means: "yesterday", "two weeks ago", "last Fri", "in May"."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
NUMBERS = {
    word: value
    for value, words in enumerate(
        ("", "a an one", "two couple", "three", "four", "five", "six", "seven", "eight", "nine",
         "ten", "eleven", "twelve")
    )
    for word in words.split()
}  # fmt: skip
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|March|april|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?"
    r"|january|february|june|july|august|september|october|november|december)\b"
)
_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
# Shortened only after "last" and "next": elsewhere "sat" and "sun" are other words.
_ANY_DAY = rf"{_DAY}|(?<=(?:last|next) )(?:mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)"
_PART = r"(?:\s(?:morning|afternoon|evening|night))?"

Found = tuple[datetime, str] | None
Resolver = Callable[[re.Match[str], datetime, bool], Found]


def day_shown(at: datetime) -> str:
    """A day as people write it: "7 May 2023"."""
    return f"{at.day} {_MONTHS[at.month - 1]} {at.year}"


def _shift_months(at: datetime, months: int) -> datetime:
    index = at.year * 12 + at.month - 1 + months
    return at.replace(year=index // 12, month=index % 12 + 1, day=1)


def _month_number(name: str) -> int:
    return next(
        i for i, month in enumerate(_MONTHS, 1) if month.lower().startswith(name[:3].lower())
    )


def _month_shown(at: datetime) -> str:
    return f"{_MONTHS[at.month - 1]} {at.year}"


def _day(match: re.Match[str], base: datetime, _past: bool) -> Found:
    said = match[0].lower()
    days = 0
    if "before yesterday" in said:
        days = -2
    elif "yesterday" in said or said == "last night":
        days = -1
    elif "after tomorrow" in said:
        days = 2
    elif "tomorrow" in said:
        days = 1
    at = base + timedelta(days=days)
    return at, day_shown(at)


def _counted(match: re.Match[str], base: datetime, _past: bool) -> Found:
    word, unit = match["count"].lower(), match["unit"].lower()
    few = word == "few"
    count = 3 if few else NUMBERS.get(word) or int(word)
    if match["ahead"] is None:
        count = -count
    if unit in ("day", "night"):
        at = base + timedelta(days=count)
        return at, ("around " if few else "") + day_shown(at)
    if unit == "weekend":
        at = base + timedelta(
            days=5 - base.weekday() + 7 * (count + (base.weekday() > 4 and count < 0))
        )
        return at, "weekend of " + day_shown(at)
    if unit == "week":
        at = base + timedelta(weeks=count)
        return at, "around " + day_shown(at)
    if unit == "month":
        at = _shift_months(base, count)
        return at, ("around " if few else "") + _month_shown(at)
    at = base.replace(year=base.year + count, month=1, day=1)
    return at, ("around " if few else "") + str(at.year)


def _period(match: re.Match[str], base: datetime, _past: bool) -> Found:
    step = {"last": -1, "past": -1, "previous": -1, "this": 0, "next": 1, "coming": 1}
    by, unit = step[match["which"].lower()], match["unit"].lower()
    if unit == "week":
        at = base + timedelta(days=7 * by - base.weekday())
        return at, "week of " + day_shown(at)
    if unit == "weekend":
        saturday = base + timedelta(days=5 - base.weekday() + 7 * by)
        if by < 0 and base.weekday() == 6:
            saturday = base - timedelta(days=8)
        return saturday, "weekend of " + day_shown(saturday)
    if unit == "month":
        at = _shift_months(base, by)
        return at, _month_shown(at)
    if unit == "year":
        at = base.replace(year=base.year + by, month=1, day=1)
        return at, str(at.year)
    if unit == "quarter":
        at = _shift_months(base, 3 * by - (base.month - 1) % 3)
        return at, f"Q{(at.month - 1) // 3 + 1} {at.year}"
    return _season(unit, by, base)


def _season(unit: str, by: int, base: datetime) -> Found:
    month = {"spring": 3, "summer": 6, "fall": 9, "autumn": 9, "winter": 12}[unit]
    start = base.replace(month=month, day=1)
    if by < 0 and start + timedelta(days=60) > base:
        start = start.replace(year=start.year - 1)
    if by > 0 and start <= base:
        start = start.replace(year=start.year + 1)
    return start, f"{unit} {start.year}"


def _weekday(match: re.Match[str], base: datetime, past: bool) -> Found:
    which = (match["which"] or "").lower()
    wanted = next(i for i, day in enumerate(_DAYS) if day.startswith(match["day"][:3].lower()))
    back = which in ("last", "past", "previous") or (
        which not in ("next", "coming", "this") and past
    )
    days = (wanted - base.weekday()) % 7
    if back:
        days = days - 7
    elif which != "this" and days == 0:
        days = 7
    at = base + timedelta(days=days)
    return at, day_shown(at)


def _named_month(match: re.Match[str], base: datetime, past: bool) -> Found:
    month = _month_number(match["month"])
    at = base.replace(month=month, day=1)
    which = (match["which"] or "").lower()
    if (past or which == "last") and at > base:
        at = at.replace(year=at.year - 1)
    if not past and which != "last" and (at.year, at.month) < (base.year, base.month):
        at = at.replace(year=at.year + 1)
    if which == "last" and (at.year, at.month) == (base.year, base.month):
        at = at.replace(year=at.year - 1)
    return at, _month_shown(at)


def named_day(match: re.Match[str], base: datetime, past: bool) -> Found:
    month, day = _month_number(match["m1"] or match["m2"]), int(match["d1"] or match["d2"])
    year = match["year"]
    at = base.replace(year=int(year) if year else base.year, month=month, day=day)
    if not year and past and at > base:
        at = at.replace(year=at.year - 1)
    if not year and not past and at < base:
        at = at.replace(year=at.year + 1)
    return at, day_shown(at)


def _month_of_year(match: re.Match[str], base: datetime, _past: bool) -> Found:
    at = base.replace(year=int(match["year"]), month=_month_number(match["month"]), day=1)
    return at, _month_shown(at)


def _year(match: re.Match[str], base: datetime, _past: bool) -> Found:
    at = base.replace(year=int(match["year"]), month=1, day=1)
    return at, match["year"]


def _iso(match: re.Match[str], _base: datetime, _past: bool) -> Found:
    at = datetime(int(match[1]), int(match[2]), int(match[3]), tzinfo=UTC)
    return at, day_shown(at)


def _compile(pattern: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w'’-])(?:{pattern})(?![\w'\u2019])", flags)


_WHICH = r"(?P<which>last|past|previous|this|next|coming)"
# pattern, how to resolve it, and whether the words mean nothing without the day they were said on
EXPRESSIONS: tuple[tuple[re.Pattern[str], Resolver, bool], ...] = (
    (_compile(r"(\d{4})-(\d\d)-(\d\d)"), _iso, False),
    (_compile(rf"(?:(?:the )?(?P<d1>\d\d?)(?:st|nd|rd|th)? (?:of )?(?P<m1>{_MONTH})"
              rf"|(?P<m2>{_MONTH}) (?P<d2>\d\d?)(?:st|nd|rd|th)?),? (?P<year>\d{{4}})"),
     named_day, False),
    (_compile(rf"(?P<month>{_MONTH})(?: of|,)? (?P<year>\d{{4}})", 0), _month_of_year, False),
    (_compile(r"(?:the )?day before yesterday|yesterday" + _PART + r"|last night|today|tonight"
              r"|this (?:morning|afternoon|evening)|(?:the )?day after tomorrow|tomorrow" + _PART),
     _day, True),
    (_compile(r"(?:about "
    r"|around )?(?:(?P<ahead>in )(?=\S+ (?:of )?\w+(?! ago)))?(?:(?:a )(?=couple|few))?"
              r"(?P<count>\d{1,3}|an?|one|two|couple|few|three|four|five|six|seven|eight|nine|ten"
              r"|eleven|twelve)(?: of)? (?P<unit>day|night|weekend|week|month|year)s?"
              r"(?(ahead)(?: from now| time)?| (?:ago|back)(?! (?:in|on|at|to)\b))"),
     _counted, True),
    (_compile(_WHICH + r" (?P<unit>weekend|week|month|year|quarter|spring|summer|fall|autumn"
    r"|winter)"),
     _period, True),
    (_compile(rf"(?:{_WHICH} |(?:on|by|until|till|since|for|starting|effective"
        rf"|beginning) )(?P<day>{_ANY_DAY})(?!s?\s(?:morning"
    rf"|afternoon|evening|night)s){_PART}"), _weekday, True),
    (_compile(rf"(?:(?P<m2>{_MONTH}) (?P<d2>\d\d?)(?:st|nd|rd|th)?"
              rf"|(?:the )?(?P<d1>\d\d?)(?:st|nd|rd|th)? (?:of )?(?P<m1>{_MONTH}))"
              r"(?P<year>)(?! \d)"),
     named_day, True),
    (_compile(rf"(?:(?:back in|in|since|by|until|till|during|early|late|around)"
              rf"|(?P<which>last|next|this)) (?P<month>{_MONTH})(?! \d)"), _named_month, True),
    (_compile(r"(?:back in|in|since|by|until|around) (?P<year>(?:19|20)\d\d)"), _year, False),
)  # fmt: skip
