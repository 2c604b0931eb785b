"""Finds the writer and the time of what follows: dates and times of headings, chats and mails; in
mails the head, the line above a quoted one, the greeting, and the name at the end.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

# How the months begin in English, German, Spanish and French, without what several share.
_MONTHS = (
    ("jan", "jän", "ene"), ("feb", "fév", "fev"), ("mar", "mär", "mrz"), ("apr", "avr", "abr"),
    ("may", "mai"), ("jun", "juin"), ("jul", "juil"), ("aug", "ago", "aoû"), ("sep",),
    ("oct", "okt"), ("nov",), ("dec", "dez", "dic", "déc"),
)  # fmt: skip
MONTHS_OF_A_YEAR = len(_MONTHS)
# A day of the week falls on a date again after six years at most, but for leap days.
_YEARS_MAX = 6
_MONTH = (
    r"(?P<{0}>jan(?:uary|uar|vier|v)?|jän(?:ner)?|ene(?:ro)?|feb(?:ruary|ruar|rero)?|f[ée]v(?:rier|r)?"
    r"|mar(?:ch|s|zo)?|märz|mrz|apr(?:il)?|avr(?:il)?|abr(?:il)?|may|mayo|mai|june?|juni|junio|juin"
    r"|july?|juli|julio|juil(?:let)?|aug(?:ust)?|ago(?:sto)?|ao[ûu]t|sept?(?:ember|iembre|embre)?"
    r"|o[ck]t(?:ober|ubre|obre)?|nov(?:ember|iembre|embre)?|de[cz](?:ember)?|dic(?:iembre)?"
    r"|d[ée]c(?:embre)?)\b\.?"
)
DATE = re.compile(
    r"(?<!\d)(?:(?P<iso_year>\d{4})(?:[-/.]|年)(?P<iso_month>\d\d?)(?:[-/.]|月)(?P<iso_day>\d\d?)(?!\d)"
    rf"|(?P<day>\d\d?)(?:st|nd|rd|th|er"
    rf"|\.)?\ (?:(?:of|de)\ )?{_MONTH.format('month')},?\ (?:de\ )?(?P<year>\d{{4}})(?!\d)"
    rf"|\b{_MONTH.format('us_month')}\ (?P<us_day>\d\d?)(?:st|nd|rd"
    rf"|th)?,?\ (?P<us_year>\d{{4}})(?!\d)"
    r"|(?P<a>\d\d?)(?P<ab_by>[/.])(?P<b>\d\d?)(?P=ab_by)"
    r"(?P<ab_year>\d{4}|\d\d(?=,?\ \d\d?:))(?!\d))",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"(?<![\d:])(?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.\d{1,6})?)?"
    r"[ \u202f\xa0]?(?P<half>[ap]\.?m\b\.?)?(?P<zone>Z\b|[+-]\d\d:?\d\d)?",
    re.IGNORECASE,
)

# How the days of the week begin in the same languages; in German two letters may do.
_WEEKDAYS = (
    "mon lun mo", "tue die mar di", "wed mit mié mie mer mi", "thu don jue jeu do",
    "fri fre vie ven fr", "sat sam sáb sab sa", "sun son dom dim so",
)  # fmt: skip
# The day that an entry of a diary or a log begins with.
_ENTRY = re.compile(
    r"\s{0,4}(?:[-*•]\s{1,3})?(?:\*\*|__|\[)?(?:(?P<weekday>[^\W\d_]{2,10})\.?,?[ ])?"
    r"(?P<day>\d{4}-\d\d-\d\d|\d\d?\.\d\d?\.(?:\d{4})?(?!\d)|(?:\d{4}年)?\d\d?月\d\d?日"
    rf"|\d\d?(?:st|nd|rd|th|er|\.)?[ ](?:(?:of|de)[ ])?{_MONTH.format('first')}"
    r"(?:,?[ ](?:de[ ])?\d{4})?"
    rf"|{_MONTH.format('second')}[ ]\d\d?(?:st|nd|rd|th)?(?:,?[ ]\d{{4}})?)(?!\d)"
    r"(?:,?[ ]\d\d?:\d\d)?[:.,]?(?:\*\*|__|\])?[ ]?[:–—-]?[ \t]+(?=\S)",
    re.IGNORECASE,
)
# "3 May 2026 to 5 May 2026".
_LINK = re.compile(r"^[^\W\d_]{1,5}[ ]+")
# "12/01 18:02" is of no day that is known.
_WITHOUT_YEAR = re.compile(r"(?<![\d:])\d\d?[./-]\d\d?\.?,?\s+\d\d?:\d\d")


class Entry(NamedTuple):
    """The day that an entry begins with, None if that cannot be told, and what follows."""

    day: datetime | None
    words: str


def entry_of(line: str, until: datetime) -> Entry | None:
    """Return the entry that a line begins with a day of; None if it begins with none. Without a
    year it is the nearest such day to `until`, if the entry has the day of the week: else it may
    be any. Where a second day follows, all of it was not said on the first.
    """
    entry = _ENTRY.match(line)
    if entry is None:
        return None
    day, words = entry["day"], line[entry.end() :]
    if _ENTRY.match(_LINK.sub("", words)):
        return Entry(None, words)
    if DATE.search(day):
        return Entry(read_moment(day, until), words)
    weekday = _weekday(entry["weekday"] or "")
    if weekday is None:
        return Entry(None, words)
    may_be = []
    for year in range(until.year - _YEARS_MAX, until.year + _YEARS_MAX):
        written = f"{year}年{day}" if "月" in day else f"{day}{'' if day[-1] == '.' else ' '}{year}"
        at = read_moment(written, until)
        may_be += [at] if at and at.weekday() == weekday else []
    return Entry(min(may_be, key=lambda at: abs(at - until), default=None), words)


def begins_with_day(line: str) -> bool:
    """Return whether a line begins with a day, and goes on."""
    return _ENTRY.match(line) is not None


def _weekday(name: str) -> int | None:
    begins = name.lower()[:3]
    return next((n for n, names in enumerate(_WEEKDAYS) if begins in names.split()), None)


def read_moment(text: str, day: datetime, *, day_first: bool | None = None) -> datetime | None:
    """Return the moment that a stamp or heading names, in UTC; a clock time without a date is on
    `day`. None if it names none, or an ambiguous one. `day_first`: 03/04/2023 is in April, or in
    March.
    """
    date, clock = DATE.search(text), _TIME.search(text)
    if date is None and (clock is None or _WITHOUT_YEAR.search(text)):
        return None
    try:
        at = (
            _day_of(date, day_first)
            if date
            else day.replace(hour=0, minute=0, second=0, microsecond=0)
        )
        return at if clock is None or at is None else _with_clock(at, clock)
    except (ValueError, OverflowError):
        return None


def is_moment(stamp: str) -> bool:
    """Return whether a text has a date or a time."""
    return bool(DATE.search(stamp) or _TIME.search(stamp))


def without_moment(text: str) -> str:
    """Return a stamp or heading without its date and time."""
    return _TIME.sub(" ", DATE.sub(" ", text))


def _day_of(date: re.Match[str], day_first: bool | None) -> datetime | None:
    part = date.groupdict()
    if part["iso_year"]:
        year, month, day = part["iso_year"], int(part["iso_month"]), part["iso_day"]
    elif part["year"]:
        year, month, day = part["year"], _month(part["month"]), part["day"]
    elif part["us_year"]:
        year, month, day = part["us_year"], _month(part["us_month"]), part["us_day"]
    else:
        first, second, year = int(part["a"]), int(part["b"]), part["ab_year"]
        year = year if len(year) == 4 else f"20{year}"
        dotted = part["ab_by"] == "."
        if max(first, second) <= MONTHS_OF_A_YEAR and first != second and not dotted:
            if day_first is None:
                # March to some and April to others: no date is better than a wrong one.
                return None
        else:
            day_first = dotted or first > MONTHS_OF_A_YEAR or first == second
        month, day = (second, str(first)) if day_first else (first, str(second))
    return datetime(int(year), month, int(day), tzinfo=UTC)


def _month(name: str) -> int:
    name = name.lower()
    return next(n for n, begins in enumerate(_MONTHS, 1) if name.startswith(begins))


def _with_clock(at: datetime, clock: re.Match[str]) -> datetime:
    hour, half = int(clock["hour"]), (clock["half"] or "").lower()[:1]
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    zone = clock["zone"] or ""
    if zone and zone not in "Zz":
        at = at.replace(tzinfo=datetime.strptime(zone.replace(":", ""), "%z").tzinfo)
    second = int(clock["second"] or 0)
    return at.replace(hour=hour, minute=int(clock["minute"]), second=second).astimezone(UTC)


# The lines of the head of a mail; a ruled line; the greeting that opens a letter.
_LINE = (
    r"(?:from|to|cc|bcc|date|sent(?:[ ]on)?|subject|reply-to|von|an|gesendet(?:[ ]am)?|datum"
    r"|betreff|de|à|para|envoyé(?:[ ]le)?|objet|asunto|fecha|enviad[oa](?:[ ](?:el|em))?|assunto"
    r"|van|aan|verzonden|onderwerp|发件人|收件人|主题|差出人|宛先|件名|日時)"
    r"[ ]?[:：][ \t]*\S[^\n]*+"
)
_OPENING = r"[^\W\d_][^.!?:,;\n]{1,40},"
MAIL_LEAD = re.compile(rf"[ \t]*+(?:{_LINE}|[-*_=~]{{3,}}+|{_OPENING})[ \t]*+", re.IGNORECASE)
MAIL_TITLES = re.compile(
    rf"(?:[ \t]*+(?:#{{1,6}}[ \t][^\n]*+|{_LINE}|[-*_=~]{{3,}}+|{_OPENING})[ \t]*+(?:\n\s*+|\Z))+",
    re.IGNORECASE,
)
# A letter ends before another mail, a ruled line, or a quoted one.
ENDS_LETTER = re.compile(rf"{MAIL_LEAD.pattern}|>", re.IGNORECASE)
MAIL_DATE = re.compile(
    r"\s*(?:date|sent(?:[ ]on)?|datum|gesendet(?:[ ]am)?|fecha|envoyé(?:[ ]le)?"
    r"|enviad[oa](?:[ ](?:el|em))?|verzonden|日時)[ ]?[:：][^\n]*+\s*",
    re.IGNORECASE,
)
FAREWELL = re.compile(r"(?:[^\W\d_][\w'’ -]{0,24},?\s*\n){0,2}[^\W\d_][\w'’. -]{0,24}")

_WORD = r"[\w][\w.'’-]{0,30}"
# Above a comment or an answer: "mlin requested changes:", "Ana Kim commented on May 3, 2024".
SAYS_BELOW = re.compile(
    rf"\s{{0,8}}(?!(?:he|she|it|they|we|i|you|who|er|sie|es|wir|ich)\b)"
    rf"(?:\*\*)?(?P<name>@?{_WORD}(?:[ ]{_WORD}){{0,2}})(?:\*\*)?[ ]"
    r"(?:(?P<wrote>wrote|schrieb|escribió|a[ ]écrit)|commented|replied"
    r"|answered|added|asked|requested[ ]changes"
    r"|approved(?:[ ]these[ ]changes)?|antwortete|kommentierte|respondió|comentó"
    r"|a[ ](?:répondu|commenté))"
    r"(?:[ ](?P<stamp>on[ ][^\n:·]{0,9}\d[^\n:·]{0,12}|\d+[ ]\w+[ ]ago|yesterday|last[ ]\w+)"
    r"(?:[ ]·[ ]\w+)?:?|:)\s*",
    re.IGNORECASE,
)
_MAILBOX = r"[^\s()<>\[\]@:,;]{1,64}@[^\s()<>\[\]@:,;]{1,99}"
# "Kim, Ana (Sales) <ana@x.org>", "ana@x.org", "Ana Kim", also with an address.
_NAME = (
    r"(?:[\"']?(?P<full>[^\W\d_][^\n<>@\"\d]{0,59}?)[\"']?[ ]"
    rf"[(<\[]{{1,2}}{_MAILBOX}[)>\]]{{1,2}}|[<(\[]?(?P<address>{_MAILBOX})[)>\]]?"
    # Also somebody of a company: "Lindner Kitchens, T. Prell".
    r"|\"?(?P<name>[^\W\d_][\w.'’-]{0,30}(?:,?[ ][\w.'’&-]{1,30}){0,4})\"?"
    rf"(?P<known>[ ][(<\[]{{1,2}}{_MAILBOX}[)>\]]{{1,2}})?)"
)
_GROUP = re.compile(r"(?<=\(\?P<)(?=\w+>)")
_HEAD = re.compile(rf"(?:[ \t]*+{_LINE}(?:\n|\Z)){{2,10}}", re.IGNORECASE)
_FROM = re.compile(
    rf"^[ \t]*(?:from|von|de|van|发件人|差出人)[ ]?[:：][ \t]*{_NAME}[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
MAIL_SUBJECT = re.compile(
    r"[ \t]*(?:subject|betreff|objet|asunto|assunto|onderwerp|主题|件名)[ ]?[:：]", re.IGNORECASE
)
_ABOUT = re.compile(rf"^{MAIL_SUBJECT.pattern}", re.IGNORECASE | re.MULTILINE)
_SENT = re.compile(rf"^{MAIL_DATE.pattern}", re.IGNORECASE | re.MULTILINE)
_STAMP = r"[^\n]{4,60}?\d\d(?:[ ]?[ap]\.?m\b\.?)?(?:[ ]Uhr)?"
# "On Mon, 11 Jan 2027 at 21:47, Ana Kim <ana@x.org> wrote:", which a mail program may have wrapped.
_QUOTES = re.compile(
    rf"[ \t]*(?:>[ ]?)*(?:on|le|el)[ ](?P<stamp>{_STAMP}),?[ ]{_NAME}"
    r"\s(?:wrote|a[ ]écrit|escribió)[ ]?:[ \t]*(?=\n|\Z)"
    rf"|[ \t]*(?:>[ ]?)*am[ ](?P<am>{_STAMP}),?\sschrieb[ ]{_GROUP.sub('de_', _NAME)}"
    r"[ ]?:[ \t]*(?=\n|\Z)",
    re.IGNORECASE,
)
# As a mail program shows it: "Ana Kim <ana@x.org>", then when, and "to me".
_OPENED = re.compile(
    rf"[ \t]*(?P<full>[^\W\d_][^\n<>@]{{0,59}}?)[ ]<{_MAILBOX}>(?:[ \t]+|[ \t]*\n)"
    r"(?P<stamp>[^\n]{0,30}\d\d?:\d\d[^\n]{0,20})\n[ \t]*(?:to|an|à|a|para)[ ][^\n]{1,80}(?=\n|\Z)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"\s*((?:>[ \t]?)+)")


class Sender(NamedTuple):
    """The writer of what follows, and the time; `begins`: where the words begin; `end`: where the
    lines end that tell it; `addressed`: an address is told.
    """

    name: str
    stamp: str
    begins: int
    end: int
    addressed: bool = False


def quote_depth(text: str, at: int) -> int:
    """Return how often the next line that is not blank is marked as quoted."""
    marks = _QUOTED.match(text, at)
    return marks[1].count(">") if marks else 0


def sender_at(text: str, start: int) -> Sender | None:
    """Return the sender that the head of a mail, or the line above a quoted one, names at this
    place; None if there is none.
    """
    if (line := _QUOTES.match(text, start)) is not None:
        of = "de_" if line["am"] else ""
        return _sender(line, line["stamp"] or line["am"], line.end(), line.end(), of)
    if (opened := _OPENED.match(text, start)) is not None:
        # "Mon, Jan 11, 9:12 AM" names no year, and so no day.
        stamp = opened["stamp"] if DATE.search(opened["stamp"]) else ""
        return Sender(_tidy(opened["full"]), stamp, opened.end(), opened.end(), addressed=True)
    head = _HEAD.match(text, start)
    if head is None or not _ABOUT.search(head[0]):
        return None
    sender, sent = _FROM.search(head[0]), _SENT.search(head[0])
    if sender is None:
        return None
    # The other lines of the head are read with what is said.
    begins = start + sender.end() if sender.start() == 0 else start
    return _sender(sender, sent[0] if sent else "", begins, head.end())


def _sender(found: re.Match[str], stamp: str, begins: int, end: int, of: str = "") -> Sender:
    full, address, name = (found[f"{of}{group}"] for group in ("full", "address", "name"))
    addressed = not name or found[f"{of}known"] is not None
    return Sender(_tidy(full) if full else address or name, stamp, begins, end, addressed)


def _tidy(name: str) -> str:
    """Return "Kim, Ana (Sales)" as "Ana Kim"."""
    name = re.sub(r"[ ]?\([^()]*\)", "", name).strip(" '\"") or name
    last, comma, first = name.partition(", ")
    return f"{first} {last}" if comma and "," not in first else name
