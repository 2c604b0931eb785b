"""Cuts a text into turns that point back into it, with speaker and time.

Every non-blank character that is not a speaker's label, a date heading or the time of a caption is
in exactly one turn.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby, pairwise, zip_longest
from typing import NamedTuple

from recall_server.domain.episode import Span, Turn, Utterance
from recall_server.domain.text import mail
from recall_server.domain.text.messages import TOOL
from recall_server.domain.text.stamps import (
    DATE,
    MONTHS_OF_A_YEAR,
    is_moment,
    read_moment,
    without_moment,
)

TURN_CHARS_MAX = 1_200
SYSTEM = "system"
# Short turns are joined if a text has more turns than `TURNS_MIN`, plus one for each
# `CHARS_OF_A_TURN` characters.
TURNS_MIN = 200
CHARS_OF_A_TURN = 40
_HEADING_CHARS_MAX = 120
_HEADING_WORDS_MAX = 4
_LABEL_CHARS_MAX = 160
_DAY_CHARS_MAX = 40
_MUCH_LONGER = 5


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LEFTOVER = re.compile(r"[^\W_][^\s|()（）・]*")
_FILLER = _words(
    "on at the of date t mon tue wed thu fri sat sun gmt utc monday tuesday wednesday thursday"
    " friday saturday sunday montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag"
    " lunes martes miércoles jueves viernes sábado domingo lundi mardi mercredi jeudi vendredi"
    " samedi dimanche den el le de 日 月 火 水 木 金 土 祝"
)
_RELATIVE = _words("today yesterday um heute gestern a las hoy ayer à aujourd'hui hier")
_OCCASIONS = _words(
    "session conversation chat day log transcript meeting standup call notes diary journal entry"
    " part week dialogue thread interview"
)
_HEADING = re.compile(
    r"\s*(?:[-=*_~]{2,}|#{1,6}\s|date\s*:|session\b|(?:mon|tues|wednes|thurs|fri|satur"
    r"|sun)day,? |[^\W\d_]{4,10},? (?:(?:den|el|le) )?\d|\[?\(?\d|[A-Z][a-z]{2,8} \d)",
    re.IGNORECASE,
)
_SESSION = re.compile(
    r"\s*[-=*_~#]*\s*(?P<session>session[ _#-]{0,2}\w{1,12})\s*[-=*_~#:]*\s*", re.IGNORECASE
)

_WORD = r"[\w][\w.'’-]{0,30}"
_LABEL = re.compile(
    r"\s{0,8}(?:[-*>]\s{1,3})?"
    r"(?:\[(?P<before>[^\[\]\n]{3,40})\]\s{0,3}"
    # As a messenger exports a chat, "02.10.26, 18:03 - Ana: hi", and of a call: "00:12 Ana: hi".
    r"|(?P<since>\d{1,4}[./-]\d\d?[./-]\d{2,4},?\ \d\d?:\d\d(?::\d\d)?(?:\ ?[ap]m)?)\ [-–]\ "
    r"|(?P<clock>\d\d?:\d\d(?::\d\d)?(?:\ ?[ap]m)?)(?:\ [-–])?\ )?"
    r"(?P<stars>\*{2}|__)?"
    rf"(?P<name>(?P<handle>@)?{_WORD}(?:[ ]{_WORD}){{0,3}}|(?<=[ ][-–][ ])\+\d[\d ]{{6,18}}\d)"
    r"(?:\s{0,3}[(\[](?P<after>[^()\[\]\n]{3,40})[)\]])?"
    r"(?:(?:(?(stars)(?:\*{2}|__))\s?:|:(?(stars)(?:\*{2}|__)))(?=\s|$)|(?P<wide>：))"
)
# "02.10.26, 18:03 - Ana created this group": a line of the messenger itself.
_NOTICE = re.compile(
    r"\s{0,8}(?P<stamp>\d{1,4}[./-]\d\d?[./-]\d{2,4},?\ \d\d?:\d\d)[^\n]{0,6}?\ [-–]\ "
)
# In a chat with times, "[21:14] <tess> hi"; in captions, "<v Ana Kim>hi</v>".
_ANGLED = re.compile(
    r"\s{0,8}(?:\[?(?P<stamp>(?:[^\[\]<\n]{0,20}[ T])?\d\d?:\d\d(?::\d\d)?)\]?\s{1,3}|(?=<v[ .]))"
    rf"<(?P<voice>v(?:\.[\w.-]+)?[ ])?[@+%~&]?(?P<name>{_WORD}(?:[ ]{_WORD}){{0,3}})>\s?"
)
# The lines above the words of captions (WebVTT, SubRip): their number, and their times.
_CAPTION_TIMES = r"(?:\d\d?:)?\d\d?:\d\d[.,]\d{3} --> (?:\d\d?:)?\d\d?:\d\d[.,]\d{3}[^\n]*"
_CAPTION = re.compile(
    rf"[ \t\ufeff]*(?:{_CAPTION_TIMES}|\d\d:\d\d:\d\d|\d{{1,6}}[ \t\r]*(?=\n{_CAPTION_TIMES})"
    r"|WEBVTT(?:[ \t\r][^\n]*)?)(?![^\n])"
)
# The line above a message in a work chat: "Ana Kim  9:03 AM", "Ana — Today at 9:03", "[9:03] Ana".
_CLOCK = r"\d\d?:\d\d(?::\d\d)?(?:[ ]?[ap]\.?m\.?)?"
_ABOVE = re.compile(
    rf"\s{{0,8}}(?:\*\*)?(?P<name>@?{_WORD}(?:[ ]{_WORD}){{0,3}})(?:\*\*)?"
    r"(?:[ ]{1,4}|[ ]?[-–—,|·][ ]?)"
    rf"[\[(]?(?P<stamp>(?:[^\n:\]]{{0,30}}?[ ,])??{_CLOCK})[\])]?\s*",
    re.IGNORECASE,
)
_ABOVE_TIMED = re.compile(
    rf"\s{{0,8}}\[(?P<stamp>{_CLOCK})\][ ]{{1,4}}(?P<name>@?{_WORD}(?:[ ]{_WORD}){{0,3}})\s*",
    re.IGNORECASE,
)
# "<ana> hi" and "Ana – hi" are labels only if every line has one.
_UNSURE = re.compile(
    rf"\s{{0,8}}(?:<[@+%~&]?(?P<nick>{_WORD})>|(?P<name>{_WORD}(?:[ ]{_WORD}){{0,2}})[ ][-–—])"
    r"[ ]{1,4}(?=\S)"
)
# Above what is said in a copied session with an agent: "## User", "**Assistant**", "You said:".
_ROLE_ABOVE = re.compile(
    r"(?:#{1,6}[ ]+|\*\*|(?=[A-Za-z]{2,12} said:))"
    r"(?P<name>[A-Za-z]{2,12})(?P<said>[ ]said)?[ ]?:?(?:\*\*)?:?[ \t]*"
)
# Of a session with a coding agent in a terminal: what is asked, what it answers, and "⎿ what a tool
# returned" below that.
_PROMPT = re.compile(r"(?:(?P<user>[>❯›])|(?P<assistant>[●⏺✦•])|[ ]{1,4}⎿)[ \t\xa0]+(?=\S)")
_PROMPTS = re.compile(r"^[>❯›●⏺✦•](?=[ \t\xa0]+\S)", re.MULTILINE)
_ANSWERS = {prompt + answer for prompt in ">❯›" for answer in "●⏺✦"} | {"›•"}
_ROLES = _words(
    "user assistant human ai system agent bot model customer client operator me you chatgpt claude"
    " gpt gemini copilot cursor codex tool developer interviewer interviewee host guest"
)
_PARTICLES = _words("de del der di da du van von la le el al bin ben of the and")
_NOT_SPEAKERS = _words(
    "note notes todo fixme re fwd fw subject from to cc bcc date time step steps example examples"
    " warning tip hint summary question answer decision decisions goal goals action actions update"
    " updates ps fyi important remember reminder reason result results problem solution issue"
    " context background agenda title name email phone address language editor theme location"
    " status priority owner deadline due version type tags topic topics source sources usage input"
    " output returns raises args pros cons plan next caveat conclusion correction edit disclaimer"
    " http https ftp mailto file key value description requirements ingredients directions"
    " favourite favorite likes dislikes hobbies hobby preference preferences fact facts job age"
    " diet timezone budget database stack tools framework process procedure workflow"
    " error info debug warn fatal trace critical observation thought lesson who what when where why"
    " how which sent received my our mein meine unser unsere nuestro nuestra notre present absent"
    " asistentes"
)
_CUT = re.compile(r"[.!?…]['\")\]]*\s|\n")


class _Line(NamedTuple):
    """A line of the text: where it and its words begin, where it ends, and its label. `timed`: the
    label has a moment that only a label has. `above`: it is a line of its own, above the words.
    `says`: it says that somebody speaks; `of_mail`: that somebody writes a mail; `unsure`: it may
    be no label. A heading that is `blank` is that of a caption.
    """

    start: int
    said_from: int
    end: int
    name: str | None = None
    stamp: str | None = None
    heading: bool = False
    blank: bool = False
    timed: bool = False
    above: bool = False
    says: bool = False
    of_mail: bool = False
    unsure: bool = False


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
    lines = _without_false_speakers(list(_with_quotes(_lines(text), text)), text)
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


def _lines(text: str) -> Iterator[_Line]:
    fences = [m.start() for m in re.finditer(r"^[ \t]{0,3}```", text, re.MULTILINE)]
    # A fence that is never closed must not hide the rest of a conversation.
    closed = set(fences[: len(fences) // 2 * 2])
    fenced = False
    with_agent = _is_session_with_agent(text)
    start = head_end = 0
    while start < len(text):
        newline = text.find("\n", start)
        end = len(text) if newline < 0 else newline
        marks_fence = start in closed
        sender = None if fenced or start < head_end else mail.sender_at(text, start)
        if sender and _may_speak(sender.name, small=False):
            head_end, end = sender.end, max(sender.begins, start)
            yield _Line(start, end, end, sender.name, sender.stamp, says=True, of_mail=True)
            if end == start:
                # The head of the mail does not begin with its sender.
                continue
        elif fenced or marks_fence or start < head_end:
            # Inside a fence, a blank line ends no paragraph.
            yield _Line(start, start, end)
        elif with_agent and (prompt := _PROMPT.match(text, start)):
            yield _Line(start, prompt.end(), end, prompt.lastgroup or TOOL, says=True)
        else:
            yield _classify(text, start, end)
        fenced ^= marks_fence
        start = end + 1


def _is_session_with_agent(text: str) -> bool:
    """Return whether answers of an agent follow prompts, in the marks of a terminal, twice."""
    marks = (mark[0] for mark in _PROMPTS.finditer(text))
    return sum("".join(two) in _ANSWERS for two in pairwise(marks)) > 1


def _with_quotes(lines: Iterable[_Line], text: str) -> Iterator[_Line]:
    """Add labels where lines of a mail begin or cease to be marked with ">": those are another's
    words.
    """
    sender: _Line | None = None
    in_mail = is_marked = False
    for line in lines:
        if line.name or line.heading:
            in_mail, is_marked = line.of_mail, mail.QUOTED.match(text, line.end) is not None
            sender = sender if is_marked else line if in_mail else None
        elif in_mail and not line.blank and text.startswith(">", line.start) != is_marked:
            is_marked = not is_marked
            if is_marked or not sender:
                yield _Line(line.start, line.start, line.start, heading=True, blank=True)
            else:
                line = line._replace(name=sender.name, stamp=sender.stamp, says=True)  # noqa: PLW2901
        yield line


def _classify(text: str, start: int, end: int) -> _Line:
    line = text[start : min(end, start + _LABEL_CHARS_MAX)]
    if not line.strip():
        return _Line(start, start, end, blank=not text[start:end].strip())
    if end - start <= _HEADING_CHARS_MAX and _is_heading(line):
        return _Line(start, end, end, heading=True)
    if _CAPTION.match(text, start):
        return _Line(start, end, end, heading=True, blank=True)
    if above := _above(text, start, end):
        return above
    if label := _ANGLED.match(line):
        closed = len("</v>") if label["voice"] and text.endswith("</v>", start, end) else 0
        said = start + label.end()
        return _Line(start, said, end - closed, _name(label), label["stamp"], says=True)
    return _labelled(line, start, end)


def _labelled(line: str, start: int, end: int) -> _Line:
    """Return a line with the label that it begins with, if any."""
    label = _LABEL.match(line)
    # In a chat with times a name may be in lower case: "[10:02] tess: hi".
    before = label and (label["before"] or label["since"] or label["clock"])
    timed = bool(before) and is_moment(before or "")
    if label and label["clock"] and not _may_speak(label["name"], small=False):
        return _Line(start, start, end)
    if label and (label["handle"] or label["wide"] or _may_speak(label["name"], small=timed)):
        stamp = before or label["after"]
        if before and not timed:
            return _Line(start, start, end)
        marked = bool(stamp) and not label["clock"] and is_moment(stamp)
        return _Line(start, start + label.end(), end, _name(label), stamp, timed=marked)
    if notice := _NOTICE.match(line):
        return _Line(start, start + notice.end(), end, SYSTEM, notice["stamp"])
    label = _UNSURE.match(line)
    if label and (label["nick"] or _may_speak(label["name"], small=False)):
        name = label["nick"] or label["name"]
        return _Line(start, start + label.end(), end, name, unsure=True)
    return _Line(start, start, end)


def _above(text: str, start: int, end: int) -> _Line | None:
    """Return the line as a label above the words of a speaker; None if it is none."""
    label = _ROLE_ABOVE.fullmatch(text, start, end)
    if label and label["name"].lower() in _ROLES:
        return _Line(start, end, end, _name(label), above=True, says=bool(label["said"]))
    label = mail.SAYS_BELOW.fullmatch(text, start, end)
    if label and _may_speak(label["name"], small=True):
        return _Line(start, end, end, _name(label), label["stamp"], above=True, says=True)
    label = _ABOVE.fullmatch(text, start, end) or _ABOVE_TIMED.fullmatch(text, start, end)
    if label and _stands_above(label):
        dated = DATE.search(label["stamp"]) is not None
        return _Line(start, end, end, _name(label), label["stamp"], above=True, says=dated)
    return None


def _name(label: re.Match[str]) -> str:
    """Return the speaker that a label names; "You" is the user of a session with an agent."""
    name = " ".join(label["name"].removeprefix("@").split())
    return "User" if name == "You" else name


def _is_heading(line: str) -> bool:
    if _SESSION.fullmatch(line):
        return True
    if not _HEADING.match(line) or not DATE.search(line):
        return False
    rest = without_moment(line)
    words = [word for word in _LEFTOVER.findall(rest) if word.lower().strip(":,") not in _FILLER]
    if words and not re.match(r"\s*(?:[-=*_~#]|date\b|session\b)", line, re.IGNORECASE):
        return False
    # A heading names what follows; "# Moved to Porto, 8 May 2023" is content and is kept.
    named = any(word.lower().rstrip("_0123456789") in _OCCASIONS for word in words)
    return len(words) <= (_HEADING_WORDS_MAX if named else 1)


def _is_title(heading: str) -> bool:
    """Return whether a date heading also names what follows, such as "## 1.2.0 (2 May 2026)"."""
    words = (_session_of(heading) or "").lower().split()
    names = [word for word in words if word not in _OCCASIONS and not word.strip("()#").isdigit()]
    return heading.lstrip().startswith("#") and bool(names) and not _OCCASIONS & {*words}


def _is_key(heading: str, below: _Line | None) -> bool:
    """Return whether a date heading is one of several keys with values: "Date: 2 May 2026" above
    "Place: Ludlow" may be the day of what the text is about.
    """
    goes_on = below is not None and not (below.blank or below.heading or below.name)
    return goes_on and mail.DATE_LINE.fullmatch(heading) is not None


def _stands_above(label: re.Match[str]) -> bool:
    """Return whether a line is a name and a moment, and nothing else."""
    rest = without_moment(label["stamp"])
    words = [word.lower().strip(",.") for word in _LEFTOVER.findall(rest)]
    name = label["name"].lower().split()
    return not (
        any(word not in _FILLER | _RELATIVE for word in words)
        or any(word in _FILLER | _RELATIVE | _NOT_SPEAKERS for word in name)
    )


def _may_speak(name: str, *, small: bool) -> bool:
    words = name.split()
    if name.lower() in _ROLES or words[0].lower() in _ROLES:
        return True
    if words[0].lower() in _NOT_SPEAKERS:
        return False
    if small and len(words) == 1:
        return True
    if not words[0][0].isupper():
        return name.startswith("+") or _has_no_case(name)  # of a phone
    return all(w[0].isupper() or w[0].isdigit() or w.lower() in _PARTICLES for w in words[1:])


def _has_no_case(name: str) -> bool:
    """Return whether a name is in a script without capitals, as Chinese, Korean or Arabic."""
    return name[:1].isalpha() and name.lower() == name.upper()


def _without_false_speakers(lines: list[_Line], text: str) -> list[_Line]:
    """Drop labels that name no speaker: a label counts if it is a role, has a time or repeats, or
    if every line has one. "王芳：" and "王芳: " count if every line from the first such one on has
    one, and one recurs after another.
    """

    def is_wide(line: _Line) -> bool:
        ends_wide = text[line.start : line.said_from].endswith("：")
        return ends_wide or (_has_no_case(line.name or "") and not line.stamp and not line.says)

    content = [line for line in lines if not line.blank and not line.heading]
    unsure = [line.name for line in content if line.unsure]
    if len(unsure) < len(content) or len(unsure) == len({*unsure}):
        lines = [_Line(x.start, x.start, x.end) if x.unsure else x for x in lines]
    labelled = [line for line in lines if line.name]
    times = Counter(line.name for line in labelled)
    spoken = sum(len(text[x.said_from : x.said_from + 200].split()) >= 3 for x in labelled)
    wide = [line.name for line in labelled if is_wide(line)]
    voices = [name for name, _ in groupby(wide)]
    titles = next((at for at, line in enumerate(content) if line.name), 0)
    wide_speak = len(wide) == len(content) - titles and len({*voices}) < len(voices)
    above = [line.name for line in labelled if line.above]
    exported = any(line.timed for line in labelled)
    # In a timetable, nothing comes twice.
    chat = len(set(above)) < len(above)
    all_speak = len(labelled) == len(content) and spoken * 2 >= len(labelled)

    def speaks(line: _Line) -> bool:
        name = line.name or ""
        if is_wide(line):
            return wide_speak
        if line.above:
            return chat or line.says
        if line.name == SYSTEM and line.stamp:
            return exported
        if line.unsure:
            return True
        timed = line.timed and not name[0].islower()
        return line.says or timed or name.lower() in _ROLES or times[name] > 1 or all_speak

    return [x if not x.name or speaks(x) else _Line(x.start, x.start, x.end) for x in lines]


def _day_first(lines: Sequence[_Line], occurred_at: datetime) -> bool | None:
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


def _days_of_lines(lines: Sequence[_Line], text: str, occurred_at: datetime) -> dict[int, datetime]:
    """Return the last day that a line such as "Monday, November 16th" names, by the start of the
    line, in a chat with times; and the day that a title above the first of them names.
    """
    found: dict[int, datetime] = {}
    first = next((line.start for line in lines if line.stamp), None)
    for line in lines if first is not None else ():
        said = text[line.start : line.end]
        if line.heading or line.name or line.blank or _is_heading(said):
            continue
        titled = line.start < (first or 0) and len(said) <= _HEADING_CHARS_MAX and DATE.search(said)
        dated = [said] if titled else []
        if len(said) <= _DAY_CHARS_MAX:
            years = (occurred_at.year - 1, occurred_at.year)
            without = [f"{said.rstrip(' -—–=*_')} {year}" for year in years]
            dated += filter(_is_heading, without)
        for one in dated:
            at = read_moment(one, occurred_at)
            if at and at <= occurred_at + timedelta(days=1):
                found[line.start] = at
    return found


def _utterances(lines: list[_Line], text: str, occurred_at: datetime) -> Iterator[_Utterance]:
    """Join lines to utterances, with the date and session of the last heading above."""
    day_first = _day_first(lines, occurred_at)
    days = _days_of_lines(lines, text, occurred_at)
    session: str | None = None
    day: datetime | None = None
    speaker, said_at = None, day
    start = end = -1
    for line, below in zip_longest(lines, lines[1:]):
        began = days.get(line.start)
        closes = line.heading or line.name or began or (line.blank and speaker is None)
        if closes and start >= 0:
            yield _Utterance(start, end, speaker, session, said_at)
            start = -1
        if line.heading:
            heading = "" if line.blank else text[line.start : line.end]
            day = read_moment(heading, day or occurred_at) if DATE.search(heading) else day
            session = _session_of(heading) or session
            speaker, said_at = None, day
            if _is_title(heading) or _is_key(heading, below):
                start, end = line.start, line.end
        elif line.name:
            at = read_moment(line.stamp or "", day or occurred_at, day_first=day_first)
            speaker, said_at = line.name, at or day
            start, end = line.said_from, line.end
        elif not line.blank:
            start, end = (line.start if start < 0 else start), line.end
            if began:
                speaker, said_at, day = None, None, began
    if start >= 0:
        yield _Utterance(start, end, speaker, session, said_at)


def _with_titles(said: Sequence[_Utterance], text: str) -> Iterator[_Utterance]:
    """Join a paragraph that only names, addresses or greets to the next one, and the name at the
    end of a letter to the one before: alone, they answer no question.
    """
    firsts = (text[one.start : one.end].split("\n", maxsplit=1)[0] for one in said)
    letter = any(map(mail.LEAD.fullmatch, firsts))
    kept: _Utterance | None = None
    for place, one in enumerate(said):
        words = text[one.start : one.end]
        follows = said[place + 1] if place + 1 < len(said) else None
        if kept and kept.speaker is None and one.speaker is None:
            between = text[kept.end : one.start]
            opens = mail.TITLES.fullmatch(text[kept.start : kept.end])
            joins = opens and (not between.strip() or mail.DATE_LINE.fullmatch(between))
            last = follows is None or mail.ENDS_LETTER.match(text, follows.start, follows.end)
            if joins or (
                letter and last and not between.strip() and mail.FAREWELL.fullmatch(words)
            ):
                kept = one._replace(start=kept.start)
                continue
        if kept:
            yield kept
        kept = one
    if kept:
        yield kept


def _session_of(heading: str) -> str | None:
    rest = without_moment(heading)
    words = [word.strip(":,-=") for word in _LEFTOVER.findall(rest)]
    kept = [word for word in words if word and word.lower() not in _FILLER]
    return " ".join(kept) or None


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
