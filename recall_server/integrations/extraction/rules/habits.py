"""What somebody does as a rule, can do, or is busy with."""

from __future__ import annotations

import re

from recall_server.domain.memory import MemoryType
from recall_server.integrations.extraction.rules.dates import When
from recall_server.integrations.extraction.rules.drafts import (
    Draft,
    drafted,
    is_person,
    says_something,
)
from recall_server.integrations.extraction.rules.parsing import Clause
from recall_server.integrations.extraction.rules.subjects import Voice
from recall_server.integrations.extraction.rules.verbs import word_set
from recall_server.integrations.extraction.rules.wording import value_of

_OFTEN = re.compile(
    r"\b(?:every \d+ \w+|every (?:\w+ )?(?:morning|evening|night|day|week|weekend|month|year"
    r"|summer|winter|spring|fall"
    r"|\w+day)s?|(?:once|twice|three times|\w+ times) (?:a|per) (?:day|week|month|year)|on \w+days"
    r"|on weekends|daily|weekly|monthly|each (?:morning|week|day))\b",
    re.IGNORECASE,
)


def habit(clause: Clause, voice: Voice, _when: When | None) -> Draft | None:
    """What somebody always, never or regularly does."""
    if clause.tense != "present" or clause.lemma in ("be", "have"):
        return None
    if not is_person(clause) and clause.subject.kind not in ("thing", "owned"):
        return None
    adverb = re.search(r"\b(?:always|never|usually)\b", clause.verb)
    often = _OFTEN.search(clause.rest)
    away = clause.lemma == "work" and _WORKING.match(clause.rest)
    never = adverb is not None and adverb[0] == "never"
    off = often is not None and adverb is None and often[0].startswith(("on ", "every "))
    denied = clause.negated and not off and not never
    if not (adverb or often) or denied or (clause.lemma in _FEELINGS and not away):
        return None
    value = value_of(clause.rest, whole=True)
    bare = _OFTEN.sub("", value).strip()
    if (bare and not says_something(bare)) or not (bare or often):
        return None
    kind = (
        MemoryType.PROCEDURE
        if re.search(r"\b(?:before|after|then)\b", value)
        else MemoryType.PREFERENCE
    )
    name = adverb[0] if adverb and adverb[0] in ("always", "never") else "habit"
    return drafted(clause, voice, None, name, f"{clause.lemma} {value}",
                   negated=clause.negated and name != "never",
                   type_=MemoryType.FACT if name == "habit" else kind)  # fmt: skip


_WORKING = re.compile(r"(?:from|remotely|late|part|full|nights|early|on|in the|until)\b")
_FEELINGS = word_set("prefer like love hate enjoy want need feel live work use know think")


_ACTIVITIES = word_set(
    "write teach paint cook bake make build run volunteer coach mentor design sing dance knit sew"
    " garden camp hike swim surf jog climb collect manage lead host organize organise play study"
    " maintain review deploy practice practise train sell rent help"
)


_KEPT = word_set(
    "store log archive rotate monitor track cache record document schedule release ship"
)
_ABSTAINED = word_set("drink smoke drive swim cook dance ski run")


def activity(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    """What somebody does as a rule: "I write articles on fantasy novels"."""
    if clause.tense != "present" or not is_person(clause):
        return None
    kept = clause.lemma in _KEPT and clause.subject.kind == "we"
    value = value_of(clause.rest, whole=kept)
    if clause.lemma in _ABSTAINED and clause.negated and value in ("", "anymore", "any more"):
        return drafted(clause, voice, when, "habit", clause.lemma, negated=True)
    if clause.lemma not in _ACTIVITIES and not kept:
        return None
    if clause.subject.kind not in ("i", "we", "name", "owned") or not says_something(
        re.sub(r"^(?:in|at|on|with|for|about|to) ", "", value)
    ):
        return None
    if clause.lemma in ("make", "run", "help", "lead") and not re.match(
        r"(?:an?|my|our|[a-z]+s)\b", value
    ):
        return None
    return drafted(clause, voice, when, "habit", f"{clause.lemma} {value}", confidence=0.7,
                   negated=clause.negated)  # fmt: skip


_CAN = word_set("attend eat drink work join drive swim use access deploy read speak ride host")


def ability(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    """What somebody can or cannot do: "I can't attend meetings on Wednesdays"."""
    if clause.tense != "can" or clause.lemma not in _CAN or clause.subject.kind == "thing":
        return None
    value = value_of(clause.rest)
    if not says_something(re.sub(r"^(?:in|at|on|with|to) ", "", value)):
        return None
    return drafted(clause, voice, when, "can", f"{clause.lemma} {value}", negated=clause.negated)


_UNDERTAKINGS = word_set(
    "research study read write build develop design learn organize organise plan train apply "
    "prepare create hire recruit redesign evaluate pilot volunteer teach mentor renovate"
    " practice practise play paint explore take "
    "attend host run refactor migrate implement test collect plant work watch date see launch "
    "raise grow manage make expand coach save try"
)


def undertaking(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    if clause.tense not in ("progressive", "perfect_ing") or clause.lemma not in _UNDERTAKINGS:
        return None
    if clause.subject.inanimate or clause.subject.kind == "thing":
        return None
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
