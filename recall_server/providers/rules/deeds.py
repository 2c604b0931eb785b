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
    r"^(?:took|take|taken|gave|given|got|had|did|made|put|held|kept|tried|set|found|ran|hit"
    r"|caught|felt"
    r"|brought|helped|broke|passed|ended|played|threw|fed|paid|served)\b.{0,12}?\b(?:a (?:lot"
    r"|look|break"
    r"|deep breath|hit|toll|chance|while|blast|great time|good time|difference|shot|try|moment|step"
    r"|bit|hard time|go)|(?:so )?(?:much|many|well|hard|great|amazing)|time|part"
    r"|place|care|sense|joy|peace|strength|courage|smile|fun|memories|hope|advantage|motivation"
    r"|comfort"
    r"|inspiration|perspective|to (?:know|see|hear|be|go|do|take|learn|have))\b",
    re.IGNORECASE,
)


_THIS = re.compile(
    r"\b(?:this) (?=(?:\w+ ){0,3}\w+)(?!(?:year|month|week|weekend|morning|summer|winter|and|is"
    r"|in|on"
    r"|at|for|with|to|when|last|one|yesterday)\b)",
    re.IGNORECASE,
)


_NO_DEEDS = re.compile(
    r"(?:realiz|realis|notic|appreciat|want|need|lik|lov|enjoy|hat|remind|motivat|inspir|wonder|hop"
    r"|wish|miss|cherish|deserv|believ|seem|look|support|encourag|ask|talk|head|bless|turn|stay"
    r"|wait|manag|struggl|dream|imagin|suppos|guess|admir|worri|thank)ed$"
)
_OTHERS = {
    "-ed": (
        (re.compile(r"(?P<value>(?:an?|the|my|our|two|three|four|five|\d+|with [A-Z]).+)"), "did"),
    )
}


_THAT = re.compile(
    r"that (?=\w+(?: (?!(?:is|was|i|we|he|she|they|it|can)\b)|$))|" + _THIS.pattern, re.IGNORECASE
)


def deed(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    if clause.subject.kind == "thing" or (clause.subject.kind == "owned" and not is_person(clause)):
        return None
    if clause.tense in ("progressive", "perfect_ing") and clause.lemma in _UNDERTAKINGS:
        return _undertaking(clause, voice, when)
    if clause.tense not in DONE or clause.negated:
        return None
    if clause.lemma == "-ed" and _NO_DEEDS.match(clause.verb.split()[-1]):
        return None
    clause = replace(clause, rest=_shown(clause.rest, clause.lemma))
    if clause.lemma == "have" and when is None and not _OCCASION.search(clause.rest):
        return None
    phrase = f"{clause.verb.split()[-1]} {clause.rest}"
    for pattern, attribute in DEEDS.get(clause.lemma, ()) or _OTHERS.get(clause.lemma, ()):
        match = pattern.match(clause.rest)
        value = value_of(match["value"]) if match else ""
        if not says_something(value) or _EMPTY_DEEDS.match(phrase):
            continue
        name = _name_of(clause, attribute, value)
        return drafted(clause, voice, when, name, value_of(phrase) if name == "did" else value,
                       confidence=0.8 if when else 0.7)  # fmt: skip
    return None


_OCCASION = re.compile(
    r"\b(?:picnic|party|meeting|interview|surgery|operation|baby|audition|wedding|appointment"
    r"|accident"
    r"|conversation|chat|workshop|session|dinner|lunch|barbecue|bbq|date|race|match|concert|show"
    r"|exam"
    r"|outage|incident|retro|retrospective|review|call|kickoff|demo|standup|migration|holiday"
    r"|vacation"
    r"|trip|reunion|funeral|birthday|anniversary|dance|visit|visitors?|class|lesson|scan|\d+)\b",
    re.IGNORECASE,
)
_MAKING = word_set("paint make buy build write draw bake cook knit sew film record carve plant")


def _shown(rest: str, lemma: str) -> str:
    """Said while showing it, "this cute bookmark" is "a cute bookmark" to everybody else."""
    match = (_THAT if lemma in _MAKING else _THIS).match(rest)
    if match is None:
        return rest
    after = rest[match.end() :]
    return ("an " if after[:1].lower() in "aeiou" else "a ") + after


_NO_ANIMAL = re.compile(
    r"\b(?:food|treats?|bed|toys?|collar|house|cage|tank|leash|child|children|baby|boy|girl"
    r"|kids?|son"
    r"|daughter|polic\w+|approach|practice|process|tool|standard|convention|habit|attitude"
    r"|lifestyle"
    r"|name|strategy|system|framework|model|style|resolution|technology|road|highway)\b",
    re.IGNORECASE,
)


def _name_of(clause: Clause, attribute: str, value: str) -> str:
    """Animals that somebody got are pets, and so is what people adopt, unless it cannot be one."""
    animal = any(word in nouns.PETS for word in re.findall(r"\w+", value.lower())[:6])
    adopted = clause.lemma == "adopt"
    if (adopted or (animal and clause.lemma in ("get", "buy"))) and not _NO_ANIMAL.search(value):
        return "has_pet"
    return "did" if adopted else attribute


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
    if not says_something(re.sub(r"^(?:on|at|to|about|in|with) ", "", value)):
        return None
    return drafted(clause, voice, when, "working_on", f"{_gerund(clause)} {value}", confidence=0.8,
                  negated=clause.negated)  # fmt: skip


def _gerund(clause: Clause) -> str:
    return clause.verb.split()[-1]
