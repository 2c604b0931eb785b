"""What somebody has done: the table of deeds, and how it is read."""

from __future__ import annotations

import re
from dataclasses import replace

from recall_server.integrations.extraction.rules import nouns
from recall_server.integrations.extraction.rules.dates import When
from recall_server.integrations.extraction.rules.drafts import (
    Draft,
    drafted,
    is_person,
    says_something,
)
from recall_server.integrations.extraction.rules.parsing import Clause
from recall_server.integrations.extraction.rules.predicates import DONE
from recall_server.integrations.extraction.rules.subjects import Voice
from recall_server.integrations.extraction.rules.verbs import word_set
from recall_server.integrations.extraction.rules.wording import value_of

_GO_VISITED = (
    r"(?:(?:back|over|out|up|down|away) )?(?:to|on) "
    r"(?P<value>(?:an?|the|my|our|this|[A-Z]|\w+ing).+)"
)
_THING = (
    r"(?P<value>(?:an?|the|my|our|some|two|three|four|five|\d+|[A-Z][\w'-]+|\"|new|another|more)"
    r" ?.+)"
)
_EVENTS: tuple[tuple[str, str, str], ...] = (
    ("go travel fly drive", _GO_VISITED, "visited"),
    ("go", r"(?P<value>\w{3,}ing\b.*)", "did"),
    ("visit explore", r"(?P<value>.+)", "visited"),
    ("return get come", r"back from (?P<value>.+)", "visited"),
    ("attend", r"(?P<value>.+)", "attended"),
    (
        "volunteer participate present speak perform compete",
        r"(?:at|in|for|with|on) (?P<value>.+)",
        "attended",
    ),
    ("buy purchase order rent", _THING, "bought"),
    ("adopt", _THING, "has_pet"),
    (
        "get receive earn land",
        (
            r"(?P<value>(?:an?|my|our|some|two|three|\d+|the|[A-Z]\w+|new|"
            r"promoted|hired|fired|laid off|married|engaged|divorced|accepted|into) ?.*)"
        ),
        "received",
    ),
    (
        (
            "make paint cook bake build write create design draw develop sew knit carve plant"
            " compose film"
            " record photograph publish post"
        ),
        _THING,
        "made",
    ),
    ("start launch open begin", r"(?!(?:to feel|feeling|off|out|over)\b)(?P<value>.+)", "started"),
    ("finish complete release ship deploy merge submit", r"(?P<value>.+)", "finished"),
    ("graduate", r"(?:from )?(?P<value>(?!to\b).+)", "studied"),
    (
        "join sign enroll enrol register",
        r"(?:(?:up )?(?:for|to|with|in|as|at) )?(?!up\b|off\b|in\b)(?P<value>.+)",
        "joined",
    ),
    (
        "sign",
        r"(?P<value>(?:the|an?|our|my) (?:[\w-]+ )?(?:contract|lease|deal|agreement|papers?)\b.*)",
        "did",
    ),
    ("drop", r"out of (?P<value>.+)", "left"),
    ("leave quit retire resign", r"(?:from )?(?P<value>(?:my|our|the|a|[A-Z]).+)", "left"),
    ("lose", r"(?P<value>(?:my|our|the|a|an|[A-Z]).+)", "lost"),
    ("win", r"(?P<value>.+)", "won"),
    ("meet", r"(?!up\b)(?P<value>.+)", "met"),
    ("read", r"(?P<value>(?:\"|[A-Z]|an?|the|my|some|this|about).+)", "read"),
    ("watch see", r"(?P<value>(?:\"|[A-Z]|an?|the|my|our).+)", "watched"),
    (
        "learn discover",
        r"(?:that )?(?P<value>(?:about|how|an?|the|to|[A-Z]|\w+ing\b).+)",
        "learned",
    ),
    ("find", r"(?P<value>(?:an?|my|our|two|three|\d|[A-Z]).+)", "found"),
    (
        (
            "donate send give raise teach mentor organize organise host help run hike climb swim"
            " camp cycle"
            " bike walk take do try have hold fix upgrade downgrade install implement refactor"
            " rename test"
            " hire fire promote interview replace repair renovate celebrate marry propose injure"
            " break sell"
            " move decorate assemble serve support set bring pass fail schedule book throw"
            " become hurt"
            " sprain recover plan research study spend train practice practise collect play tour"
            " feed catch"
            " end pay clean announce score wrap whip skype pick reconnect chat contribute"
            " accomplish achieve"
            " remodel secure recommend fund pitch negotiate upload automate document configure"
            " provision"
            " rotate revoke restore benchmark optimise optimize debug reproduce escalate resolve"
            " patch bump"
            " pin enable disable nominate elect appoint reschedule reserve inherit overhaul"
            " audit onboard"
            " apply tune replace cancel postpone share reach"
        ),
        r"(?P<value>.+)",
        "did",
    ),
)
"""Deeds worth remembering: (verbs, what must follow, attribute); past and perfect tense only."""


def _event_table() -> dict[str, tuple[tuple[re.Pattern[str], str], ...]]:
    table: dict[str, tuple[tuple[re.Pattern[str], str], ...]] = {}
    for lemmas, pattern, attribute in _EVENTS:
        for lemma in lemmas.split():
            table[lemma] = (*table.get(lemma, ()), (re.compile(pattern), attribute))
    return table


_DEEDS = _event_table()


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
        (
            re.compile(
                r"(?P<value>(?:an?|the|my|our|their|two|three|four|five|\d+|(?:with|from|to"
                r"|into|in|for) (?:[A-Z]|(?:an?|the|my|our) )|me to (?:an?|the|my) ).+)"
            ),
            "did",
        ),
    )
}


_THAT = re.compile(
    r"that (?=\w+(?: (?!(?:is|was|i|we|he|she|they|it|can)\b)|$))|" + _THIS.pattern, re.IGNORECASE
)


def deed(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    """What somebody has done."""
    if not is_person(clause):
        return None
    if clause.tense not in DONE or clause.negated:
        return None
    if clause.lemma == "-ed" and _NO_DEEDS.match(clause.verb.split()[-1]):
        return None
    clause = replace(clause, rest=_shown(clause.rest, clause.lemma))
    if clause.lemma == "have" and when is None and not _OCCASION.search(clause.rest):
        return None
    phrase = f"{clause.verb.split()[-1]} {clause.rest}"
    for pattern, attribute in _DEEDS.get(clause.lemma, ()) or _OTHERS.get(clause.lemma, ()):
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
    r"|accident|replacement|biopsy|transplant|stroke|heart attack|miscarriage|check-?up|vaccin\w+"
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
    if attribute == "visited" and clause.lemma == "go" and nouns.EVENTS.search(value):
        return "attended"
    if (adopted or (animal and clause.lemma in ("get", "buy"))) and not _NO_ANIMAL.search(value):
        return "has_pet"
    return "did" if adopted else attribute
