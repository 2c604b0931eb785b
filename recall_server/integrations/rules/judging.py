"""Judges whether a clause is worth keeping, and its type, by the cues of the tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from recall_server.domain.attributes import is_single_valued
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import MemoryType
from recall_server.integrations.rules.facts import Found, is_of
from recall_server.integrations.rules.language import Table, shape

SURE, UNSURE = 0.95, 0.8
_OWN_WORDS_MIN = 4
_FEW_WORDS = 4
_NEVER_KEPT = ("joke", "pep", "taken_back", "elided", "hypothetical", "quoted", "hedge")
_TOLD = frozenset(("decision", "preference", "procedure"))
_VERBS = frozenset(("state", "event", "plan", "rule", "must", "preference"))
_CUES = (*_VERBS, *_TOLD, "remember")


class Setting(NamedTuple):
    """The place of a clause. `named`: its speaker has a name. `rules`: the list is one of rules.
    `asked_for`: "Remember that …" stands before it. `technical`: what one has may be in code.
    """

    document: bool = False
    item: bool = False
    heading: bool = False
    antecedent: bool = False
    named: bool = False
    rules: bool = False
    asked_for: bool = False
    technical: bool = False


class Verdict(NamedTuple):
    """How sure it is (0 to 1) that a clause is worth keeping, and its type. `instructs`: it says
    what is to be done.
    """

    confidence: float
    type: MemoryType
    instructs: bool = False


def size(text: str, language: Table) -> int:
    """Return the length of a text in words; without blanks, three characters are two words."""
    words = len(shape("word").findall(text))
    return words if language.spaced else max(words, len(shape("sign").findall(text)) * 2 // 3)


def leans(text: str, language: Table) -> bool:
    """Return whether a clause refers to what another one names: "It is red", "in May I did it"."""
    if language.starts("words.pronoun", text):
        return True
    refers = language.search("words.refers", text)
    before = text[: refers.start()] if refers else ""
    known = names(before, language) or language.has("words.article", before)
    return refers is not None and not known


def names(text: str, language: Table) -> bool:
    """Return whether a text names a person, not only a day or a month."""
    times = {*language.data["weekdays"].split(), *language.data["months"].split()}
    words = (word.lower().rstrip("s") for word in shape("capital").findall(text))
    return not times.issuperset(words) or language.has("words.relation", text)


def has_verb(text: str, language: Table) -> bool:
    """Return whether a text has a verb of the tables, or says what is to be done."""
    return any(language.has(f"keep.{cue}", text) for cue in ("state", "event", "plan", "rule"))


def is_sentence(text: str, language: Table) -> bool:
    """Return whether a part of a sentence is long enough for one, and has a verb."""
    return has_verb(text, language) and size(text, language) >= _OWN_WORDS_MIN


def says_nothing(text: str, language: Table, setting: Setting) -> bool:
    """Return whether a clause asks, greets, supposes, guesses, quotes somebody or jokes."""
    greets = language.starts("drop.greeting", text) and size(text, language) <= _FEW_WORDS
    never = any(language.has(f"drop.{cue}", text) for cue in _NEVER_KEPT)
    if greets or never or shape("asks").search(text):
        return True
    if setting.item:
        return False
    talks = not setting.document
    cues = ("drop.chatter", *["drop.question"] * talks, *["words.you"] * setting.named)
    supposes = language.has("drop.condition", text) and not language.has("keep.rule", text)
    return (talks and supposes) or any(language.starts(cue, text) for cue in cues)


def judge(text: str, language: Table, found: Found | None, setting: Setting) -> Verdict | None:
    """Return the verdict on a clause for which `says_nothing` is False; None: it is not kept.

    A clause is kept if it states a fact of the tables or says what is to be done, decided or
    remembered; if it is an item of a list, or names something specific and says something of it.
    """
    passing = language.search("drop.passing", text)
    if passing and not (found or setting.document or setting.asked_for):
        rest = f"{text[: passing.start()]} {text[passing.end() :]}"
        times = (language.times, language.patterns["date"], language.patterns["weekday"])
        dated = any(pattern.search(rest) for pattern in times)
        if not (dated or (language.name != "de" and names(rest, language))):
            return None
    cues = {cue for cue in _CUES if language.has(f"keep.{cue}", text)}
    words, precise, verb = size(text, language), specifics(text, language), bool(cues & _VERBS)
    we, related = language.has("words.we", text), language.has("words.relation", text)
    wanted = found is None or found.fact.attribute == "wants"
    orders = wanted and language.starts("keep.order", text) is not None
    advises = orders and not (setting.rules or language.has("keep.request", text))
    below = setting.heading or setting.item or not setting.document
    letter = orders and not (below or language.has("keep.standing", text))
    short = words < 3 and setting.document and not (found or setting.item or setting.rules)
    if (advises and setting.named) or letter or short:
        return None  # Advice, a pep talk, "Please pay by 15 April.", or "No effect."
    must = "must" in cues and words > _FEW_WORDS and not (we or language.has("words.first", text))
    instructed = (
        any((setting.asked_for, setting.rules, must, "remember" in cues))
        or (orders and (verb or precise > 0))
        or ("decision" in cues and (we or precise > 0))
        or ("procedure" in cues and (precise > 0 or not setting.named))
        or (setting.document and not cues.isdisjoint(_TOLD))
    )
    listed = setting.item and setting.heading and setting.document
    if setting.antecedent or (leans(text, language) and not listed):
        named = precise > 0 or (related and not language.has("drop.judges", text))
        rests = verb if setting.document else named
        kept = setting.antecedent and (instructed or rests)
    else:
        says = setting.item or (words > 2 and _specific(text, language, setting, verb=verb))
        has = not setting.technical and language.has("keep.has", text)
        own = passing is None and (has or language.has("keep.self", text))
        kept = instructed or (words > 1 and says) or own
    if not (found or kept):
        return None
    type_ = _type(cues, found, orders=orders)
    if advises and setting.document:
        type_ = MemoryType.PROCEDURE
    elif setting.rules and type_ is MemoryType.FACT:
        type_ = MemoryType.PREFERENCE
    return Verdict(SURE if found or instructed else UNSURE, type_, orders)


def _specific(text: str, language: Table, setting: Setting, *, verb: bool) -> bool:
    """Return whether a clause says something of a name, a number, a time, a relative and so on."""
    precise, definite = specifics(text, language), bool(language.starts("words.definite", text))
    if setting.document and setting.heading:
        return precise > 0 or (verb and definite)
    vague = language.has("words.vague", text) and not definite
    judges = language.has("drop.judges", text) and not setting.document
    if precise < 2 and (vague or judges):
        return False
    if setting.document:
        return verb and (precise > 1 or names(text, language))
    speaks = language.has("words.we", text) or language.has("words.first", text)
    states = verb or (definite and not setting.named)
    said = (verb and language.has("words.relation", text)) or (precise > 0 and states)
    return said or (precise > 1 and speaks) or (precise > 2 and not setting.named)


def _type(cues: set[str], found: Found | None, *, orders: bool) -> MemoryType:
    if found and is_of("preferences", found):
        return MemoryType.PREFERENCE
    if "decision" in cues and not orders:
        return MemoryType.DECISION
    if "procedure" in cues and not found:
        return MemoryType.PROCEDURE
    prefers = "preference" in cues and (not found or is_of("habits", found))
    return MemoryType.PREFERENCE if orders or prefers else MemoryType.FACT


def specifics(text: str, language: Table) -> int:
    """Return the number of names, numbers, dates and identifiers in a clause."""
    found = len(shape("number").findall(text)) + len(shape("code").findall(text))
    data = language.data
    if not language.spaced:
        return found + len(shape("latin_word").findall(text)) + (size(text, language) >= 6)
    words = [word.lower() for word in shape("word").findall(text)]
    named = {*data["weekdays"].split(), *data["months"].split(), *data["numbers"].split()[1:]}
    found += sum(word in named or word.removesuffix("s") in named for word in words)
    found += language.times.search(text) is not None
    capitals = [word for word in shape("capital").findall(text) if word.lower() not in named]
    names = sum(not language.starts("words.first", word) for word in capitals)
    return found + (names if language.name != "de" else names >= 3)


def chosen(candidates: Iterable[Candidate], most: int) -> tuple[Candidate, ...]:
    """Return the surest candidates in the order of the text; of the same words the last, unless a
    value returns.
    """
    once: dict[tuple[str, int], Candidate] = {}
    values: dict[tuple[str, str], list[str]] = {}
    for one in candidates:
        said = list[str]()
        if one.fact and is_single_valued(one.fact.attribute):
            said = values.setdefault((one.fact.entity, one.fact.attribute), [])
            if said[-1:] != [one.fact.value]:
                said.append(one.fact.value)
        once[one.text, len(said)] = one
    ranked = sorted(once.values(), key=lambda one: -one.confidence)[:most]
    return tuple(sorted(ranked, key=lambda one: one.span.start))
