"""Finds the fact of a clause (entity, attribute, value) by the attribute table of a language."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from recall_server.domain.attributes import normal_attribute
from recall_server.domain.memory import Fact
from recall_server.integrations.extraction.rules.language import Table, table, times

_SUBJECT_WORDS_MAX = 5
_VALUE = (
    r"(?P<v>(?:[^,.;:!?()\n，。；、：！？]|\.(?=\w)|,(?=\d{3})){1,60}?)"
    r"(?=\s*(?:$|[,;:!?()，。；、：！？]|\.(?:\s|$)|[-–—](?:\s|$)|%s))"
)
_TITLE = r"(?:Dr|Dra|Prof|Mr|Mrs|Ms|Mme|Sr|Sra)\b\.?"
_NAME = (
    rf"(?P<v>(?:{_TITLE} )?(?!{_TITLE})[A-ZÀ-Þ][\w'’-]{{1,30}}(?: [A-ZÀ-Þ][\w'’-]{{1,30}}){{0,2}})"
)
_PREFERENCES = frozenset(("likes", "prefers", "interested_in", "nickname", "pronouns", "wants"))
# Attributes whose values are times, or instructions that name one.
_TIMED = frozenset(("age", "always", "birthday", "deadline", "plans", "schedule", "wants"))
_MY = re.compile(r"\b(?:my|me)\b", re.IGNORECASE)
_REST = re.compile(r"[,;] (?:and |und |y |et )?|(?: and| but| und| aber| y| pero| et| mais) ")


@dataclass(frozen=True)
class Speaker:
    """The person or thing that an elided or first-person subject refers to."""

    entity: str
    shown: str


@dataclass(frozen=True)
class Found:
    """The fact of a clause, the value that it replaces according to the text, and its subject."""

    fact: Fact
    replaces: str | None = None
    subject: str = ""

    @property
    def is_habit(self) -> bool:
        return self.fact.attribute in {"always", "never"}

    @property
    def is_preference(self) -> bool:
        name = self.fact.attribute
        return name in _PREFERENCES or name.startswith(("favorite_", "preferred_"))


@dataclass(frozen=True)
class _Row:
    attribute: str
    pattern: re.Pattern[str]
    anchored: bool
    negated: bool
    literals: tuple[str, ...]

    def may_match(self, said: str) -> bool:
        """Return whether a clause has one of the row's words: a quick test before the pattern."""
        return not self.literals or any(word in said for word in self.literals)


@cache
def _rows(name: str) -> tuple[_Row, ...]:
    language = table(name)
    given = language.data["facts"]
    stop = rf" (?:{given['stop']})\b" if language.spaced else f"(?:{given['stop']})"
    holes = {
        "{v}": _VALUE % stop,
        "{w}": r"(?P<v>(?:[^,.;:!?()\n]|\.(?=\w)){1,60}?)",
        "{n}": _NAME if language.spaced else _VALUE % stop,
        "{o}": r"(?P<o>[^,.;:!?()\n，。；、]{1,40}?)",
        "{p}": r"(?P<p>[^\W\d][\w -]{0,30}?)",
        "{weekday}": f"(?i:{language.data['weekdays'].replace(' ', '|')})",
        "{number}": f"(?:{language.data['numbers'].replace(' ', '|')})",
    }
    rows = []
    for attribute, written, *flags in given["rows"]:
        anchored = written.startswith("{x}") and written[3:4] == " " and language.spaced
        pattern = written[4:] if anchored else written.replace("{x}", given["subject"])
        for hole, regex in holes.items():
            # A group has one name in a pattern: the second {o} of a row is "o2".
            for number in range(pattern.count(hole)):
                name = hole[1]
                named = regex.replace(f"<{name}>", f"<{name}{number + 1}>") if number else regex
                pattern = pattern.replace(hole, named, 1)
        compiled = re.compile(pattern)
        literals = _literals(written) if language.spaced else ()
        rows.append(_Row(attribute, compiled, anchored, "not" in flags, literals))
    return tuple(rows)


@cache
def _time(name: str) -> re.Pattern[str]:
    """Return the pattern of a time after a value; without blanks between words, also before it."""
    language = table(name)
    time = language.data["facts"]["time"]
    for hole in ("months", "weekdays", "numbers"):
        time = time.replace(f"{{{hole}}}", f"(?i:{language.data[hole].replace(' ', '|')})")
    if language.spaced:
        return re.compile(rf",?[ ](?:{time}|{times(name).pattern})(?!\w).*")
    return re.compile(
        rf"^(?:(?:{time}|{times(name).pattern})[はにのから、]*)+|(?:已经)?(?:{time})$"
    )


@cache
def _verbs(name: str) -> frozenset[str]:
    """Return the words that a clause without a subject may begin with."""
    return frozenset(word for row in _rows(name) for word in row.literals)


def _literals(written: str) -> tuple[str, ...]:
    """Return the words of a row: everything that it matches has at least one of them."""
    written = re.sub(r"\{\w+\}|\(\?P<\w+>|\[[^\]]*\]|\\\w", " ", written)
    found = re.findall(r"[^\W\d_]{2,}\??", written)
    return tuple(
        {word.rstrip("?") for word in found} | {word[:-2] for word in found if "?" in word}
    )


@cache
def _plain(
    name: str,
) -> tuple[re.Pattern[str], re.Pattern[str], tuple[tuple[re.Pattern[str], str], ...]]:
    language = table(name)
    subject = re.compile(language.data["facts"]["subject"])
    filler = re.compile(rf"(?<![\w'])(?:{language.data['filler']})(?![\w'])[ ]?", re.IGNORECASE)
    pairs = tuple(
        (re.compile(short, re.IGNORECASE), long) for short, long in language.data["contractions"]
    )
    return subject, filler, pairs


def plain(text: str, language: Table) -> str:
    """Return a clause without contractions and filler words, as the rows of the tables expect."""
    _, filler, pairs = _plain(language.name)
    text = text.replace("’", "'")
    for short, long in pairs:
        text = short.sub(long, text)
    return filler.sub("", text).strip() if language.spaced else text


@lru_cache(maxsize=64)
def find_fact(text: str, speaker: Speaker, language: Table) -> Found | None:
    """Return the fact that a clause states, if the table of its language has it."""
    said = plain(text, language)
    found = _find(said, speaker, language)
    elided = said[:1].isupper() and said.split(" ", 1)[0].lower() in _verbs(language.name)
    if language.name == "en":
        # "Love and acceptance" and "Enjoy the day" state nothing about the speaker.
        elided = elided and language.starts("keep.elided", said) is not None
    if found is None and elided:
        found = _find(said[:1].lower() + said[1:], speaker, language)
    return found


def _find(said: str, speaker: Speaker, language: Table) -> Found | None:
    subject, _, _ = _plain(language.name)
    starts = [0, *(match.end() for match in _REST.finditer(said))][:6]
    for row in _rows(language.name):
        if not row.anchored and row.may_match(said):
            match = row.pattern.search(said)
            if match:
                whom = match.groupdict().get("x") or ""
                return _found(row, match, whom, speaker, language)
    for start in starts:
        for whom, at in _subjects(said, start, subject):
            for row in _rows(language.name):
                match = row.pattern.match(said, at) if row.anchored else None
                if match and (whom or not start or language.has("words.first", said[:start])):
                    return _found(row, match, whom, speaker, language)
    return None


def _subjects(said: str, start: int, subject: re.Pattern[str]) -> list[tuple[str, int]]:
    """Return the subjects that a clause may begin with, each with the place after it."""
    ends, at = [], start
    for _ in range(_SUBJECT_WORDS_MAX):
        at = said.find(" ", at) + 1
        if at == 0:
            break
        if subject.fullmatch(said, start, at - 1):
            ends.append((said[start : at - 1], at))
    return [*ends, ("", start)]


def _found(
    row: _Row, match: re.Match[str], whom: str, speaker: Speaker, language: Table
) -> Found | None:
    parts = {name[0]: said for name, said in match.groupdict().items() if said}
    if not whom and not language.spaced and _of_another(match, language):
        return None
    value = (parts.get("v") or "").strip(" \"'“”*_`").rstrip(".")
    if row.attribute not in _TIMED:
        value = _time(language.name).sub("", value)
    first = value.split(" ")[0].lower()
    if language.name == "en":
        value = _MY.sub(lambda match: "them" if match[0].lower() == "me" else "their", value)
    if (
        not value
        or any(
            language.starts(cue, said)
            for cue, said in (
                ("words.pronoun", value),
                ("words.pronoun", whom),
                ("words.subject", value),
            )
        )
        or language.starts("words.you", first)
        or language.has("words.vague", value)
    ):
        return None
    attribute = row.attribute
    if "{p}" in attribute:
        if not parts.get("p"):
            attribute = attribute.removesuffix("_for_{p}").removesuffix("_{p}")
        attribute = normal_attribute(attribute.replace("{p}", parts.get("p") or ""))
    old = (parts.get("o") or "").strip()
    old = "" if language.starts("words.pronoun", old) else old
    return Found(
        Fact(_entity(whom, speaker, language), attribute, value, row.negated), old or None, whom
    )


def _of_another(match: re.Match[str], language: Table) -> bool:
    """Return whether somebody else is named before a value that has no subject of its own."""
    before = match.string[: match.start("v")]
    return language.has("words.relation", before) or language.has("words.person", before)


def _entity(whom: str, speaker: Speaker, language: Table) -> str:
    """Return the entity of a subject: "user", "team", "user's sister", a name, or a thing."""
    facts = language.data["facts"]
    whom = whom.strip(" ,")
    if not whom or re.fullmatch(facts["first"], whom, re.IGNORECASE):
        return speaker.entity
    if re.fullmatch(facts["we"], whom, re.IGNORECASE):
        return "team"
    owned = re.match(rf"(?:{facts['my']})(?: |$|(?=[^\x00-\u2fff]))", whom, re.IGNORECASE)
    if owned:
        name = re.search(r" (?P<name>[A-ZÀ-Þ]\w+)$", whom) if language.name != "de" else None
        thing = whom[owned.end() :]
        return name["name"] if name else f"{speaker.entity}'s {thing}" if thing else speaker.entity
    return re.sub(rf"^(?:{facts['the']}) ", "", whom, flags=re.IGNORECASE)


def of_pair(key: str, value: str, speaker: Speaker, language: Table) -> Found | None:
    """Return the fact of a `Key: value` line, if the table has its key."""
    for attribute, pattern in language.data["facts"]["keys"]:
        if re.fullmatch(pattern, key.strip(), re.IGNORECASE) and len(value) <= 80:
            return Found(Fact(speaker.entity, attribute, value.strip(" *`.")))
    return None


def corrected(found: Found, text: str, language: Table) -> Found:
    """Add the value that "X, not Y" replaces."""
    match = re.search(language.data["instead"], text)
    fact = found.fact
    if match is None or found.replaces:
        return found
    beside = text[: match.start()].endswith(fact.value) or fact.attribute.startswith("uses_for_")
    return replace(found, replaces=match["o"].strip()) if beside or not language.spaced else found
