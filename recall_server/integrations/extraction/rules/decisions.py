"""Decisions with a form of their own: "Decision: ...", "it was agreed that", "let's go with"."""

from __future__ import annotations

import re

from recall_server.domain.memory import MemoryType
from recall_server.integrations.extraction.rules import nouns
from recall_server.integrations.extraction.rules.drafts import Draft, says_something, slug
from recall_server.integrations.extraction.rules.subjects import Voice
from recall_server.integrations.extraction.rules.wording import finished, outside, value_of

_DECISION_LABEL = re.compile(
    r"(?:decision|decided|agreed|resolved|final decision|outcome"
    r"|verdict)(?: made)?:\s+(?P<value>.{6,})",
    re.IGNORECASE,
)
_IMPERSONAL = re.compile(
    r"(?:it (?:was|has been) (?:decided|agreed|settled)|the (?:decision|consensus|agreement"
    r"|verdict) (?:is|was)"
    r"|(?:everyone|everybody|all) agreed|we are agreed|we all agreed|final decision is)"
    r" (?:that |to |on )?(?P<value>.+)",
    re.IGNORECASE,
)
_USED = re.compile(
    r"(?:we )?(?:will )?(?:use|go with|adopt|keep) (?P<value>.+?)"
    r"(?: for (?:the |our )?(?P<key>(?!now\b|good\b)[\w -]+))?$",
    re.IGNORECASE,
)
_TOPIC = re.compile(
    r"(?:(?:i|we)(?:'ve| have)? )?changed (?:my|our) minds? (?:about|on) (?:the |our |my )?"
    r"(?P<topic>[\w -]{2,40})[:,;.-]+ ",
    re.IGNORECASE,
)
_LETS = re.compile(
    r"(?:let's|let us) (?:go with|use|stick with|stick to|settle on|standardi[sz]e on|switch to"
    r"|adopt)"
    r" (?P<value>.+?)(?: (?:over|instead of|rather than|not) (?P<over>.+?))?"
    r"(?: (?:for|as) (?:our |the |my )?(?P<key>[\w -]{2,40}))?$",
    re.IGNORECASE,
)
_FROM_NOW = re.compile(
    r"(?:from now on|going forward|starting (?:today|tomorrow|now|next \w+)"
    r"|effective immediately|as of now)"
    r",? (?:we|the team)(?:'ll| will| are going to)? (?:all )?(?P<value>.+)",
    re.IGNORECASE,
)


def decision(text: str, _voice: Voice) -> Draft | None:
    topic = _TOPIC.match(text)
    lets = _LETS.match(text[topic.end() :] if topic else text)
    if lets:
        return _lets(lets, topic["topic"] if topic else None)
    match = _DECISION_LABEL.match(text) or _IMPERSONAL.match(text) or _FROM_NOW.match(text)
    if match is None:
        return None
    value = value_of(match["value"]) if len(match["value"]) > 100 else match["value"].strip(" .")
    if not says_something(value):
        return None
    value = outside(value)
    said = f"The team decided {_joint(match['value'], text)}{value}"
    use = _USED.match(value)
    kind = nouns.category(use["value"]) if use else None
    key = slug(use["key"]) if use and use["key"] else ""
    attribute = f"uses_for_{kind or key}" if kind or key else "decided"
    kept = use["value"] if use and attribute != "decided" else value
    return Draft(finished(said, None), MemoryType.DECISION, "team", attribute, kept, 0.9)


def _joint(value: str, text: str) -> str:
    """What stands after "decided": "to" before a deed, "that" before a clause."""
    if f"that {value}" in text or re.match(
        r"(?:we|the|our|it|they|all|every|no)\b", value, re.IGNORECASE
    ):
        return "that "
    return "to " if re.match(r"[a-z]+(?<!ing)(?<!ed)\b", value) else "on "


def _lets(match: re.Match[str], topic: str | None) -> Draft | None:
    value = value_of(match["value"])
    if not says_something(value):
        return None
    kind, key = nouns.category(value), match["key"] or topic
    attribute = f"uses_for_{slug(key)}" if key else f"uses_for_{kind}" if kind else "decided"
    over = f" over {match['over']}" if match["over"] else ""
    said = f"The team goes with {value}{over}" + (f" for {outside(key)}" if key else "")
    return Draft(
        finished(said, None),
        MemoryType.DECISION,
        "team",
        attribute,
        value,
        0.7,
        correction=topic is not None,
    )
