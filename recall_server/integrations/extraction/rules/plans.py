"""What somebody is going to do, or would like to."""

from __future__ import annotations

import re

from recall_server.domain.memory import MemoryType
from recall_server.integrations.extraction.rules import nouns
from recall_server.integrations.extraction.rules.dates import When
from recall_server.integrations.extraction.rules.drafts import (
    Draft,
    drafted,
    of_speaker,
    says_something,
)
from recall_server.integrations.extraction.rules.parsing import Clause
from recall_server.integrations.extraction.rules.subjects import Voice
from recall_server.integrations.extraction.rules.verbs import word_set
from recall_server.integrations.extraction.rules.wording import value_of

_CHATTER = re.compile(
    r"^(?:be|keep|make \w+ dreams?|continue|say|see (?:you|how|it|what|that|if|more|where)|hear"
    r"|let|try to|try my|keep (?:you|going|it"
    r"|up|my|pushing|trying|working)|make sure"
    r"|miss|take care|cherish|support|cheer|look|remember|check|give|help|tell|show|send|share"
    r"|ask|talk"
    r"|call|think|love|need|want|always|definitely|do (?:my|that|it)|feel|get through|get (?:it"
    r"|that|there)"
    r"|never|have (?:fun|a (?:great|good|blast))|thank|know|never)\b",
    re.IGNORECASE,
)


def plan(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    """What somebody is going to do, or will do at a stated time."""
    ahead = clause.tense in ("going", "will")
    if (
        clause.tense == "progressive"
        and when
        and re.match(r"(?:by |around |week of |weekend of )?", when.shown)
    ):
        ahead = clause.lemma in _ARRANGED
    if clause.tense == "present" and when and not when.begins:
        ahead = clause.lemma in _TIMETABLED
    if (
        not ahead
        or (clause.subject.inanimate and clause.tense != "present")
        or clause.lemma == "be"
    ):
        return None
    if clause.tense == "will" and (when is None or clause.negated):
        return None
    rest = value_of(_for_somebody(clause, voice))
    value = f"{_base(clause)} {rest}"
    if not says_something(re.sub(r"^(?:for|with|to) (?=the user|[A-Z])", "", rest)):
        return None
    if _CHATTER.match(value):
        return None
    return drafted(clause, voice, when, "plans", value, confidence=0.9 if when else 0.7,
                  negated=clause.negated, ahead=True)  # fmt: skip


_TIMETABLED = word_set("start begin open launch leave arrive fly close return join move")
_ARRANGED = word_set(
    "go fly travel move meet visit start leave get have take host run attend launch open join "
    "return present release ship begin marry"
)


def _for_somebody(clause: Clause, voice: Voice) -> str:
    """In what others will do, "me" is the speaker: "cover for me" is "cover for the user"."""
    others = clause.subject.kind in ("name", "owned", "thing")
    return of_speaker(clause.rest, voice) if others else clause.rest


def _base(clause: Clause) -> str:
    return {"progressive": clause.verb.split()[-1]}.get(clause.tense, clause.lemma)


def wish(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    """What somebody would like, or would rather have."""
    if clause.tense != "would":
        return None
    likes = re.match(r"to (?P<value>.+)", clause.rest)
    if clause.lemma in ("like", "love") and likes:
        value = value_of(likes["value"])
        if says_something(value) and not _CHATTER.match(value):
            return drafted(clause, voice, when, "wants", value, type_=MemoryType.PREFERENCE,
                          confidence=0.7, negated=clause.negated)  # fmt: skip
    if clause.lemma in ("prefer", "rather"):
        match = re.match(
            r"(?:to )?(?:(?P<value>.+?) (?:than|over|to|instead of) .+|(?P<all>.+))", clause.rest
        )
        value = value_of((match["value"] or match["all"]) if match else "")
        if says_something(value) and not re.match(r"(?:be|die|say|see|not)\b", value):
            kind = nouns.category(value)
            name = f"preferred_{kind}" if kind else "prefers"
            return drafted(clause, voice, when, name, value, type_=MemoryType.PREFERENCE,
                          confidence=0.9, negated=clause.negated)  # fmt: skip
    return None
