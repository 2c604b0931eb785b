"""Judges whether a clause is worth keeping, and its type, by points for the cues of the tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from recall_server.domain.attributes import is_single_valued
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import MemoryType
from recall_server.integrations.extraction.rules.facts import Found, is_of
from recall_server.integrations.extraction.rules.language import Table, shape, table

KEPT_FROM = 3.0
_EXPERIENCE_WORDS = 4
_WORDS_MIN = 2
_OWN_WORDS_MIN = 4
_GREETING_WORDS_MAX = 4
_NEVER_KEPT = ("joke", "pep", "taken_back", "elided", "hypothetical", "quoted", "hedge")
_INSTRUCTED = frozenset(("remember", "decision", "procedure", "must"))
_FACT, _SPECIFICS_MAX = 2, 2
_EVALUATIVE, _AWAY, _SHORT = -2, -1, -2


@dataclass(frozen=True)
class Setting:
    """The place of a clause. `named`: its speaker has a name. `rules`: the list is one of rules.
    `asked_for`: "Remember that …" stands before it.
    """

    document: bool = False
    item: bool = False
    heading: bool = False
    antecedent: bool = False
    named: bool = False
    rules: bool = False
    asked_for: bool = False


@dataclass(frozen=True)
class Verdict:
    """The points of a clause, and its type. `instructs`: it says what is to be done. `until`: it
    says in few words until when somebody does something.
    """

    points: float
    type: MemoryType
    instructs: bool = False
    until: bool = False

    @property
    def confidence(self) -> float:
        return round(min(0.95, 0.5 + 0.1 * self.points), 2)


def size(text: str, language: Table) -> int:
    """Return the length of a text in words; without blanks, three characters are two words."""
    words = len(shape("word").findall(text))
    return words if language.spaced else max(words, len(shape("sign").findall(text)) * 2 // 3)


def leans(text: str, language: Table) -> bool:
    """Return whether a clause refers to what another one names: "It is red", "last year I did it".

    "I rebooted it, please don't ask me again" still says what is wanted.
    """
    if language.starts("words.pronoun", text):
        return True
    refers = language.search("words.refers", text)
    wants = all(language.has(one, text) for one in ("words.first", "keep.request", "keep.standing"))
    return refers is not None and not wants and not _names(text[: refers.start()], language)


def _names(text: str, language: Table) -> bool:
    """Return whether a text names a person or a thing, not only a day or a month."""
    times = {*language.data["weekdays"].split(), *language.data["months"].split()}
    named = any(word.lower().rstrip("s") not in times for word in shape("capital").findall(text))
    return named or any(language.has(f"words.{one}", text) for one in ("relation", "article"))


def has_verb(text: str, language: Table) -> bool:
    """Return whether a text has a verb of the tables, or says what is to be done."""
    return any(language.has(f"keep.{cue}", text) for cue in ("state", "event", "plan", "rule"))


def is_sentence(text: str, language: Table) -> bool:
    """Return whether a part of a sentence is long enough for one, and has a verb."""
    return has_verb(text, language) and size(text, language) >= _OWN_WORDS_MIN


def is_whole(part: str, language: Table) -> bool:
    """Return whether a part of a sentence can be understood without the other parts."""
    vague = leans(part, language) or language.has("words.vague", part)
    return not vague and is_sentence(part, language)


def says_nothing(text: str, language: Table, setting: Setting) -> bool:
    """Return whether a clause asks, greets, supposes, guesses, quotes somebody or jokes."""
    words = size(text, language)
    if (
        shape("asks").search(text)
        or any(language.has(f"drop.{cue}", text) for cue in _NEVER_KEPT)
        or (language.spaced and words < _WORDS_MIN and not setting.item)
        or (language.starts("drop.greeting", text) and words <= _GREETING_WORDS_MAX)
    ):
        return True
    if setting.item:
        return False
    if language.starts("drop.chatter", text):
        return True
    if setting.document:
        return False
    supposes = language.has("drop.condition", text) and not language.has("keep.rule", text)
    starts = ["drop.question", *(["words.you"] if setting.named else [])]
    return supposes or any(language.starts(cue, text) for cue in starts)


def judge(text: str, language: Table, found: Found | None, setting: Setting) -> Verdict:
    """Return the points and the type of a clause for which `says_nothing` is False."""
    worth: dict[str, float] = table("common").data["points"]
    cues = {name for name in (*worth, "must") if language.has(f"keep.{name}", text)}
    speaks = language.has("words.first", text) or language.has("words.we", text)
    related = language.has("words.relation", text)
    words, precise = size(text, language), specifics(text, language)
    wanted = found is None or found.fact.attribute == "wants"
    # "No errors here." of somebody in a talk is no rule.
    denies = setting.named and language.starts("words.none", text)
    imperative = bool(language.starts("keep.order", text)) and wanted and not denies
    named = language.name != "de" and language.starts_with_name(text)
    sure = (precise or "must" in cues) and not speaks
    definite = sure and (named or language.starts("words.definite", text))
    points = sum(worth.get(name, 0.0) for name in cues) + min(_SPECIFICS_MAX, precise)
    points += _FACT * (found is not None) + _FACT * imperative
    points += KEPT_FROM * setting.asked_for
    points += sum((speaks, related, setting.item, bool(definite), "must" in cues))
    points += (2 if precise or setting.heading else 1) * setting.document
    until = bool(setting.named and precise and "plan" in cues and not speaks)
    points += until
    if language.has("drop.judges", text) and not found:
        points += _EVALUATIVE + min(1, precise)
    if leans(text, language):
        points += bool(precise) if setting.antecedent else 2 * _AWAY
    elif language.has("words.vague", text) and precise < _SPECIFICS_MAX:
        points += _AWAY * (not (found or setting.antecedent or definite))
    if words < (2 if setting.item else 3) and not found:
        points += _SHORT
    experienced = speaks and "event" in cues and words > _EXPERIENCE_WORDS
    instructed = cues & _INSTRUCTED or imperative
    if not (found or precise or setting.item or related or experienced or instructed):
        points += _AWAY
    type_ = _type(cues, found, imperative=imperative)
    requests = language.has("keep.request", text)
    if setting.rules:
        points += _FACT
        type_ = MemoryType.PREFERENCE if type_ is MemoryType.FACT else type_
    elif imperative and setting.named and not requests:
        points = 0.0  # Between people an order is advice or a pep talk, unless it is a request.
    elif imperative and setting.document and not requests:
        type_ = MemoryType.PROCEDURE
    return Verdict(points, type_, imperative, until and "state" not in cues)


def _type(cues: set[str], found: Found | None, *, imperative: bool) -> MemoryType:
    if found and is_of("preferences", found):
        return MemoryType.PREFERENCE
    if "decision" in cues and not imperative:
        return MemoryType.DECISION
    if "procedure" in cues and not found:
        return MemoryType.PROCEDURE
    prefers = "preference" in cues and (not found or is_of("habits", found))
    return MemoryType.PREFERENCE if imperative or prefers else MemoryType.FACT


def specifics(text: str, language: Table) -> int:
    """Return the number of names, numbers, dates and identifiers in a clause."""
    found = len(shape("number").findall(text)) + len(shape("code").findall(text))
    data = language.data
    if not language.spaced:
        return found + len(shape("latin_word").findall(text)) + (size(text, language) >= 6)
    words = [word.lower() for word in shape("word").findall(text)]
    named = {*data["weekdays"].split(), *data["months"].split(), *data["numbers"].split()}
    found += sum(word in named or word.rstrip("s") in named for word in words)
    found += language.times.search(text) is not None
    capitals = [word for word in shape("capital").findall(text) if word.lower() not in named]
    capitals = [word for word in capitals if not language.starts("words.first", word)]
    return found + (len(capitals) if language.name != "de" else len(capitals) >= 3)


def chosen(candidates: Iterable[Candidate | None], most: int) -> tuple[Candidate, ...]:
    """Return the surest candidates in order; of the same words the last, unless a value returns."""
    once: dict[tuple[str, int], Candidate] = {}
    values: dict[tuple[str, str], list[str]] = {}
    for one in filter(None, candidates):
        said = list[str]()
        if one.fact and is_single_valued(one.fact.attribute):
            said = values.setdefault((one.fact.entity, one.fact.attribute), [])
            if said[-1:] != [one.fact.value]:
                said.append(one.fact.value)
        once[one.text, len(said)] = one
    ranked = sorted(once.values(), key=lambda one: -one.confidence)[:most]
    return tuple(sorted(ranked, key=lambda one: one.span.start))
