"""Makes a clause stand alone: replaces "I" by the speaker, adds its heading, resolves its dates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from recall_server.domain.text.dates import length, start_of
from recall_server.integrations.extraction.rules.facts import Speaker
from recall_server.integrations.extraction.rules.language import Table, table

_UNITS = ("day", "week", "month", "year")
_I = re.compile(r"(?<![\w'’.-])(?:I|i)(?P<short>['’](?:m|ve|ll|d)|m|ve)?(?![\w'’.-])")
_MINE = re.compile(r"(?<![\w'’-])(?P<word>my|me|mine|myself)(?![\w'’-])", re.IGNORECASE)
_WE = re.compile(r"(?P<we>We|we)(?P<short>['’](?:re|ve|ll|d))?(?![\w'’-])")
_NEXT = re.compile(r"\s+(?P<word>[A-Za-z]+(?:['’]t)?)")
# Beside "I": who is meant, the name of the speaker would hide.
_OTHERS = re.compile(r"\b(?:he|she|him)\b", re.IGNORECASE)
_CELLS = re.compile(r"\s{0,8}\|\s{0,8}")
_BLANKS = re.compile(r"\s+")
_MARKS = re.compile(r"\*\*|__|(?<!\w)\*(?=\w)|(?<=\w)\*(?!\w)")
_EMOJI = re.compile(r"[\U0001f300-\U0001faff☀-➿️]+")


@dataclass(frozen=True)
class When:
    """A relative time in a clause, resolved: how it is shown, and when it begins."""

    shown: str
    at: datetime


@dataclass(frozen=True)
class Context:
    """The context of a clause: the speaker, the heading, and how to word it."""

    speaker: Speaker
    heading: str = ""
    instructs: bool = False
    team: bool = False
    elided: bool = False
    document: bool = False


def cleaned(text: str) -> str:
    """Return a text on one line, without emphasis marks and emoji."""
    text = _EMOJI.sub("", _MARKS.sub("", text))
    if text.startswith("|"):
        text = _CELLS.sub(", ", text.strip("| "))
    return _BLANKS.sub(" ", text).strip(" ,;–—-")


def stand_alone(text: str, context: Context, language: Table, when: When | None) -> str:
    """Return a clause as a sentence that can be understood without the text around it."""
    words = _worded(cleaned(text), context, language).rstrip(" ,;:!！")
    ended = words.endswith((".", "…", "。", "?", "？"))
    stop = "" if ended else "." if language.spaced else "。"
    if when is None:
        return words + stop
    mark = words[-1] if ended else stop
    return f"{words.rstrip('.。')} ({when.shown}){mark}"


def _worded(text: str, context: Context, language: Table) -> str:
    shown = context.speaker.shown
    first, we = language.has("words.first", text), language.has("words.we", text)
    if context.instructs and not (context.heading and not first):
        request = _mine(_later(text), shown, known=True) if language.name == "en" else text
        return str(language.data["asks"].format(who=shown, text=request))
    if context.heading and not first:
        return f"{context.heading}{' –' if ':' in context.heading else ':'} {text}"
    elided = context.elided or language.starts("keep.elided", text)
    other = first and _OTHERS.search(text) and not language.has("words.relation", text)
    if language.name == "en" and not (language.has("words.you", text) or elided or other):
        start = _WE.match(text)
        if context.team and start and not first:
            return f"The team{_agreeing(start['short'] or '', text[start.end() :], many=False)}"
        if not we or (context.document and not first):
            return _capital(_third_person(text, shown) if first else text)
    we = we and not context.document
    if not (first or we or elided or language.has("words.you", text)):
        return _capital(text)
    return f"{shown}{': ' if language.spaced else '：'}{_capital(text)}"


def _third_person(text: str, shown: str) -> str:
    """Return an English clause with the speaker in place of the first person."""
    verb = _I.search(text)
    if verb is None:
        return _mine(text, shown, known=False)
    before = text[: verb.start()]
    known = _MINE.search(before) is not None
    after = _agreeing(verb["short"] or "", text[verb.end() :], many=known)
    name = "they" if known else shown if not before else _inside(shown)
    return f"{_mine(before, shown, known=False)}{name}{_mine(_later(after), shown, known=True)}"


def _agreeing(short: str, after: str, *, many: bool) -> str:
    """Return the text after "I" or "we" with its verb in the third person."""
    if short:
        return f" {_long(short, many=many)}{after}"
    if many:
        return re.sub(r"^ (am|was)\b", lambda m: f" {_verbs()['many'][m[1]]}", after)
    at = 0
    while (match := _NEXT.match(after, at)) and match["word"].lower() in _forms("adverbs"):
        at = match.end()
    if match is None:
        return after
    word = match["word"].replace("’", "'").lower()
    rest = after[match.end() :]
    if _form(word) == word:
        return after
    return f"{after[: match.start('word')]}{_form(word)}{rest}"


def _long(short: str, *, many: bool) -> str:
    """Return the verb that "'m", "'ve" and the like stand for, in the third person."""
    one: str = _verbs()["short"][short.lower().lstrip("'’")]
    return _verbs()["many"].get(one, one) if many else one


def _form(verb: str) -> str:
    """Return the third person of a present verb, and any other form unchanged."""
    irregular: dict[str, str] = _verbs()["third"]
    if verb in irregular:
        return irregular[verb]
    past = verb.endswith("ed") and verb not in ("need", "feed")
    if past or verb in _forms("same"):
        return verb
    if verb.endswith(("s", "sh", "ch", "x", "z", "o")):
        return f"{verb}es"
    if verb.endswith("y") and verb[-2:-1] not in "aeou":
        return f"{verb[:-1]}ies"
    return f"{verb}s"


def _verbs() -> dict[str, Any]:
    verbs: dict[str, Any] = table("en").data["verbs"]
    return verbs


@cache
def _forms(name: str) -> frozenset[str]:
    return frozenset(_verbs()[name].split())


def _later(text: str) -> str:
    """Replace a later "I" by "they"."""

    def they(match: re.Match[str]) -> str:
        return f"they {_long(match['short'], many=True)}" if match["short"] else "they"

    many = _verbs()["many"]
    return re.sub(r"\bthey (am|was)\b", lambda m: f"they {many[m[1]]}", _I.sub(they, text))


def _mine(text: str, shown: str, *, known: bool) -> str:
    """Replace "my" and "me", the first one by the speaker's name unless that is `known`."""
    seen = known

    def other(match: re.Match[str]) -> str:
        nonlocal seen
        before, seen = seen, True
        word = match["word"].lower()
        if word == "myself":
            return "themselves"
        if word == "me":
            return "them" if before else _inside(shown)
        whose = "their" if before else f"{_inside(shown) if match.start() else shown}'s"
        return whose + ("s" if word == "mine" and before else "")

    return _MINE.sub(other, text)


def _inside(shown: str) -> str:
    return f"the {shown[4:]}" if shown.startswith("The ") else shown


def _capital(text: str) -> str:
    """Return a text with a capital at its start, unless it begins with a name such as "eGFR"."""
    return text if text[1:2].isupper() else text[:1].upper() + text[1:]


def dated(text: str, base: datetime, language: Table, *, past: bool) -> When | None:
    """Return the time that a clause names relative to the day on which it was said, if any."""
    base = start_of(base.astimezone(UTC), "day")
    try:
        return _relative(text, base, language) or _weekday(text, base, language, past=past)
    except (ValueError, OverflowError):
        return None


def _relative(text: str, base: datetime, language: Table) -> When | None:
    relative, ago = _patterns(language.name)
    for pattern, unit, offset in relative:
        if pattern.search(text):
            return _when(base, unit, offset, language)
    match = ago.search(text)
    if match is None:
        return None
    numbers = language.data["numbers"].split()
    said = match["n"].lower()
    count = int(said) if said.isdigit() else numbers.index(said) + 1 if said in numbers else 0
    if said in language.data["relative"]["one"].split():
        count = 1
    units = language.data["relative"]["units"].items()
    unit = next((u for u, words in units if re.match(words, match["unit"], re.IGNORECASE)), "")
    return _when(base, unit, -count, language) if count and unit else None


def load(name: str) -> None:
    """Compile the patterns of relative times of a language."""
    _patterns(name)


@cache
def _patterns(name: str) -> tuple[list[tuple[re.Pattern[str], str, int]], re.Pattern[str]]:
    language = table(name)
    relative = language.data["relative"]
    bounded = r"(?<![\w'])(?:%s)(?!\w| of\b)" if language.spaced else "(?:%s)"
    rows = [
        (re.compile(bounded % words, re.IGNORECASE), unit, offset)
        for unit in _UNITS
        for words, offset in relative[unit]
    ]
    return rows, re.compile(bounded % relative["ago"], re.IGNORECASE)


def _when(base: datetime, unit: str, offset: int, language: Table) -> When:
    at = start_of(base + length(unit, offset), unit)
    if language.name != "en":
        shown = {"day": f"{at:%Y-%m-%d}", "week": f"{at:%G-W%V}", "month": f"{at:%Y-%m}"}
    else:
        day = f"{at.day} {at:%B %Y}"
        shown = {"day": day, "week": f"week of {day}", "month": f"{at:%B %Y}"}
    return When(shown.get(unit, f"{at:%Y}"), at)


def _weekday(text: str, base: datetime, language: Table, *, past: bool) -> When | None:
    """Return the day that "last Friday" means, or "on Friday" if it is in the `past`."""
    names = language.data["weekdays"].split()
    lead = "|".join(
        f"(?P<{which}>{language.data['relative'][which]})" for which in ("last", "next", "on")
    )
    pattern = rf"(?<!\w)(?:{lead})[ ]?(?P<day>{'|'.join(names)})(?!\w| of\b)"
    match = re.search(pattern, text, re.IGNORECASE)
    if match is None or (match["on"] and not past):
        return None
    ahead = (names.index(match["day"].lower()) % 7 - base.weekday()) % 7
    days = ahead or 7 if match["next"] else ahead - 7
    return _when(base, "day", days, language)
