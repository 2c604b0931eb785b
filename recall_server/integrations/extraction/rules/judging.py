"""Judges whether a clause is worth keeping, and its type, by points for the cues of the tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from recall_server.domain.attributes import (
    is_single_valued,
    normal_attribute,
    normal_entity,
    normal_value,
)
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import MemoryType
from recall_server.integrations.extraction.rules.facts import Found
from recall_server.integrations.extraction.rules.language import Table, common, times

KEPT_FROM = 3.0
_TASK_WORDS = 8
_WORDS_MIN = 2
_OWN_WORDS_MIN = 4
_GREETING_WORDS_MAX = 4
_NEVER_KEPT = ("joke", "pep", "taken_back", "elided")
_UNSURE = ("hypothetical", "quoted", "hedge")
_INSTRUCTED = frozenset(("remember", "decision", "procedure", "must"))
_FACT, _FIRST, _SPECIFIC, _SPECIFICS_MAX = 2.0, 1.0, 1.0, 2
_EVALUATIVE, _POINTS_AWAY, _SHORT = -2.0, -1.0, -2.0
_CODE = re.compile(
    r"`[^`\n]{1,80}`|(?<!\w)[#@/]\w[\w./-]*|\b\w+[._/@]\w[\w./@-]*|\b[A-Z]{2,}\b|\b[a-z]+[A-Z]\w+"
    r"|\b(?=\w*\d)\w*[A-Za-z]\w*[\w-]*"
)
_QUOTED = re.compile(r"[\"“„«「][^\"”“»」]{1,400}[\"”“»」]|\([^()]{1,400}\)")
_NUMBER = re.compile(
    r"\d+(?:[.,:]\d+)*|[€$£¥%]|[〇一二三四五六七八九十百千]{1,6}[万萬亿億]|[〇一二三四五六七八九十百千万]{1,6}(?=[个個人只匹年月日号時时点分岁歳天次元円块本台层階楼套间])"
)
_CAPITAL = re.compile(r"(?<=[\w,;:’')] )[A-ZÀ-Þ][\w’'-]+")
_LATIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9.+#-]{1,}")
_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_UNSPACED_WORD = re.compile(r"[㐀-鿿ぁ-ヿ]")


@dataclass(frozen=True)
class Setting:
    """The place of a clause: in a document, in a list, under a heading, after its antecedent.
    `named`: its speaker has a name.
    """

    document: bool = False
    item: bool = False
    heading: bool = False
    antecedent: bool = False
    named: bool = False


@dataclass(frozen=True)
class Verdict:
    """The points of a clause, and its type. `instructs`: it tells somebody what to do. `task`: it
    says until when somebody does something.
    """

    points: float
    type: MemoryType
    instructs: bool = False
    task: bool = False

    @property
    def kept(self) -> bool:
        return self.points >= KEPT_FROM

    @property
    def confidence(self) -> float:
        return round(min(0.95, 0.5 + 0.1 * self.points), 2)


def size(text: str, language: Table) -> int:
    """Return the length of a text in words. In a language without blanks, three characters count as
    two words.
    """
    words = len(_WORD.findall(text))
    return words if language.spaced else max(words, len(_UNSPACED_WORD.findall(text)) * 2 // 3)


def is_whole(part: str, language: Table) -> bool:
    """Return whether a part of a sentence can be understood without the other parts."""
    leans = language.starts("words.pronoun", part) or language.has("words.vague", part)
    return not leans and size(part, language) >= _OWN_WORDS_MIN


def says_nothing(text: str, language: Table, setting: Setting) -> bool:
    """Return whether a clause asks, greets, supposes, guesses, quotes somebody or jokes."""
    words, aside = size(text, language), _QUOTED.match(text)
    if (
        text.rstrip("\"'”»)*_ ").endswith(("?", "？"))
        or any(language.has(f"drop.{cue}", text) for cue in _NEVER_KEPT)
        or (language.spaced and words < _WORDS_MIN and not setting.item)
        or (aside and len(aside[0]) * 2 > len(text))
    ):
        return True
    greets = language.starts("drop.greeting", text) and words <= _GREETING_WORDS_MAX
    if greets and not setting.item:
        return True
    if setting.item or setting.document:
        unsure = any(language.has(f"drop.{cue}", text) for cue in _UNSURE)
        return unsure and not language.starts("keep.order", text)
    rule = language.has("keep.rule", text) or language.has("keep.remember", text)
    return bool(
        (setting.named and language.starts("words.you", text))
        or (language.starts("drop.question", text) and not text.endswith("!"))
        or any(language.has(f"drop.{cue}", text) for cue in _UNSURE)
        or (language.has("drop.condition", text) and not rule)
        or language.starts("drop.chatter", text)
    )


def judge(text: str, language: Table, found: Found | None, setting: Setting) -> Verdict:
    """Return the points and the type of a clause for which `says_nothing` is False."""
    worth: dict[str, float] = common()["points"]
    cues = {name for name in (*worth, "must", "habit") if language.has(f"keep.{name}", text)}
    first, we, related, you = (
        language.has(f"words.{cue}", text) for cue in ("first", "we", "relation", "you")
    )
    speaks = first or we
    words, precise = size(text, language), specifics(text, language)
    wanted = found is None or found.fact.attribute == "wants"
    imperative = bool(language.starts("keep.order", text)) and wanted
    # "No errors here." of somebody in a talk is no rule.
    imperative = imperative and not (setting.named and language.starts("words.none", text))
    custom = speaks and "habit" in cues
    due = precise and not speaks and language.has("keep.due", text) and words <= _TASK_WORDS
    points = sum(worth.get(name, 0.0) for name in cues)
    points += _FACT * (found is not None) + _FIRST * speaks + _FIRST * related
    points += _SPECIFIC * min(_SPECIFICS_MAX, precise) + _FIRST * setting.item
    points += (2.0 if precise or setting.heading else 1.0) * setting.document
    points += _FIRST * (due and setting.named) + _FIRST * ("must" in cues or custom)
    definite = (precise or "must" in cues) and not speaks and _is_definite(text, language)
    points += _FIRST * bool(definite)
    points += _FACT * (imperative and bool(precise or "rule" in cues or setting.item))
    if language.has("drop.judges", text) and not (found and wanted):
        points += _EVALUATIVE + min(_FIRST, precise)
    if language.starts("words.pronoun", text):
        points += _FIRST * bool(precise) if setting.antecedent else 2 * _POINTS_AWAY
    elif (
        language.has("words.vague", text)
        and precise < _SPECIFICS_MAX
        and not (found or setting.antecedent or definite)
    ):
        points += _POINTS_AWAY
    if words < (2 if setting.item else 3) and not found:
        points += _SHORT
    experienced = speaks and "event" in cues and words > 4
    anchored = found or precise or setting.item or related or experienced or imperative
    if not (anchored or cues & _INSTRUCTED or (custom and we)):
        points += _POINTS_AWAY
    if you and not (imperative or "rule" in cues or found or setting.document):
        points += _POINTS_AWAY * (1 if precise else 2)
    own = bool(speaks or language.starts("keep.elided", text))
    type_ = _type(cues, found, imperative=imperative, first=own)
    return Verdict(points, type_, imperative, task=bool(due) and "state" not in cues)


def _type(cues: set[str], found: Found | None, *, imperative: bool, first: bool) -> MemoryType:
    if found and found.is_preference:
        return MemoryType.PREFERENCE
    if "decision" in cues and not imperative:
        return MemoryType.DECISION
    if "procedure" in cues and not found:
        return MemoryType.PROCEDURE
    if imperative or ("preference" in cues and (not found or found.is_habit)):
        return MemoryType.PREFERENCE
    return MemoryType.PROCEDURE if "must" in cues and not first else MemoryType.FACT


def _is_definite(text: str, language: Table) -> bool:
    """Return whether a clause begins with a name or a definite thing."""
    if language.starts("words.definite", text):
        return True
    first = text.split(" ", 1)[0]
    return language.name != "de" and first[:1].isupper() and not language.is_common(first)


def specifics(text: str, language: Table, *, names: bool = True) -> int:
    """Return the number of names, numbers, dates and identifiers in a clause."""
    found = len(_NUMBER.findall(text)) + (len(_CODE.findall(text)) if names else 0)
    data = language.data
    if not language.spaced:
        latin = len(_LATIN_WORD.findall(text)) + (size(text, language) >= 6)
        return found + latin if names else found
    words = [word.lower() for word in _WORD.findall(text)]
    named = {*data["weekdays"].split(), *data["months"].split(), *data["numbers"].split()}
    found += sum(word in named or word.rstrip("s") in named for word in words)
    found += times(language.name).search(text) is not None
    if not names:
        return found
    capitals = [word for word in _CAPITAL.findall(text) if word.lower() not in named]
    capitals = [word for word in capitals if not language.starts("words.first", word)]
    return found + (len(capitals) if language.name != "de" else len(capitals) >= 3)


def chosen(candidates: Iterable[Candidate | None], most: int) -> tuple[Candidate, ...]:
    """Return the candidates in the order of the text, without repetitions; if there are more than
    `most`, those with the highest confidence.
    """
    ranked = sorted(_said_once(candidates), key=lambda one: -one.confidence)[:most]
    return tuple(sorted(ranked, key=lambda one: one.span.start))


def _said_once(candidates: Iterable[Candidate | None]) -> list[Candidate]:
    """Return the candidates, of the same words the last. Words that say a value again after another
    value of an attribute with one at a time (Porto, Lisbon, Porto) are no repetition.
    """
    found: dict[tuple[str, int], Candidate] = {}
    values: dict[tuple[str, str], tuple[str, int]] = {}
    for one in candidates:
        if one is None:
            continue
        number = 0
        if one.fact and is_single_valued(one.fact.attribute):
            about = normal_entity(one.fact.entity), normal_attribute(one.fact.attribute)
            value = normal_value(one.fact.value)
            last, number = values.get(about, (value, 0))
            number += value != last
            values[about] = value, number
        found[one.text, number] = one
    return list(found.values())
