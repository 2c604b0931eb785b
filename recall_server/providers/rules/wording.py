"""Words a statement so that a stranger understands it: third person, absolute dates, no markdown."""

from __future__ import annotations

import re

from recall_server.providers.rules.clauses import Clause
from recall_server.providers.rules.dates import When

_PRONOUNS = tuple(
    (re.compile(rf"(?<![\w'-]){said}(?![\w'-])", flags), written)
    for said, written, flags in (
        ("I am", "they are", 0), ("[Ii] was", "they were", 0), ("[Ii]", "they", 0),
        ("me", "them", re.IGNORECASE), ("my", "their", re.IGNORECASE), ("mine", "theirs", re.IGNORECASE),
        ("myself", "themselves", re.IGNORECASE), ("we", "they", re.IGNORECASE), ("us", "them", 0),
        ("our", "their", re.IGNORECASE), ("ours", "theirs", re.IGNORECASE), ("ourselves", "themselves", re.IGNORECASE),
    )
)  # fmt: skip
_STOPS = re.compile(
    r"\s*(?:,\s(?!(?:(?:[\w'-]+ ){0,2}[\w'-]+, ){0,4}(?:[\w'-]+ ){0,2}[\w'-]+,? (?:and|or)\s"
    r"(?!(?:i|we|it|my|she|he|they|then|am|is|was|have|had|now)\b)[\w'-])|[;!?]\s|[,;!?:]$|\.\s|\.$|\s[-–—]\s|[—(]|\s(?:because|'?cause|since|so that|so|when|while"
    r"|but|although|though|which|who|where|if|whenever|after|before|until|unless|except|and (?:i|we|it"
    r"|she|he|they|my|our|that|this|am|is|was|have|had|so|then)|now|right now|for now|any ?more"
    r"|any longer|too|as well|these days|lately|recently|again|already|by the way|though|right away"
    r"|at the moment|currently|nowadays|instead|actually|a lot|very much|so much|the most|most of all"
    r"|more than anything|either|at all|anymore|for years|for (?:the (?:past|last)|a (?:while|long|few|couple|year|month|week|day)"
    r"|about|over|almost|nearly|quite|some time|ages|\d|(?:\w+ )?(?:years|months|weeks|days|hours)\b)"
    r"|since|as (?:a|of)|every time|however|thanks to|to be honest|tbh|lol|in order to|as soon as)\b)",
    re.IGNORECASE,
)
_PLACE_STOPS = re.compile(
    r"\s(?:with|for|on|as|near|from|and|to|or|at|by|in the|full|part|permanently|together|alone|this"
    r"|last|next|during|because)\b(?!-)",
    re.IGNORECASE,
)


def value_of(rest: str) -> str:
    """The noun or verb phrase at the beginning of the rest of a clause."""
    match = _STOPS.search(rest)
    value = rest[: match.start()] if match else rest
    value = re.sub(r"^(?:any|on (?=[A-Z\d])) ?", "", value.strip(" \t\n.,;:!?*_~\"'`)"))
    return value.strip()


def place_of(rest: str) -> str:
    """A place or organisation: the value cut at the next preposition."""
    value = value_of(rest)
    match = _PLACE_STOPS.search(value)
    return (value[: match.start()] if match else value).strip(" ,.")


def outside(text: str) -> str:
    """The first person turned into the third: "my dog" becomes "their dog"."""
    for pattern, written in _PRONOUNS:
        text = pattern.sub(written, text)
    return text


def without(text: str, when: When | None) -> str:
    """The text without relative words of time; where the phrase leans on them they stay."""
    if when is None or not when.relative:
        return text
    before, after = text[: when.start].rstrip(), text[when.end :].lstrip()
    if when.partial:
        joint = " " if after[:1].isalnum() else ""
        return f"{before} {when.shown}{joint}{after}".strip()
    if re.search(r"\b(?:of|from|for|than|like|had|spent|took|have|has|about|before|after|the|my|our|all"
                 r"|was|is|are|were|until|and)$", before, re.IGNORECASE):  # fmt: skip
        return text
    joint = "" if not before or not after or after[0] in ",.!;" else " "
    return (
        before.rstrip(",") + joint + after.lstrip(", ") if not before else before + joint + after
    ).strip()


def sentence_of(clause: Clause, rest: str, when: When | None) -> str:
    """The whole statement as a sentence."""
    owned = clause.subject.kind == "owned"
    shown = f"{clause.subject.shown} {clause.subject.noun}" if owned else clause.subject.shown
    body = outside(rest)
    return finished(f"{shown} {clause.verb} {body}", when)


def finished(text: str, when: When | None) -> str:
    """A sentence with its resolved date, one full stop and a capital letter."""
    clean = re.sub(r"\*\*|__|`", "", text)
    clean = re.sub(r"\s+", " ", clean).strip(" ,;:-–—")
    clean = re.sub(r"\s+([,.;:!?])", r"\1", clean).rstrip(" .!,;:")
    if when is not None and when.relative and when.shown not in clean:
        clean = f"{clean} ({when.shown})"
    return clean[:1].upper() + clean[1:] + "."
