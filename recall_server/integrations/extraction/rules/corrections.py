"""Corrections with a form of their own: "it is X, not Y", "not Y any more, X now", "make it 40"."""

from __future__ import annotations

import re
from dataclasses import replace

from recall_server.domain.memory import MemoryType
from recall_server.integrations.extraction.rules import nouns
from recall_server.integrations.extraction.rules.drafts import Draft, says_something
from recall_server.integrations.extraction.rules.subjects import Voice
from recall_server.integrations.extraction.rules.wording import finished, value_of

CORRECTS = re.compile(
    r"^(?:no,? )?actually,|\bactually (?:prefer|use|live|work)\w*\b.*\bnow\b"
    r"|\b(?:correction:|(?:scratch|strike) that\b|no longer\b|any ?more\b|not any longer\b"
    r"|on second thought\b|i was wrong\b|i misspoke\b)",
    re.IGNORECASE,
)
_NO_MORE = re.compile(
    r"(?:it's |it is |we are |we're |i am |i'm )?(?:not|no longer) (?:using |with |on )?"
    r"(?P<old>[\w.+# -]{2,40}?) (?:any ?more|any longer)[,;.:]? (?:but |it's |it is "
    r"|we (?:now )?use |i (?:now )?use |now )*(?P<value>[\w.+# -]{2,40}?)(?: now)?$",
    re.IGNORECASE,
)
_IT_IS = re.compile(
    r"(?:it is|it's|that's|that is|should be|i meant|i mean|i said|make that|make it) (?:now "
    r"|actually )?"
    r"(?:on |at )?(?P<value>[^,;]{1,60}?)(?: now)?(?:, (?:and )?not|,? instead of)"
    r" (?:the |on |at )?(?P<old>[^,;]{1,60})$",
    re.IGNORECASE,
)
_MAKE_IT = re.compile(
    r"(?:(?:let's |please |just )?(?:make|call) (?:it|that)|(?:it|that) should be|i meant)"
    r" (?P<value>[^,;]{1,40})$",
    re.IGNORECASE,
)
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
_INSTEAD = re.compile(
    r"(?P<value>[^,;]{2,40}?) (?:instead of|rather than|not) (?P<old>[^,;]{2,40}?)"
    r"(?: for (?:me|us))?(?: (?:now|these days|from now on|nowadays|today|please))*$",
    re.IGNORECASE,
)
_CLOCK = r"\d{1,2}:\d\d|\d{1,2} ?(?:am|pm)\b|\bnoon\b|\bmidnight\b"
_MONTH = r"january|february|march|april|may|june|july|august|september|october|november|december"
# What can stand in the place of what: a weekday for a weekday, a number for a number.
_KINDS = tuple(
    re.compile(rf"\b(?:{kind})(?![\w:])", re.IGNORECASE)
    for kind in (_CLOCK, _WEEKDAY, rf"\d{{1,2}} (?:{_MONTH})(?: \d{{4}})?|(?:{_MONTH})",
                 r"\d[\d.,]*")
)  # fmt: skip
_DATE_AT_END = re.compile(r" \([^()]{3,40}\)(?=\.$)")


def correction(text: str, voice: Voice) -> Draft | None:
    """What a sentence puts right; of what, `put_right` finds out."""
    match = _NO_MORE.match(text) or _IT_IS.match(text)
    if match is None:
        return _made(text, voice)
    value, old = value_of(match["value"]), value_of(match["old"])
    if not says_something(value) or not old or len(old.split()) > 6:
        return None
    if re.match(r"(?:i|we|my|our|he|she|they)\b", value, re.IGNORECASE):
        return None
    kind = nouns.category(value) or nouns.category(old)
    attribute = f"uses_for_{kind}" if kind else "correction"
    entity = "team" if kind and re.search(r"\bwe\b", text, re.IGNORECASE) else voice.entity
    said = f"{voice.shown} corrects: {value}, not {old}"
    sure = 0.9 if kind else 0.7
    return Draft(finished(said, None), MemoryType.FACT, entity, attribute, value, sure,
                 correction=True, replaces=old)  # fmt: skip


def _made(text: str, voice: Voice) -> Draft | None:
    match = _MAKE_IT.match(text)
    value = value_of(match["value"]) if match else ""
    if not any(kind.search(value) for kind in _KINDS):
        return _preferred(text, voice)
    said = f"{voice.shown} corrects: {value}"
    return Draft(finished(said, None), MemoryType.FACT, voice.entity, "correction", value, 0.6,
                 correction=True)  # fmt: skip


def _preferred(text: str, voice: Voice) -> Draft | None:
    """ "Tea instead of coffee for me": only where it is known what kind of choice that is."""  # noqa: D210
    match = _INSTEAD.match(text)
    kind = nouns.category(match["value"]) if match else None
    if match is None or kind is None or nouns.category(match["old"]) != kind:
        return None
    value, old = match["value"].strip(), match["old"].strip()
    said = f"{voice.shown} prefers {value} to {old}"
    return Draft(finished(said, None), MemoryType.PREFERENCE, voice.entity, f"preferred_{kind}",
                 value, 0.8, correction=True, replaces=old)  # fmt: skip


def put_right(draft: Draft, known: list[Draft]) -> Draft:
    """The correction of a statement that stands shortly before it, with what that was about."""
    if draft.replaces and draft.attribute != "correction":
        same = (old for old in reversed(known) if _names(old, draft))
        return next((replace(draft, entity=old.entity) for old in same), draft)
    if not draft.correction:
        return draft
    for old in reversed(known):
        said = _said_in(old, draft)
        if said is None or said.lower() not in old.text.lower():
            continue
        new = _of_same_kind(draft.value, said)
        return replace(
            old,
            text=_DATE_AT_END.sub("", _exchanged(old.text, said, new)),
            value=_exchanged(old.value, said, new),
            valid_from=None,
            negated=False,
            correction=True,
            replaces=old.value,
        )
    return draft


def _names(old: Draft, new: Draft) -> bool:
    """Whether an earlier draft states what a correction says is so no more."""
    return old.attribute == new.attribute and old.value == new.replaces


def _said_in(old: Draft, new: Draft) -> str | None:
    """The words of an earlier value that a correction puts others in the place of."""
    if new.replaces is not None:
        found = re.search(rf"(?<!\w){re.escape(new.replaces)}(?!\w)", old.value, re.IGNORECASE)
        return found[0] if found else None
    for kind in _KINDS:
        if kind.search(new.value):
            match = kind.search(old.value)
            return match[0] if match else None
    return None


def _of_same_kind(value: str, said: str) -> str:
    """Of "45 guests" only the 45, where what it replaces is a bare number."""
    for kind in _KINDS:
        match = kind.search(value)
        if match and kind.fullmatch(said):
            return match[0]
    return value


def _exchanged(text: str, said: str, new: str) -> str:
    at = text.lower().find(said.lower())
    return text[:at] + new + text[at + len(said) :]
