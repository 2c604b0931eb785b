"""Tells labels that name a speaker from keys, settings and programmes that look like them, and
finds whom a label like "Speaker 1" or "AB" stands for.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, groupby, takewhile, zip_longest

from recall_server.domain.text.attribution import DATE, is_moment
from recall_server.domain.text.labels import (
    APART,
    ROLES,
    ROLES_OR_KEYS,
    SYSTEM,
    Line,
    has_no_case,
)

STOPS = (".", "!", "?", "…", "。", "！", "？", ".)")
_SPEECH_WORDS_MIN = 3
# One in so many of the labels that recur must have speech.
_KEYS_OF_SPEECH = 4
_KEYS_MIN = 3
# So many lines with a time may be all of a call.
_CLOCKED_MIN = 3
_DIGITS = re.compile(r"\d+")
_PARAGRAPH = re.compile(r"(?<=\n\n)|(?<=\n\r\n)")
# A rule with a name, "--- Notes ---": what is below it need not be of the same talk.
_RULE = r"[-=*_~]{2,}[ ][^\W_][^\n]{0,60}?[ ][-=*_~]{2,}[ \t]*(?=\n|$)"
_RULES = re.compile(rf"^{_RULE}", re.MULTILINE)
# A heading of minutes, "## Risks", or "2. Water" with a line of text below; and what all resolve.
_SECTION = re.compile(
    rf"(?:{_PARAGRAPH.pattern})(?:#{{1,6}}[ ]\S|\d{{1,2}}[.)][ ]+[^\W\d_][^\n]{{0,60}}\n[^\n\d])"
    r"|(?:resolved|agreed|next meeting"
    r"|beschlossen|beschluss|nächst(?:e|es) (?:sitzung|treffen)|acuerdo|próxima reunión|décision"
    rf"|prochaine réunion)[ ]?:|{_RULE}",
    re.IGNORECASE,
)
# A label that stands for a name, and where a text says for which: "Speaker 1: Ana Kim (host)" above
# all that is said, several of them on a line or below each other; or "Ana Kim (AK)" in a list. What
# is one word may be what somebody says, or is: "Speaker 1: Hello", "Speaker 2: Female".
_STANDS = (
    r"(?:(?i:speaker|person|participant|voice|sprecher(?:in)?|teilnehmer(?:in)?|hablante|persona"
    r"|locut(?:eur|rice)|personne)[ ]?[A-Za-z\d]{1,2}|[A-Z]{2,3})"
)
_NAMED = (
    r"(?:(?:Mr|Mrs|Ms|Dr|Sr|Sra|Mme)\.?[ ])?[^\W\d_a-z][\w.'’-]*(?:[ ][^\W\d_a-z][\w.'’-]*){1,3}"
)
_PAIR = re.compile(
    rf"(?P<label>{_STANDS})[ ]?[:=–][ ]*(?P<name>{_NAMED})(?:[ ]?\([^()\n]{{1,40}}\))?"
    r"(?:[ \t]*(?:[;,|/][ \t]*|[ \t]{2,})|[ \t\r]*(?=\n|$))"
)
_INITIALS = re.compile(
    rf"(?<![\w.'’-])(?P<name>{_NAMED})[ ]\((?P<label>[A-Z]{{2,3}})\)(?=[ \t]*(?:[,;|/\r\n]|$))"
)
_SETTING = re.compile(r"[ \t]*[\w-]{1,30}:[ \t]+\S+[ \t]*$", re.MULTILINE)
# Words by which somebody speaks of themselves, or to another.
_TALKS = re.compile(
    r"\b(?:i|i'm|im|i've|i'll|you|my|me|we|our|us|ich|du|mir|mein|wir|uns|yo|tú|mi|je|tu|moi|mon|nous)\b",
    re.IGNORECASE,
)
_CAPITAL = re.compile(r"\b[^\W\d_a-z]")
_INITIALS_MAX = 3


def without_false_speakers(lines: Sequence[Line], text: str) -> list[Line]:
    """Drop labels that name no speaker: a label counts if it is a role, has a time or repeats, or
    if every line has one. "王芳：" and "王芳: " count if every line from the first such one on has
    one, and one recurs after another.
    """
    labels = _Labels(_without_lists(lines, text), text)
    return [labels.judged(line) for line in labels.lines]


def with_names(lines: Sequence[Line], text: str) -> list[Line]:
    """Replace the labels that a legend at the beginning of a text explains by the names that they
    stand for, and drop the labels of the legend itself, which nobody says.
    """
    labels = {line.name for line in lines if line.name}
    if not labels:
        return list(lines)
    names = _certain(
        (one["label"], one["name"])
        for one in (_INITIALS.finditer(text) if any(map(str.isupper, labels)) else ())
        if one["label"] in labels and _are_initials(one["label"], one["name"])
    )
    legend, pairs = _legend(lines, text)
    if any(line.name in pairs for line in lines if line.start not in legend):
        names |= pairs
    else:
        legend = set()
    return [
        Line(line.start, line.start, line.end)
        if line.start in legend
        else line._replace(name=names.get(line.name or "", line.name))
        for line in lines
    ]


def _legend(lines: Sequence[Line], text: str) -> tuple[set[int], dict[str, str]]:
    """Return where the lines of the legend at the beginning of a text start, and the names that its
    labels stand for throughout. There is none with one name, or with a line just below it:
    "Speaker 1: Right" is what somebody says.
    """
    explained = [_pairs(line, text) for line in lines]
    begins = next((at for at, line in enumerate(lines) if line.name or explained[at]), 0)
    first = list(takewhile(bool, explained[begins:]))
    legend = lines[begins : begins + len(first)]
    pairs = list(chain(*first))
    several = len({name for _, name in pairs}) > 1
    if not several or text[legend[-1].end + 1 :].partition("\n")[0].strip():
        return set(), {}
    # A second call may have other speakers, and a legend of its own.
    below = groupby(explained[begins + len(first) :], bool)
    others = [list(chain(*group)) for explains, group in below if explains]
    known = _certain(chain(pairs, *(one for one in others if len(one) > 1)))
    certain = {label: name for label, name in pairs if known.get(label) == name}
    return {line.start for line in legend}, certain


def _certain(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return what each label stands for, without labels that stand for several names."""
    found: dict[str, set[str]] = {}
    for label, name in pairs:
        found.setdefault(label, set()).add(name)
    return {label: one for label, (one, *others) in found.items() if not others}


def _are_initials(label: str, name: str) -> bool:
    return "".join(_CAPITAL.findall(name)).endswith(label)  # "Dr. Ana Kim (AK)"


def _pairs(line: Line, text: str) -> list[tuple[str, str]]:
    """Return the labels that a line explains, with their names; none if it says anything else."""
    found: list[tuple[str, str]] = []
    at = line.start
    while at < line.end and (pair := _PAIR.match(text, at, line.end)):
        label, name = pair["label"], pair["name"]
        if label.isupper() and len(label) <= _INITIALS_MAX and not _are_initials(label, name):
            return []
        found.append((label, name))
        at = pair.end()
    return found if at == line.end else []


class _Labels:
    """All labels of a text together: what names a speaker is like the others that do."""

    def __init__(self, lines: Sequence[Line], text: str) -> None:
        self.lines, self.text = lines, text
        content = [line for line in lines if not (line.blank or line.heading)]
        labelled = [line for line in lines if line.name]
        self.speech = {x.start for x in labelled if x.above or _is_speech(text, x)}
        self.chat = _messages_below(content)
        self.exported = sum(line.timed for line in labelled)
        # "[21:14] <tess> hi"
        self.channel = any(x.says and x.stamp and text[x.said_from - 2] == ">" for x in labelled)
        self.rules = [rule.start() for rule in _RULES.finditer(text)]
        # Named rules part a text that begins with one.
        self.ruled = bool(self.rules) and all(self.rules[0] < x.start for x in labelled[:1])
        self.keyed = _are_keys(labelled, text) and (
            len({line.name for line in labelled}) == len(labelled) or _are_records(lines)
        )
        self.all_speak = (
            len(labelled) == len(content)
            and len(self.speech) * 2 >= len(labelled)
            and not self.keyed
        ) or (len(labelled) == len(content) and self._roles_recur(labelled))
        wide = [line for line in labelled if self.is_wide(line)]
        titles = next((at for at, line in enumerate(content) if line.name), 0)
        names = [line.name for line in wide]
        recurs = len({*names}) < len(list(groupby(names)))
        spoken = sum(line.start in self.speech for line in wide)
        recurs = recurs and spoken * _KEYS_OF_SPEECH >= len(wide)
        # "客户：…" alone is a key.
        self.wide_roles_speak = any(
            _is_role(x) and x.start in self.speech and x.name not in ROLES_OR_KEYS for x in wide
        )
        self.wide_speak = len(wide) == len(content) - titles and recurs
        self.plain = [line for line in labelled if self.is_plain(line)]
        # "09:00 Registration: coffee": in a programme, few things come twice.
        clocked = [x.name for x in self.plain if is_moment(x.stamp or "")]
        self.programme = len(clocked) > _CLOCKED_MIN and len({*clocked}) * 3 > len(clocked) * 2
        roles = [line for line in self.plain if _is_role(line)]
        # "Host: example.org" alone is a key.
        spoken = sum(line.start in self.speech for line in roles)
        keys = all((line.name or "").lower() in ROLES_OR_KEYS for line in roles)
        # So is "user: app" beside "port: 80".
        ended = any(text[x.start : x.end].rstrip().endswith(STOPS) for x in roles)
        settings = (not spoken or (keys and not ended)) and any(
            not (_is_role(line) or line.code) and _SETTING.match(text, line.start, line.end)
            for line in content
        )
        self.roles_speak = not settings and (not keys or spoken * 2 >= len(roles))
        self.times = Counter(line.name for line in labelled)
        again = {line.name for line in labelled if line.timed and self.times[line.name] > 1}
        self.chats = len(again) > 1
        self.alone = not roles
        self.names = self._names()

    def _roles_recur(self, labelled: Sequence[Line]) -> bool:
        """Return whether a role that is no key recurs, and says something."""
        roles = [x for x in labelled if _is_role(x) and str(x.name).lower() not in ROLES_OR_KEYS]
        return len({x.name for x in roles}) < len(roles) and any(
            line.start in self.speech for line in roles
        )

    def _names(self) -> set[str | None]:
        """Return the names that recur; and those that come once with no named rule between, if no
        role speaks: who has them must not be taken for the one who spoke before.
        """
        timed = {line.name for line in self.lines if line.timed and self.times[line.name] > 1}
        again = [line for line in self.plain if self.times[line.name] > 1]
        spoken = sum(line.start in self.speech for line in again)
        if self.keyed or spoken * _KEYS_OF_SPEECH < len(again):
            return timed  # "Port: 80" and "Port: 443" are settings.
        forms = {self._form(line) for line in again}
        parts = {bisect(self.rules, line.start) for line in again}
        once = [
            line
            for line in self.plain
            if line.start in self.speech
            and self._form(line) in forms
            and bisect(self.rules, line.start) in parts
        ]
        between = (
            {line.name for line in once} if self.alone and len(once) <= 2 * len(again) else set()
        )
        return timed | between | {line.name for line in again}

    def _form(self, line: Line) -> str:
        """Return how the name of a label is written, with its marks and its time."""
        return _DIGITS.sub("0", self.text[line.start : line.said_from].replace(str(line.name), ""))

    def is_wide(self, line: Line) -> bool:
        ends_wide = self.text[line.start : line.said_from].endswith("：")
        return ends_wide or (has_no_case(line.name or "") and not line.stamp and not line.says)

    def is_plain(self, line: Line) -> bool:
        """Return whether only its words tell that a label names a speaker."""
        return not (line.above or line.says or line.timed or line.unsure or self.is_wide(line))

    def speaks(self, line: Line) -> bool:
        if self.is_wide(line):
            return self.wide_speak or (_is_role(line) and self.wide_roles_speak)
        if line.above:
            return self.chat > 1 or (line.says and self.chat > 0)
        if line.name == SYSTEM and line.stamp:
            return self.exported > 0 or self.channel
        if self.programme and not line.timed and is_moment(line.stamp or ""):
            return line.says
        return line.unsure or line.says or self._is_named(line)

    def _is_named(self, line: Line) -> bool:
        contact = self.exported > 1 and DATE.search(line.stamp or "")
        if line.timed and (contact or self.chats or not str(line.name)[0].islower()):
            return True
        return line.name in self.names or self.all_speak or (_is_role(line) and self.roles_speak)

    def judged(self, line: Line) -> Line:
        """Return a line without its label if that names no speaker, else with what ends the words
        of a speaker who may have none below it.
        """
        if not line.name:
            return line
        if not self.speaks(line):
            return Line(line.start, line.start, line.end)
        lone = line.above and line.says and not line.stamp and self.chat == 1
        loose = self.alone and self.is_plain(line)
        ruled = _RULES if self.ruled else None
        return line._replace(ends=_PARAGRAPH if lone else _SECTION if loose else ruled)


def _is_role(line: Line) -> bool:
    return str(line.name).lower() in ROLES


def _is_apart(text: str, line: Line) -> bool:
    """Return whether only blanks or tabs are between the time, the name and the words."""
    label = APART.match(text, line.start)
    return label is not None and label.end() == line.said_from


def _without_lists(lines: Sequence[Line], text: str) -> Sequence[Line]:
    """Drop labels such as "<ana>" and "Ana –" unless every line has one and they recur, and half of
    those with a dash have sentences: "Carrots – 2" is an item of a list. With times, "20:11 健太",
    every line has one from the first on, and two of them recur; beside "ana: hi", most lines have
    a label, and some of these have an "I" or a "you".
    """
    # "9:00", "Maths" and "Hall 12" are of a timetable.
    apart = {
        line.start: _is_speech(text, line) for line in lines if line.name and _is_apart(text, line)
    }
    if sum(apart.values()) * _KEYS_OF_SPEECH < len(apart):
        lines = [Line(x.start, x.start, x.end) if x.start in apart else x for x in lines]
    content = [line for line in lines if not (line.blank or line.heading)]
    unsure = [line for line in content if line.unsure]
    if unsure and all(line.stamp for line in unsure):
        often = Counter(line.name for line in unsure).values()
        is_chat = sum(times > 1 for times in often) > 1
        if is_chat and content[content.index(unsure[0]) :] == unsure:
            return lines
    if unsure and all(":" in text[x.start : x.said_from] for x in unsure):
        # In a file of settings, nobody says "I" or "you".
        named = [line for line in content if line.name]
        talk = sum(_TALKS.search(text, line.said_from, line.end) is not None for line in named)
        recur = len({line.name for line in named}) < len(named)
        if recur and len(named) * 2 > len(content) and talk * _KEYS_OF_SPEECH >= len(named):
            return lines
    again = len({line.name for line in unsure}) < len(unsure)
    dashed = [
        text[x.start : x.end].rstrip() for x in unsure if "<" not in text[x.start : x.said_from]
    ]
    sentences = sum(line.endswith(STOPS) for line in dashed)
    if again and len(unsure) == len(content) and sentences * 2 >= len(dashed):
        return lines
    return [Line(x.start, x.start, x.end) if x.unsure else x for x in lines]


def _are_keys(labelled: Sequence[Line], text: str) -> bool:
    """Return whether none of several labels has a time, or a sentence with its end, as in a list of
    addresses, and no chat.
    """
    ends = (text[line.said_from : line.end].rstrip().endswith(STOPS) for line in labelled)
    return len(labelled) >= _KEYS_MIN and not any(line.stamp for line in labelled) and not any(ends)


def _are_records(lines: Sequence[Line]) -> bool:
    """Return whether the same labels, more than two, come once in each of several paragraphs, in
    the same order: "Hotel: …", "Price: …", "Beds: …".
    """
    parts = groupby(lines, lambda line: line.blank or line.heading)
    named = [tuple(line.name for line in part if line.name) for _, part in parts]
    found = Counter(filter(None, named))
    return [len(one) == len({*one}) >= _KEYS_MIN and found[one] > 1 for one in found] == [True]


def _messages_below(content: Sequence[Line]) -> int:
    """Return 2 if the labels above words are those of a chat, 1 if they may be of one message; 0 if
    too few have words below, as in a timetable.
    """
    above = [line.name for line in content if line.above]
    below = sum(
        one.above and other is not None and not other.name
        for one, other in zip_longest(content, content[1:])
    )
    return 0 if below * 3 < len(above) * 2 else 2 if len({*above}) < len(above) else 1


def _is_speech(text: str, line: Line) -> bool:
    """Return whether the words after a label are as long as speech, or a sentence."""
    words = text[line.said_from : line.end].strip()
    words = words or text[line.end : line.end + 200].strip().partition("\n")[0]
    counted = len(words[:200].split()) >= _SPEECH_WORDS_MIN
    return (
        counted or words.endswith(STOPS) or (has_no_case(words) and len(words) > _SPEECH_WORDS_MIN)
    )
