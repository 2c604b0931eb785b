"""Deeds: what somebody did, and what they are busy with."""

from __future__ import annotations

import re
from dataclasses import replace

from recall_server.providers.rules import nouns
from recall_server.providers.rules.clauses import Clause
from recall_server.providers.rules.dates import When
from recall_server.providers.rules.drafts import Draft, drafted, is_person, says_something
from recall_server.providers.rules.predicates import DEEDS, DONE
from recall_server.providers.rules.subjects import Voice
from recall_server.providers.rules.verbs import word_set
from recall_server.providers.rules.wording import value_of

_EMPTY_DEEDS = re.compile(
    r"^(?:took|take|taken|gave|given|got|had|did|made|put|held|kept|tried|set|found|ran|hit|caught|felt"
    r"|brought|helped|broke|passed|ended|played|threw|fed|paid|served)\b.{0,12}?\b(?:a (?:lot|look|break"
    r"|deep breath|hit|toll|chance|while|blast|great time|good time|difference|shot|try|moment|step"
    r"|bit|hard time|go)|(?:so )?(?:much|many|well|hard|great|amazing)|into|out|up|through|time|part"
    r"|place|care|sense|joy|peace|strength|courage|smile|fun|memories|hope|advantage|motivation|comfort"
    r"|inspiration|perspective|to (?:know|see|hear|be|go|do|take|learn|have))\b",
    re.IGNORECASE,
)


_THIS = re.compile(
    r"\b(?:this|that) (?=(?:\w+ ){0,3}\w+)(?!(?:year|month|week|weekend|morning|summer|winter|and|is|in|on"
    r"|at|for|with|to|when|last|one|yesterday)\b)",
    re.IGNORECASE,
)


def deed(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    if clause.subject.kind == "thing" or (clause.subject.kind == "owned" and not is_person(clause)):
        return None
    if clause.tense in ("progressive", "perfect_ing") and clause.lemma in _UNDERTAKINGS:
        return _undertaking(clause, voice, when)
    if clause.tense not in DONE or clause.negated:
        return None
    clause = replace(clause, rest=_shown(clause.rest))
    phrase = f"{clause.verb.split()[-1]} {clause.rest}"
    for pattern, attribute in DEEDS.get(clause.lemma, ()):
        match = pattern.match(clause.rest)
        value = value_of(match["value"]) if match else ""
        if not says_something(value) or _EMPTY_DEEDS.match(phrase):
            continue
        name = _name_of(clause, attribute, value)
        return drafted(clause, voice, when, name, value_of(phrase) if name == "did" else value,
                       confidence=0.8 if when else 0.7)  # fmt: skip
    return None


def _shown(rest: str) -> str:
    """ "This cute bookmark", said while showing it, is "a cute bookmark" to everybody else."""
    match = _THIS.match(rest)
    if match is None:
        return rest
    after = rest[match.end() :]
    return ("an " if after[:1].lower() in "aeiou" else "a ") + after


def _name_of(clause: Clause, attribute: str, value: str) -> str:
    """Animals that somebody got are pets; what else was adopted is a deed."""
    animal = any(word in nouns.PETS for word in re.findall(r"\w+", value.lower())[:6])
    if clause.lemma in ("adopt", "get", "buy") and animal and not re.search(
        r"\b(?:food|treats?|bed|toys?|collar|house|cage|tank|leash)\b", value
    ):  # fmt: skip
        return "has_pet"
    return "did" if clause.lemma == "adopt" else attribute


_UNDERTAKINGS = word_set(
    "research study read write build develop design learn organize organise plan train apply "
    "prepare create volunteer teach mentor renovate practice practise play paint explore take "
    "attend host run refactor migrate implement test collect plant work watch date see launch "
    "raise grow manage make expand coach save try"
)


def _undertaking(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    value = value_of(clause.rest)
    if clause.lemma in ("try", "make", "see", "take", "run", "grow", "work") and (
        not re.match(r"(?:an?|on|to learn|classes|lessons|courses)\b", value)
    ):
        return None
    if not says_something(re.sub(r"^(?:on|for|at|to|about|in|with) ", "", value)):
        return None
    return drafted(clause, voice, when, "working_on", f"{_gerund(clause)} {value}", confidence=0.8,
                  negated=clause.negated)  # fmt: skip


def _gerund(clause: Clause) -> str:
    return clause.verb.split()[-1]
