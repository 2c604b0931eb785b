"""Reads a clause by the table of predicates: what its verb says of its subject."""

from __future__ import annotations

import re

from recall_server.domain.memory import MemoryType
from recall_server.integrations.extraction.rules import nouns
from recall_server.integrations.extraction.rules.dates import When
from recall_server.integrations.extraction.rules.drafts import (
    Draft,
    drafted,
    is_person,
    says_something,
    slug,
)
from recall_server.integrations.extraction.rules.parsing import Clause
from recall_server.integrations.extraction.rules.predicates import PREDICATES, Predicate
from recall_server.integrations.extraction.rules.subjects import Voice
from recall_server.integrations.extraction.rules.wording import outside, place_of, value_of

_NO_LONGER = re.compile(r"\bno longer\b")
_INSTEAD = re.compile(r"(?P<value>.+?),? (?:instead of|rather than) (?P<old>.+)", re.IGNORECASE)
_VERSION = re.compile(r"v?\d[\w.]*$")


def relation(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    """What the table of predicates finds in a clause."""
    for rule in PREDICATES.get(clause.lemma, ()):
        if clause.tense not in rule.tenses or (rule.people and not is_person(clause)):
            continue
        if rule.things and is_person(clause) and clause.subject.kind in ("i", "owned"):
            continue
        match = rule.pattern.match(clause.rest)
        draft = _filled(rule, match, clause, voice, when) if match else None
        if draft is not None:
            return draft
    return None


def ended(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    """What is no longer so, whatever it is: "We no longer support Python 3.8"."""
    value = value_of(clause.rest)
    if not _NO_LONGER.search(clause.verb) or not says_something(value):
        return None
    return drafted(clause, voice, when, f"{clause.lemma}s", value, negated=True, correction=True,
                   confidence=0.8)  # fmt: skip


def _filled(
    rule: Predicate, match: re.Match[str], clause: Clause, voice: Voice, when: When | None
) -> Draft | None:
    groups = match.groupdict()
    said, old = groups["value"], groups.get("old") or groups.get("over")
    instead = _INSTEAD.match(said) if old is None else None
    if instead:
        said, old = instead["value"], instead["old"]
    value = (place_of if rule.place else str if rule.listed else value_of)(said)
    if rule.deed:
        value = f"{clause.lemma} {value}"
    if not says_something(value):
        return None
    old = value_of(old) if old else None
    value, old = _with_versions(value, old, groups.get("key"))
    attribute = _attribute(rule.attribute, value, old, groups.get("key"), rule.type)
    if attribute == "lives_in":
        attribute = _home_of(clause, value, old) or ""
        if not attribute:
            return None
    # A verb of denial and a "not" cancel each other: "I don't hate tea".
    denied = clause.negated is not rule.negated
    negated = (denied is not bool(groups.get("not"))) or clause.tense == "used"
    replaces = outside(old) if old and (rule.correction or groups.get("old") or instead) else None
    return drafted(
        clause, voice, when, attribute, value, type_=rule.type, confidence=rule.confidence,
        negated=negated, entity=_object(groups.get("about"), voice),
        correction=rule.correction or bool(replaces) or bool(_NO_LONGER.search(clause.verb)),
        replaces=replaces,
    )  # fmt: skip


def _object(about: str | None, voice: Voice) -> str | None:
    """The entity where a rule finds it after the verb: "the standup", "my desk"."""
    if about is None:
        return None
    mine = re.match(r"my ", about, re.IGNORECASE)
    if mine:
        return f"{voice.entity}'s {about[3:]}"
    return re.sub(r"^(?:the|our|this|that) ", "", about, flags=re.IGNORECASE)


def _with_versions(value: str, old: str | None, key: str | None) -> tuple[str, str | None]:
    """A bare version takes its name along: "from Django 4 to 5", "Postgres from 15 to 16"."""
    if old is None or not _VERSION.fullmatch(value):
        return value, old
    if _VERSION.fullmatch(old):
        name = re.sub(r"^(?:our|my|the) ", "", key or "")
        return (f"{name} {value}", f"{name} {old}") if name else (value, old)
    name = old.rpartition(" ")[0]
    return (
        (f"{name} {value}", old) if name and _VERSION.fullmatch(old.split()[-1]) else (value, old)
    )


def _attribute(
    template: str, value: str, old: str | None, key: str | None, type_: MemoryType
) -> str:
    kind = nouns.category(value) or (nouns.category(old) if old else None)
    if "{category}" in template:
        if kind:
            return template.format(category=kind)
        return "prefers" if template.startswith("preferred") else "uses"
    if "{key}" in template:
        name = slug(value_of(key)) if key else ""
        if name and len(name.split("_")) <= 4 and nouns.category(key or "") is None:
            return template.format(key=name)
        return f"uses_for_{kind}" if kind else "decided" if type_ is MemoryType.DECISION else "uses"
    return template


def _home_of(clause: Clause, value: str, old: str | None) -> str | None:
    """Where people live, things are located, and teams move from one tool to another."""
    kind = nouns.category(value) or (old and nouns.category(old))
    if kind:
        return f"uses_for_{kind}"
    if not is_person(clause):
        return "located_in" if clause.subject.kind == "owned" else None
    # Places are capitalised, unless the whole chat is written small.
    known = clause.lemma in ("live", "base", "locate") or value[:1].isupper()
    return "lives_in" if known or (clause.rest.islower() and len(value.split()) <= 3) else None
