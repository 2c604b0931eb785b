"""Words a statement so that a stranger understands it: third person, absolute dates."""

from __future__ import annotations

import re

from recall_server.providers.rules.clauses import Clause
from recall_server.providers.rules.dates import When

_PRONOUNS = tuple(
    (re.compile(rf"(?<![\w'-]){said}(?![\w'-])"), written)
    for said, written in (
        ("I am", "they are"), ("[Ii] was", "they were"), ("[Ii]", "they"), ("[Mm]e", "them"),
        ("[Mm]y", "their"), ("[Mm]ine", "theirs"), ("[Mm]yself", "themselves"), ("[Ww]e", "they"),
        ("us", "them"), ("[Oo]ur", "their"), ("[Oo]urs", "theirs"), ("[Oo]urselves", "themselves"),
    )
)  # fmt: skip
# A comma ends a value, unless what follows is the rest of an enumeration ("a, b and c").
_CLAUSE_AGAIN = r"(?!(?:i|we|it|my|she|he|they|then|am|is|was|have|had|now|the)\b)[\w'-]"
_ITEM = r"(?:[\w'-]+ ){0,2}[\w'-]+"
_LISTED = rf"(?:{_ITEM}, ){{0,4}}{_ITEM},? (?:and|or)\s{_CLAUSE_AGAIN}"
_COMMA = rf",\s(?!(?:and|or) {_CLAUSE_AGAIN})(?!{_LISTED})"
_DURATION = (
    r"for (?:the (?:past|last)|a (?:while|long|few|couple|year|month|week|day)|about|over|almost"
    r"|nearly|quite|some time|ages|\d|(?:\w+ )?(?:years|months|weeks|days|hours)\b)"
)
_STOPS = re.compile(
    rf"\s*(?:{_COMMA}|[;!?]\s|[,;!?:]$|\.\s|\.$|\s[-–—]\s|[—(]|\s(?:because|'cause|since|so|when"
    r"|cause (?=i |we |it |she |he |they |the |my )|while|but|although|though|which|who|where|if"
    r"|whenever|after|before|until|unless|except|now|right now|for now|any ?more|any longer|too"
    r"|and (?:things|everything|life|i|we|it|she|he|they|my|our|that|this|am|is|was|have|had|so"
    r"|then)"
    r"|as well|these days|lately|recently|again|already|by the way|right away|at the moment"
    r"|currently|nowadays|instead|actually|a lot|very much|so much|the most|most of all"
    rf"|more than anything|either|at all|{_DURATION}|as (?:a|of)|every time|a while (?:ago|back)"
    r"|not (?:too |so )?long ago|the other day|some time ago|however|thanks to|to be honest|tbh|lol"
    r"|in order to|as soon as)\b)",
    re.IGNORECASE,
)
_PLACE_STOPS = re.compile(
    r"\s(?:with|for|on|as|near|from|and|to|or|at|by|in the|full|part|permanently|together|alone"
    r"|this"
    r"|last|next|during|because)\b(?!-)",
    re.IGNORECASE,
)


_YEAR = re.compile(r"\s(?:back )?(?:in|on|since|by|until) (?:[A-Z][a-z]+ )?(?:19|20)\d\d$")


def value_of(rest: str) -> str:
    """The noun or verb phrase at the beginning of the rest of a clause."""
    match = _STOPS.search(rest)
    value = _YEAR.sub("", rest[: match.start()] if match else rest)
    value = re.sub(r"^(?:any|on (?=[A-Z\d])) ?", "", value.strip(" \t\n.,;:!?*_~\"'`)"))
    return (value if value.count('"') % 2 == 0 else value.replace('"', "")).strip()


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
    if re.search(r"\b(?:of|from|for|than|like|had|spent|took|have|has|about|before|after|the|my"
    r"|our|all"
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
    if clean.count('"') % 2:
        clean = (
            clean.rstrip('"') + '"' if clean.rfind('"') < len(clean) - 1 else clean.replace('"', "")
        )
    if when is not None and when.relative and when.shown not in clean:
        clean = f"{clean} ({when.shown})"
    return clean[:1].upper() + clean[1:] + "."
