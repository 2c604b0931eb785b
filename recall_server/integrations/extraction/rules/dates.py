"""Finds the times that a sentence names: that of the deed, and the others, which it writes out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from recall_server.integrations.extraction.rules.moments import EXPRESSIONS, named_day

_TIMES_MAX = 4
_PREPOSITION = re.compile(
    r"\b(?:back in|in|on|at|since|by|until|till|during|around|starting|effective|beginning|from"
    r"|as of)\s$",
    re.IGNORECASE,
)
_BARE = ("yesterday", "today", "tomorrow", "tonight", "last ", "next ", "this ")
_KEPT = ("since", "by", "until", "till", "for")
_BEGINS = ("starting", "effective", "beginning", "from", "as of", "since")
# "A flight for 3 December": what is arranged lies ahead, and is not when it was arranged.
_PURPOSE = re.compile(r"\bfor (?:the )?$", re.IGNORECASE)
_LEANING = re.compile(
    r"\b(?:of|from|for|than|like|had|spent|took|have|has|about|before|after|the|my|our|all|was|is"
    r"|are|were|until|and)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class When:
    """A time that a sentence names: where the words stand, the moment, and how to write it out."""

    start: int
    end: int
    at: datetime
    shown: str
    relative: bool  # the words mean nothing without the day on which they were said
    partial: bool = False  # a date that lacks only its year: "5 June"
    purpose: bool = False  # what something is for: "a table for Friday"
    begins: bool = False  # from when on something holds: "starting Monday"


def dated(text: str, base: datetime, *, past: bool) -> tuple[str, When | None]:
    """The text, freed of the relative words for the time of the deed, and that time.

    A bare "in May" lies behind if `past`, else ahead. Any other time that the text names stays
    where it is, written out.
    """
    whens = list(_all(text, base, past))
    main = next((when for when in whens if not when.purpose), None)
    for when in reversed(whens):
        if when is main:
            continue
        written = _written_out(text, when)
        text = text[: when.start] + written + text[when.end :]
        if main is not None and main.start > when.start:
            by = len(written) - (when.end - when.start)
            main = replace(main, start=main.start + by, end=main.end + by)
    return _without(text, main), main


def _all(text: str, base: datetime, past: bool) -> Iterator[When]:
    midnight = base.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    at = 0
    for _ in range(_TIMES_MAX):
        when = _first(text, at, midnight, past)
        if when is None:
            return
        yield when
        at = when.end


def _first(text: str, since: int, midnight: datetime, past: bool) -> When | None:
    best: When | None = None
    for pattern, resolve, relative in EXPRESSIONS:
        match = pattern.search(text, since)
        if match is None or (best is not None and match.start() >= best.start):
            continue
        purpose = bool(_PURPOSE.search(text, max(0, match.start() - 8), match.start())) or (
            match[0].lower().startswith("for ")
        )
        try:
            behind = match[0].lower().startswith("since ")
            found = resolve(match, midnight, behind or (past and not purpose))
        except (ValueError, OverflowError):
            continue
        if found is not None:
            partial = resolve is named_day and relative
            best = When(match.start(), match.end(), found[0], found[1], relative, partial, purpose)
    return _with_preposition(text, best) if best else None


def _with_preposition(text: str, when: When) -> When:
    """Takes a preposition before the words along, and keeps the ones that say which way."""
    if when.partial or text[when.start : when.end].lower().startswith(_BARE):
        return when
    before = _PREPOSITION.search(text, max(0, when.start - 10), when.start)
    start = before.start() if before else when.start
    word = text[start : when.end].split(maxsplit=1)[0].lower()
    begins = text[start : when.end].lower().startswith(_BEGINS)
    kept = f"{word} " if word in _KEPT else "from " if begins else ""
    return replace(when, start=start, shown=kept + when.shown, begins=begins)


def _written_out(text: str, when: When) -> str:
    said = text[when.start : when.end]
    if not when.relative:
        return said
    if when.partial or when.purpose or not said.lower().startswith(_BARE):
        return when.shown
    return f"{'on' if when.shown[:1].isdigit() and ' ' in when.shown else 'in'} {when.shown}"


def _without(text: str, when: When | None) -> str:
    """The text without relative words of time; where the phrase leans on them they stay."""
    if when is None or not when.relative:
        return text
    before, after = text[: when.start].rstrip(), text[when.end :].lstrip()
    if when.partial:
        joint = " " if after[:1].isalnum() else ""
        return f"{before} {when.shown}{joint}{after}".strip()
    if _LEANING.search(before):
        return text
    if not before:
        return after.lstrip(", ")
    joint = "" if not after or after[0] in ",.!;" else " "
    return before + joint + after
