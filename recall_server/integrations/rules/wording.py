"""Makes a clause stand alone: replaces "I" by the speaker, adds its heading, resolves its dates."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from recall_server.domain.text.dates import length, start_of
from recall_server.integrations.rules.facts import Speaker
from recall_server.integrations.rules.language import Table, shape, table


class When(NamedTuple):
    """A relative time in a clause, resolved: its words, how it is shown, and when it begins."""

    said: str
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


def unmarked(text: str) -> str:
    """Return a text without emphasis marks and tags; code, the group of the pattern, stays."""
    return shape("emphasis").sub(r"\1", text)


def cleaned(text: str) -> str:
    """Return a text on one line, without emphasis marks and emoji."""
    text = shape("emoji").sub("", unmarked(text))
    if text.startswith("|"):
        text = ", ".join(map(str.strip, text.strip("| ").split("|")))
    return " ".join(text.split()).strip(" ,;–—-")


def stand_alone(text: str, context: Context, language: Table, when: When | None) -> str:
    """Return a clause as a sentence that can be understood without the text around it."""
    words = _worded(cleaned(text), context, language).rstrip(" ,;:!！")
    ended = words.endswith((".", "…", "。", "?", "？"))
    stop = "" if ended else "." if language.spaced else "。"
    if when is None:
        return words + stop
    words += stop
    # The first letter may be a capital now.
    at = words.lower().find(when.said.lower())
    end = len(words) - 1 if at < 0 else at + len(when.said)
    shown = f" ({when.shown})" if language.spaced else f"（{when.shown}）"
    return words[:end] + shown + words[end:]


def _worded(text: str, context: Context, language: Table) -> str:
    shown, english = context.speaker.shown, language.name == "en"
    first, we = language.has("words.first", text), language.has("words.we", text)
    if context.instructs:
        return str(language.data["asks"].format(who=shown, text=_they(text) if english else text))
    if context.heading and (context.document or not first):
        text = _worded(text, replace(context, heading=""), language) if first else text
        about = "" if context.heading in text else context.heading
        return f"{about}{' –' if ':' in about else ':'} {text}".removeprefix(": ")
    own = context.elided or language.starts("keep.elided", text) or language.has("words.you", text)
    team = context.team and not (own or first) and shape("we").match(text)
    if english and team:
        return f"The team{_agreeing(text[team.end() :])}"
    mixed = shape("mixed").match(text) or shape("others").search(text)
    if english and first and not (own or we or mixed):
        return _capital(_third_person(text, shown))
    said = _capital(text)
    return f"{shown}{': ' if language.spaced else '：'}{said}" if first or we or own else said


def _third_person(text: str, shown: str) -> str:
    """Return an English clause with the speaker in place of the first "I" or "my"."""
    text = shape("had").sub(r"\1 had", text)
    match = shape("speaker").search(text)
    if match is None:
        return text
    before, word, after = text[: match.start()], match[0].lower(), text[match.end() :]
    # "The customer" within a sentence.
    name = f"the {shown[4:]}" if before and shown.startswith("The ") else shown
    if word in ("my", "mine"):
        name += "'s"
    elif word == "i" and not before.endswith("and "):
        after = _agreeing(after)
    return f"{before}{name}{_they(after)}"


def _agreeing(after: str) -> str:
    """Return the text after "I" or "we" with its verb in the third person."""
    verbs = table("en").data["verbs"]
    match = shape("verb").match(after)
    while match and (
        match["verb"].lower() in verbs["adverbs"].split()
        or shape("adverb").fullmatch(match["verb"])
    ):
        match = shape("verb").match(after, match.end())
    if match is None:
        return after
    verb = match["verb"].replace("’", "'").lower()
    if verb in verbs["same"].split():
        return after
    written, ending = next(row for row in verbs["regular"] if re.search(row[0], verb))
    third = verbs["third"].get(verb) or re.sub(written, ending, verb, count=1)
    return f"{after[: match.start('verb')]}{third}{after[match.end() :]}"


def _they(text: str) -> str:
    """Return an English text with "they" and "their" in place of "I" and "my"."""
    they: dict[str, str] = table("en").data["verbs"]["they"]
    return shape("later").sub(lambda match: they[match[0].lower().replace("’", "'")], text)


def _capital(text: str) -> str:
    """Return a text with a capital at its start, unless its first word is like "eGFR", "a41f"."""
    named = text[1:2].isupper() or any(map(str.isdigit, text.partition(" ")[0]))
    return text if named else text[:1].upper() + text[1:]


def dated(text: str, base: datetime, language: Table, *, past: bool) -> When | None:
    """Return the time that a clause names relative to the day on which it was said, if any."""
    base = start_of(base.astimezone(UTC), "day")
    match, relative = language.times.search(text), language.data["relative"]
    try:
        if match is None:
            return _weekday(text, base, language, past=past)
        if match["unit"] is None:
            offset = language.offsets[(match.lastindex or 0) - 1]
            return _when(match[0], base, *offset, language)
        said = match["n"].lower()
        count = relative["count"].get(said) or int(said)
        return _when(match[0], base, relative["units"][match["unit"].lower()], -count, language)
    except (ValueError, OverflowError):  # "a few weeks ago", a day before the year 1
        return None


def _when(said: str, base: datetime, unit: str, offset: int, language: Table) -> When:
    at = start_of(base + length(unit, offset), unit)
    if language.name != "en":
        shown = {"day": f"{at:%Y-%m-%d}", "week": f"{at:%G-W%V}", "month": f"{at:%Y-%m}"}
    else:
        day = f"{at.day} {at:%B %Y}"
        shown = {"day": day, "week": f"week of {day}", "month": f"{at:%B %Y}"}
    return When(said, shown.get(unit, f"{at:%Y}"), at)


def _weekday(text: str, base: datetime, language: Table, *, past: bool) -> When | None:
    """Return the day that "last Friday" means, or "on Friday" if it is in the `past`."""
    match = language.patterns["weekday"].search(text)
    if match is None or (match["on"] and not past):
        return None
    names = language.data["weekdays"].split()
    ahead = (names.index(match["day"].lower()) % 7 - base.weekday()) % 7
    return _when(match[0], base, "day", (ahead or 7) if match["next"] else ahead - 7, language)
