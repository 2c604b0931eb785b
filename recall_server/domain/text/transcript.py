"""Cuts a text into turns that point back into it, with speaker and time.

Every non-blank character that is not a speaker's label, a date heading or the time of a caption is
in exactly one turn.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise, zip_longest
from typing import NamedTuple

from recall_server.domain.episode import Span, Turn, Utterance
from recall_server.domain.text.attribution import (
    DATE,
    ENDS_LETTER,
    FAREWELL,
    MAIL_DATE,
    MAIL_LEAD,
    MAIL_TITLES,
    MONTHS_OF_A_YEAR,
    entry_of,
    quote_depth,
    read_moment,
    sender_at,
)
from recall_server.domain.text.labels import (
    HEADING_CHARS_MAX,
    Line,
    classify,
    is_heading,
    is_key,
    is_session_with_agent,
    is_title,
    may_speak,
    prompted,
    session_of,
)
from recall_server.domain.text.speakers import STOPS, with_names, without_false_speakers

TURN_CHARS_MAX = 1_200
# Short turns are joined if a text has more turns than `TURNS_MIN`, plus one for each
# `CHARS_OF_A_TURN` characters.
TURNS_MIN = 200
CHARS_OF_A_TURN = 40
_DAY_CHARS_MAX = 40
# So many lines that begin with a day, in order, are entries of a diary or a log.
_ENTRIES_MIN = 3
_ENTRY_CHARS = 60
_BETWEEN_MAX = timedelta(days=366)
_AGO_MAX = timedelta(days=30 * 366)
_MUCH_LONGER = 5

_CUT = re.compile(r"[.!?…]['\")\]]*\s|\n")


class _Utterance(NamedTuple):
    """The words of one speaker, without the label, as a place in the text."""

    start: int
    end: int
    speaker: str | None
    session: str | None
    said_at: datetime | None


def parse_turns(text: str, occurred_at: datetime) -> tuple[Turn, ...]:
    """Return the turns of a text, in order. Prose without speakers gives a turn per paragraph, or
    per several paragraphs if they are very many and very short.
    """
    spoken = with_names(without_false_speakers(list(_lines(text)), text), text)
    lines = list(_with_quotes(spoken, text))
    # No turns yet: there may be very many paragraphs.
    said = [
        _Utterance(first, last, *one[2:])
        for one in _with_titles(list(_utterances(lines, text, occurred_at)), text)
        for first, last in _pieces(text, one.start, one.end)
    ]
    if len(said) > TURNS_MIN + len(text) // CHARS_OF_A_TURN:
        said = _joined(text, said)
    return tuple(Turn(n, Span(one.start, one.end), *one[2:]) for n, one in enumerate(said))


def _joined(text: str, said: Sequence[_Utterance]) -> list[_Utterance]:
    """Join neighbours with only white space between them to turns of up to `TURN_CHARS_MAX`
    characters: the overhead of a turn must not outweigh its words.
    """
    joined: list[_Utterance] = []
    begun = said[0]
    end = begun.end
    for one in said[1:]:
        if (
            one.end - begun.start > TURN_CHARS_MAX
            or one[2:] != begun[2:]
            or text[end : one.start].strip()
        ):
            joined.append(begun._replace(end=end))
            begun = one
        end = one.end
    return [*joined, begun._replace(end=end)]


def transcript(utterances: Sequence[Utterance]) -> tuple[str, tuple[Turn, ...]]:
    """Return utterances as one text of lines "Name: words", and its turns, which follow from the
    utterances, whatever their words look like. An utterance without a time gets that of the one
    before.
    """
    lines: list[str] = []
    turns: list[Turn] = []
    start, said_at = 0, None
    for one in utterances:
        label = f"{one.speaker}: "
        lines.append(label + one.words)
        said_at = one.said_at or said_at
        for first, last in _pieces(one.words, 0, len(one.words)):
            span = Span(start + len(label) + first, start + len(label) + last)
            turns.append(Turn(len(turns), span, one.speaker, None, said_at))
        start += len(lines[-1]) + 1
    return "\n".join(lines), tuple(turns)


def whole(text: str) -> tuple[Turn, ...]:
    """Return the turns of a text that is not parsed: as long as a turn may be, and without
    speakers.
    """
    pieces = _pieces(text, 0, len(text))
    return tuple(Turn(place, Span(*piece)) for place, piece in enumerate(pieces))


def _lines(text: str) -> Iterator[Line]:
    fences = [m.start() for m in re.finditer(r"^[ \t]{0,3}(?:```|~~~)", text, re.MULTILINE)]
    # A fence that is never closed must not hide the rest of a conversation.
    closed = set(fences[: len(fences) // 2 * 2])
    fenced = False
    with_agent = is_session_with_agent(text)
    start = head_end = 0
    while start < len(text):
        newline = text.find("\n", start)
        end = len(text) if newline < 0 else newline
        marks_fence = start in closed
        sender = None if fenced or start < head_end else sender_at(text, start)
        if sender and (sender.addressed or may_speak(sender.name, small=False)):
            head_end, end = sender.end, max(sender.begins, start)
            yield Line(start, end, end, sender.name, sender.stamp, says=True, of_mail=True)
            if end == start:
                # The head of the mail does not begin with its sender.
                continue
        elif fenced or marks_fence or start < head_end:
            # Inside a fence, a blank line ends no paragraph.
            yield Line(start, start, end, code=fenced or marks_fence)
        else:
            prompt = prompted(text, start, end) if with_agent else None
            yield prompt or classify(text, start, end)
        fenced ^= marks_fence
        start = end + 1


def _with_quotes(lines: Iterable[Line], text: str) -> Iterator[Line]:
    """Add labels where lines of a mail, or below a label, change in how often they are marked with
    ">": marked lines are the words of another.
    """
    # The labels of those who write, by how many ">" their lines have.
    known: dict[int, Line] = {}
    at = 0
    for line in lines:
        if line.name or line.heading:
            # "Ana wrote:" above marked lines says whose they are, and not who goes on below them.
            at = quote_depth(text, line.end) if line.of_mail else 0
            known = {marks: one for marks, one in known.items() if marks < at}
            if line.of_mail or line.above:
                known[at] = line
        elif known and not line.blank and (now := quote_depth(text, line.start)) != at:
            # Whom a second mail within a mail quotes is known up to its end only.
            known = {marks: one for marks, one in known.items() if marks <= max(now, 1)}
            at = now
            if by := known.get(now):
                line = line._replace(name=by.name, stamp=by.stamp, says=True)  # noqa: PLW2901
            else:
                yield Line(line.start, line.start, line.start, heading=True, blank=True)
        yield line


def _day_first(lines: Sequence[Line], occurred_at: datetime) -> bool | None:
    """Return whether the stamps of a text name the day before the month: one of them can be read in
    one way only, or is later than the text in the other; or all of them together follow each other
    in order, within a far shorter time. None if that is not certain.
    """
    stamps = dict.fromkeys(line.stamp for line in lines if line.stamp)
    read: dict[bool, list[datetime]] = {True: [], False: []}
    for date in filter(None, map(DATE.search, stamps)):
        if date["ab_by"] != "/":
            continue
        if max(int(date["a"]), int(date["b"])) > MONTHS_OF_A_YEAR:
            return int(date["a"]) > MONTHS_OF_A_YEAR
        may_be = []
        for day_first, moments in read.items():
            at = read_moment(date.string, occurred_at, day_first=day_first)
            may_be.append(at is not None and at <= occurred_at + timedelta(days=1))
            moments.extend([at] if at else [])
        if may_be[0] != may_be[1]:
            return may_be[0]
    took = {one: _took(moments) for one, moments in read.items()}
    shorter = min(took, key=lambda one: took[one])
    return shorter if took[shorter] * _MUCH_LONGER < took[not shorter] else None


def _took(moments: Sequence[datetime]) -> float:
    """Return the seconds from the first of the moments to the last; endless if out of order."""
    ordered = moments and moments == sorted(moments)
    return float((moments[-1] - moments[0]).total_seconds()) if ordered else math.inf


def _days_of_lines(lines: Sequence[Line], text: str, occurred_at: datetime) -> dict[int, datetime]:
    """Return the last day that a line such as "Monday, November 16th" names, by the start of the
    line, in a chat with times; and the day that a title above the first of them names.
    """
    found: dict[int, datetime] = {}
    first = next((line.start for line in lines if line.stamp), None)
    for line in lines if first is not None else ():
        said = text[line.start : line.end]
        if line.heading or line.name or line.blank or is_heading(said):
            continue
        titled = line.start < (first or 0) and len(said) <= HEADING_CHARS_MAX and DATE.search(said)
        dated = [said] if titled else []
        if len(said) <= _DAY_CHARS_MAX:
            years = (occurred_at.year - 1, occurred_at.year)
            without = [f"{said.rstrip(' -—–=*_')} {year}" for year in years]
            dated += filter(is_heading, without)
        for one in dated:
            at = read_moment(one, occurred_at)
            if at and at <= occurred_at + timedelta(days=1):
                found[line.start] = at
    return found


class _Entry(NamedTuple):
    """An entry of a diary or a log, or what stands below a heading in it, which has no `words`.

    `goes_on`: its first line does not stand alone; `further`: where its second paragraph starts.
    """

    start: int
    day: datetime | None = None
    words: str = ""
    goes_on: bool = False
    further: int | None = None

    @property
    def is_name(self) -> bool:
        """Whether it may be only a name beside a day."""
        if not self.words or self.goes_on or self.words.endswith(STOPS):
            return False
        return may_speak(self.words, small=False)


def _entries(lines: Sequence[Line], text: str, occurred_at: datetime) -> Iterator[_Entry]:
    """Yield the lines that begin with a day, and headings, with what stands below each."""
    one: _Entry | None = None
    for above, line in pairwise([Line(0, 0, 0, blank=True), *lines]):
        if line.heading or line.blank or line.code or text[line.start].isspace():
            continue
        head = text[line.start : min(line.end, line.start + _ENTRY_CHARS)]
        begun = entry_of(head, occurred_at)
        if begun or head.startswith("#"):
            if one:
                yield one
            one = _Entry(line.start, begun and begun.day, begun.words.strip() if begun else "")
        elif one and not above.blank:
            one = one._replace(goes_on=True)
        elif one and one.further is None:
            one = one._replace(further=line.start)
    if one:
        yield one


def _days_of_entries(
    lines: Sequence[Line], text: str, occurred_at: datetime
) -> dict[int, datetime | None]:
    """Return the days that the entries of a diary or a log begin with, by the start of their lines,
    and None where a line begins what was not said on the day above it. There are none if the days
    are out of order, to come, long ago or years apart, as those of history and birthdays, if most
    stand beside a name, or if somebody speaks.
    """
    if len(lines) < _ENTRIES_MIN or any(line.name for line in lines):
        return {}
    found = list(_entries(lines, text, occurred_at))
    days = [one.day for one in found if one.day]
    ordered = days in (sorted(days), sorted(days, reverse=True))
    past = all(timedelta(days=-1) <= occurred_at - day <= _AGO_MAX for day in days)
    near = all(abs(one - other) <= _BETWEEN_MAX for one, other in pairwise(days))
    names = sum(one.is_name for one in found)
    if len(days) < _ENTRIES_MIN or names * 2 >= len(days) or not (ordered and past and near):
        return {}
    begins: dict[int, datetime | None] = {one.start: one.day for one in found}
    *others, last = (one for one in found if one.words)
    if last.further is not None and not any(one.further for one in others):
        begins[last.further] = None  # No entry has a second paragraph: nor has the last one.
    return begins


def _utterances(lines: list[Line], text: str, occurred_at: datetime) -> Iterator[_Utterance]:
    """Join lines to utterances, with the date and session of the last heading above."""
    day_first = _day_first(lines, occurred_at)
    days = _days_of_lines(lines, text, occurred_at)
    entries = _days_of_entries(lines, text, occurred_at)
    session: str | None = None
    day: datetime | None = None
    speaker, said_at = None, day
    start = end = -1
    ends: re.Pattern[str] | None = None
    for line, below in zip_longest(lines, lines[1:]):
        entry = entries.get(line.start)
        day_begins = line.start in days or line.start in entries
        spoken = not line.blank and end > start >= 0
        left = spoken and ends and ends.match(text, line.start)
        closes = line.heading or line.name or day_begins or left or (line.blank and speaker is None)
        if closes and start >= 0:
            yield _Utterance(start, end, speaker, session, said_at)
            start = -1
        if left or line.heading or line.name:
            ends = line.ends
            speaker, said_at = None, day
        if line.heading:
            heading = "" if line.blank else text[line.start : line.end]
            day = read_moment(heading, day or occurred_at) if DATE.search(heading) else day
            session = session_of(heading) or session
            speaker, said_at = None, day
            if is_title(heading) or is_key(heading, below):
                start, end = line.start, line.end
        elif line.name:
            at = read_moment(line.stamp or "", day or occurred_at, day_first=day_first)
            speaker, said_at = line.name, at or day
            start, end = line.said_from, line.end
        elif not line.blank:
            start, end = (line.start if start < 0 else start), line.end
            if day_begins:
                speaker, said_at, day = None, entry, days.get(line.start) or entry
    if start >= 0:
        yield _Utterance(start, end, speaker, session, said_at)


def _with_titles(said: Sequence[_Utterance], text: str) -> Iterator[_Utterance]:
    """Join a paragraph that only names, addresses or greets to the next one, and the name at the
    end of a letter to the one before: alone, they answer no question.
    """
    firsts = (text[one.start : one.end].split("\n", maxsplit=1)[0] for one in said)
    letter = any(map(MAIL_LEAD.fullmatch, firsts))
    kept: _Utterance | None = None
    for place, one in enumerate(said):
        words = text[one.start : one.end]
        follows = said[place + 1] if place + 1 < len(said) else None
        # A longer turn is cut anyway.
        short = kept and kept.end - kept.start <= TURN_CHARS_MAX
        if kept and short and kept.speaker is None and one.speaker is None:
            between = text[kept.end : one.start]
            opens = MAIL_TITLES.fullmatch(text[kept.start : kept.end])
            joins = opens and (not between.strip() or MAIL_DATE.fullmatch(between))
            last = follows is None or ENDS_LETTER.match(text, follows.start, follows.end)
            if joins or (letter and last and not between.strip() and FAREWELL.fullmatch(words)):
                kept = one._replace(start=kept.start)
                continue
        if kept:
            yield kept
        kept = one
    if kept:
        yield kept


def _pieces(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut a long utterance at sentence ends, else at a space, else at the limit."""
    while start < end:
        while start < end and text[start].isspace():
            start += 1
        stop = min(end, start + TURN_CHARS_MAX)
        if stop < end:
            cuts = [m.end() for m in _CUT.finditer(text, start, stop)]
            space = text.rfind(" ", start, stop)
            stop = cuts[-1] if cuts else space + 1 if space > start else stop
        last = stop
        while last > start and text[last - 1].isspace():
            last -= 1
        if last > start:
            yield start, last
        start = stop


def turn_at(turns: Sequence[Turn], position: int) -> Turn | None:
    """Return the turn that contains this character of the text."""
    return next(iter(turns_at(turns, Span(position, position + 1))), None)


def turns_at(turns: Sequence[Turn], span: Span) -> Sequence[Turn]:
    """Return the turns that a span touches. `turns` must be in the order of the text."""
    first = bisect_right(turns, span.start, key=lambda one: one.span.end)
    last = bisect_left(turns, span.end, key=lambda one: one.span.start)
    return turns[first:last]
