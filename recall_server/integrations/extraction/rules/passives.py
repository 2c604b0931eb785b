"""What was done to somebody or something: "I was promoted", "the bug was caused by a typo"."""

from __future__ import annotations

import re

from recall_server.integrations.extraction.rules.dates import When
from recall_server.integrations.extraction.rules.drafts import (
    Draft,
    drafted,
    is_person,
    says_something,
    slug,
)
from recall_server.integrations.extraction.rules.parsing import Clause
from recall_server.integrations.extraction.rules.subjects import Voice
from recall_server.integrations.extraction.rules.verbs import FORMS, word_set
from recall_server.integrations.extraction.rules.wording import place_of, value_of

_OF_PEOPLE = tuple(
    (re.compile(pattern), attribute)
    for pattern, attribute in (
        (r"(?:promoted|elevated) to (?:be )?(?P<value>.+)", "job_title"),
        (r"(?:hired|employed|recruited) as (?P<value>.+)", "job_title"),
        (r"(?:hired|employed|recruited) (?:by|at) (?P<value>.+)", "works_at"),
        (r"(?:appointed|elected|named)(?: as)? (?P<value>.+)", "job_title"),
        (r"diagnosed with (?P<value>.+)", "condition"),
        (r"(?:accepted|admitted)(?: in)?(?:to| by| at) (?P<value>.+)", "joined"),
        (r"(?:awarded|given|granted|offered|handed) (?P<value>(?:an?|the|\d+|two|three) .+)",
         "received"),
        ((r"(?P<value>(?:promoted|hired|fired|laid off|let go|made redundant|dismissed|evicted"
         r"|robbed|mugged|hospitali[sz]ed|injured|nominated for .+|discharged|operated on"
         r"|invited to (?:an?|the) .+)\b.*)"), "did"),
    )
)  # fmt: skip
_DONE = (
    r"caused|fixed|written|built|created|owned|maintained|designed|introduced|approved|rejected"
    r"|postponed|cancelled|canceled|delayed|merged|released|deployed|migrated|moved|replaced"
    r"|renamed|deprecated|removed|scheduled|run|handled|reviewed|signed|encrypted|stored|backed up"
    r"|generated|assigned|limited|set|archived|sent|routed|delivered|published|pushed|logged"
    r"|hosted|kept|sponsored|organi[sz]ed|led|financed|funded|translated|restored"
)
_HOW = re.compile(rf"(?P<deed>{_DONE}) (?P<how>by|to|on|in|from|at|with|until|for) (?P<value>.+)")
_STATES = word_set(
    "postponed cancelled canceled delayed approved rejected merged released deployed deprecated"
    " finished completed closed launched shipped reverted resolved"
)
_STATUS = re.compile(
    rf"(?P<value>(?:{_DONE}|finished|completed|closed|launched|shipped|rolled back|reverted|paid"
    r"|sold|stolen|renewed|shut down|repaired|resolved|called off|extended|solved|lost|broken"
    r"|destroyed|damaged|upgraded|updated|tested|opened))(?P<rest>$|[ .,].*)"
)


def passive(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    """What a clause says was done to its subject."""
    if clause.lemma != "be" or clause.tense not in ("past", "perfect", "present"):
        return None
    if is_person(clause):
        found = _of_people(clause, voice, when)
        if found or clause.subject.kind in ("i", "we", "both"):
            return found
    return _of_things(clause, voice, when)


def _of_people(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    if clause.tense == "present" or clause.negated:
        return None
    for pattern, attribute in _OF_PEOPLE:
        match = pattern.match(clause.rest)
        if match is None:
            continue
        cut = place_of if attribute in ("job_title", "works_at") else value_of
        value = cut(match["value"])
        if says_something(value):
            value = f"was {value}" if attribute == "did" else value
            return drafted(clause, voice, when, attribute, value, confidence=0.8)
    return None


def _of_things(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    how = _HOW.match(clause.rest)
    value = value_of(how["value"]) if how else ""
    if how and says_something(value):
        timed = how["deed"] == "scheduled" and how["how"] != "by"
        attribute = "schedule" if timed else f"{slug(how['deed'])}_{how['how']}"
        return drafted(clause, voice, when, attribute, value, confidence=0.7,
                       negated=clause.negated)  # fmt: skip
    status = _STATUS.match(clause.rest)
    done = status["value"] if status else _participle(clause.rest)
    if done is None or is_person(clause) or (clause.tense == "present" and done not in _STATES):
        return None
    return drafted(clause, voice, when, "status", done, confidence=0.8,
                   negated=clause.negated)  # fmt: skip


def _participle(rest: str) -> str | None:
    """A single known participle: "The kitchen was renovated"."""
    word = value_of(rest)
    form = FORMS.get(word)
    return word if form and "part" in form.forms and form.lemma not in _FEELINGS else None


_FEELINGS = word_set(
    "like love enjoy adore hate hurt need want prefer get do go be have make mean feel know"
    " read see"
    " find take use try think say spend stay surprise"
)
