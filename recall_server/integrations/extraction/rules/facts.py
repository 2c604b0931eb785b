"""Finds the fact of a clause (entity, attribute, value) by the attribute table of a language."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from recall_server.domain.attributes import normal_attribute
from recall_server.domain.memory import Fact
from recall_server.integrations.extraction.rules.language import Table, common, table, times

_SUBJECT_WORDS_MAX, _PAIR_CHARS_MAX = 5, 80
_VALUE = (
    r"(?P<v>(?:[^,.;:!?()\n，。；、：！？]|\.(?=\w)|(?<=\d)\.(?= \w)|,(?=\d{3})){1,60}?)"
    r"(?=\s*(?:$|[;:!?()，。；、：！？]|,(?!\d{3})|(?<!\d)\.\s|\.$|[-–—](?:\s|$)|%s))"
)
# Before a value that begins with a number, a day or a month, at most three words before it.
_FIGURE = r"(?=%s(?:[€$£¥v]?\d|{months}|{weekday}|(?i:{number})))"
_WORDS, _SIGNS = r"(?:[^\W\d][\w'-]* ){0,3}", r"[^，。、\d]{0,3}"
_TITLE = r"(?:Dr|Dra|Prof|Mr|Mrs|Ms|Mme|Sr|Sra)\b\.?"
_NAME = (
    rf"(?P<v>(?:{_TITLE} )?(?!{_TITLE})[A-ZÀ-Þ][\w'’-]{{1,30}}(?: [A-ZÀ-Þ][\w'’-]{{1,30}}){{0,2}})"
)
_DIGIT = re.compile(r"\d")
_MY = re.compile(r"\b(?:my|me)\b", re.IGNORECASE)
_REST = re.compile(
    r"[,;] (?:and |und |y |et )?|(?: and| but| und| aber| y| pero| et| mais) |[，、；。]"
)


def _is(kind: str, attribute: str) -> bool:
    """Return whether an attribute is of a kind of the common table."""
    return attribute in common()["attributes"][kind].split()


@dataclass(frozen=True)
class Speaker:
    """The person or thing that an elided or first-person subject refers to."""

    entity: str
    shown: str


@dataclass(frozen=True)
class Found:
    """The fact of a clause, the value that it replaces according to the text, and its subject.
    `ended`: the text says that the value no longer holds.
    """

    fact: Fact
    replaces: str | None = None
    subject: str = ""
    ended: bool = False

    @property
    def is_habit(self) -> bool:
        return _is("habits", self.fact.attribute)

    def in_document(self, title: str) -> Found | None:
        """Return the fact of a thing that a document does not name as that of its title: two
        documents have two deadlines. Return None if it is one of many: "The price is 880".
        """
        if self.fact.entity != "team":
            return self
        if _is("of_parts", self.fact.attribute):
            return None
        entity = "team" if self.subject or not title else title
        return replace(self, fact=replace(self.fact, entity=entity))

    @property
    def is_preference(self) -> bool:
        name = self.fact.attribute
        return _is("preferences", name) or name.startswith(("favorite_", "preferred_"))

    @property
    def names_user(self) -> bool:
        return (self.fact.entity, self.fact.attribute) == ("user", "name")

    @property
    def is_ordered(self) -> bool:
        return _is("ordered", self.fact.attribute)


@dataclass(frozen=True)
class _Row:
    attribute: str
    pattern: re.Pattern[str]
    anchored: bool
    negated: bool


def load(name: str) -> None:
    """Compile the patterns of facts of a language."""
    _rows(name)
    _time(name)
    _plain(name)


@cache
def _rows(name: str) -> tuple[_Row, ...]:
    language = table(name)
    given = language.data["facts"]
    stop = rf" (?:{given['stop']})\b" if language.spaced else f"(?:{given['stop']})"
    holes = {
        "{v}": _VALUE % stop,
        "{w}": r"(?P<v>(?:[^,.;:!?()\n]|\.(?=\w)){1,60}?)",
        "{n}": _NAME if language.spaced else _VALUE % stop,
        "{o}": r"(?P<o>(?:[^,.;:!?()\n，。；、]|[.,](?=\d)|(?<=\d)\.(?= )){1,40}?)",
        "{k}": f"(?P<k>(?i:{'|'.join(words for _, words in given['things'])}))",
        "{d}": _FIGURE % (_WORDS if language.spaced else _SIGNS) + _VALUE % stop,
        "{p}": r"(?P<p>[^\W\d][\w -]{0,30}?)",
        "{months}": f"(?i:{language.data['months'].replace(' ', '|')})",
        "{weekday}": f"(?i:{language.data['weekdays'].replace(' ', '|')})",
        "{number}": f"(?:{language.data['numbers'].replace(' ', '|')})",
    }
    rows = []
    for attribute, row, *flags in given["rows"]:
        written = row
        for part, words in given["parts"].items():
            written = written.replace(f"{{{part}}}", words)
        anchored = written.startswith("{x}") and written[3:4] == " " and language.spaced
        pattern = written[4:] if anchored else written.replace("{x}", given["subject"])
        for hole, regex in holes.items():
            pattern = pattern.replace(hole, regex)
        compiled = re.compile(_numbered(pattern))
        rows.append(_Row(attribute, compiled, anchored, "not" in flags))
    return tuple(rows)


def _numbered(pattern: str) -> str:
    """Return a pattern in which each group has a name of its own: the second "o" is "o2"."""
    seen: Counter[str] = Counter()

    def own(match: re.Match[str]) -> str:
        seen[match[1]] += 1
        return f"(?P<{match[1]}{seen[match[1]] if seen[match[1]] > 1 else ''}>"

    return re.sub(r"\(\?P<(\w)>", own, pattern)


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
    found = _denied(said, _find(said, speaker, language), speaker, language)
    # "Love and acceptance" and "Enjoy the day" state nothing about the speaker.
    elided = language.name != "en" or language.starts("keep.elided", said)
    if found is None and elided and said[:1].isupper():
        said = said[:1].lower() + said[1:]
        found = _denied(said, _find(said, speaker, language), speaker, language)
    if found is None and language.name == "en" and said[:1].islower():
        # Many chats are in lower case: "plumber moved to friday".
        said = said[:1].upper() + said[1:]
        found = _denied(said, _find(said, speaker, language), speaker, language)
    return _instead(said, found, language)


def _instead(said: str, found: Found | None, language: Table) -> Found | None:
    """Return the value that holds of "I no longer live in Oslo but in Bari", in place of the one
    that ended.
    """
    if found is None or not (found.ended and found.fact.negated):
        return found
    rest = said.partition(found.fact.value)[2]
    match = re.match(language.data["rather"], rest)
    if match is None:
        return found
    fact = replace(found.fact, value=match["v"].strip(), negated=False)
    return replace(found, fact=fact, replaces=found.fact.value)


def _denied(said: str, found: Found | None, speaker: Speaker, language: Table) -> Found | None:
    """Return the fact of a clause, negated if the clause denies it: "I no longer work at Acme"."""
    if found and found.replaces:
        return found
    for written, positive, *flags in language.data["facts"]["denied"]:
        cue = re.search(written, said, re.IGNORECASE)
        if cue is None:
            continue
        cuts = [0, *(cut.end() for cut in _REST.finditer(said)), len(said)]
        first = max(cut for cut in cuts if cut <= cue.start())
        part = said[first : min(cut for cut in cuts if cut >= cue.end())]
        inside, ended = found is not None and found.fact.value in part, "ended" in flags
        if found and inside and found.fact.negated:
            return replace(found, ended=ended)
        held = said[: cue.start()] + cue.expand(positive) + said[cue.end() :]
        other = _find(held, speaker, language)
        if found and found == other and re.search(language.data["no_more"], said):
            return found  # "Ich wohne in Berlin, nicht mehr in Köln" denies the other value.
        if other is None or other.fact.value not in part:
            return None if inside else found
        if found is None or inside:
            fact = replace(other.fact, negated=not other.fact.negated)
            return Found(fact, None, other.subject, ended)
        same = ended and other.fact.attribute == found.fact.attribute
        return replace(found, replaces=other.fact.value) if same else found
    return found


def _find(said: str, speaker: Speaker, language: Table) -> Found | None:
    subject, _, _ = _plain(language.name)
    starts = [0, *(match.end() for match in _REST.finditer(said))][:6]
    for row in _rows(language.name):
        match = None if row.anchored else row.pattern.search(said)
        if match:
            return _found(row, match, "", speaker, language)
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
    whom = parts.get("x") or whom
    if not (whom or "k" in parts) and _of_another(match, language):
        return None
    attribute = row.attribute
    if "k" in parts:
        attribute = _key(parts["k"], "things", language) or attribute
    value = (parts.get("v") or "").strip(" \"'“”*_`").rstrip(".,")
    if not (_is("timed", attribute) or attribute.endswith("_date")):
        amount, value = value, _time(language.name).sub("", value)
        if "k" in parts and _DIGIT.search(amount) and not _DIGIT.search(value):
            # "The rent is due on the 25th" says when, not how much.
            return None
    if language.name == "en":
        value = _MY.sub(lambda match: "them" if match[0].lower() == "me" else "their", value)
    away = [language.starts(f"words.{cue}", value) for cue in ("pronoun", "subject", "you")]
    if any((not value, *away, language.starts("words.pronoun", whom))) or language.has(
        "words.vague", value
    ):
        return None
    if "p" in parts:
        attribute = normal_attribute(attribute.replace("{p}", parts["p"]))
    old = (parts.get("o") or "").strip()
    spoken = language.has("words.we", match[0]) and not language.has("words.first", match[0])
    shared = not whom and ("k" in parts or spoken)
    entity = "team" if shared else _entity(whom, speaker, language)
    return Found(Fact(entity, attribute, value, row.negated), old or None, whom)


def _of_another(match: re.Match[str], language: Table) -> bool:
    """Return whether a value that has no subject of its own is of somebody else, who is named
    before it, or meant by the verb: "Tiene nueve años."
    """
    third = language.data["facts"].get("third")
    if third and re.match(third, match[0].lstrip(), re.IGNORECASE):
        return True
    if language.spaced:
        return False
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
    attribute = _key(key.strip(), "keys", language)
    if attribute is None or len(value) > _PAIR_CHARS_MAX:
        return None
    shared = _is("of_things", attribute) and speaker.entity == "user"
    entity = "team" if shared else speaker.entity
    return Found(Fact(entity, attribute, value.strip(" *`.")))


def _key(word: str, names: str, language: Table) -> str | None:
    """Return the attribute that a word stands for, by a list of attributes and patterns."""
    rows = language.data["facts"][names]
    return next((one for one, words in rows if re.fullmatch(words, word, re.IGNORECASE)), None)


def corrected(found: Found, text: str, language: Table) -> Found:
    """Add the value that "X, not Y" or "X now, not Y any more" replaces."""
    text = plain(text, language)
    fact = found.fact
    if found.replaces or fact.negated:
        return found
    ended = re.search(language.data["no_more"], text)
    match = ended or re.search(language.data["instead"], text)
    if match is None:
        return found
    beside = text[: match.start()].endswith(fact.value) or fact.attribute.startswith("uses_for_")
    old = _time(language.name).sub("", match["o"]).strip()
    return replace(found, replaces=old) if ended or beside or not language.spaced else found
