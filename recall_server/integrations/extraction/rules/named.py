"""Nouns that name an attribute: "my email is ...", "the deadline for X is ...", favourites."""

from __future__ import annotations

import re

from recall_server.domain.memory import MemoryType
from recall_server.integrations.extraction.rules.drafts import says_something, slug
from recall_server.integrations.extraction.rules.parsing import Clause
from recall_server.integrations.extraction.rules.states import SPEAKER, Reading, placed
from recall_server.integrations.extraction.rules.wording import value_of

NAMED = {
    "name": "name", "full name": "name", "first name": "name", "nickname": "nickname",
    "birthday": "birthday", "date of birth": "birthday", "age": "age", "email": "email",
    "e-mail": "email", "email address": "email", "phone number": "phone", "phone": "phone",
    "number": "phone", "cell": "phone", "address": "address", "job": "job_title",
    "title": "job_title", "job title": "job_title", "position": "job_title",
    "role": "job_title", "profession": "job_title",
    "timezone": "timezone", "time zone": "timezone", "pronouns": "pronouns", "hometown": "from",
    "deadline": "deadline", "due date": "deadline", "launch date": "release_date",
    "release date": "release_date", "start date": "start_date", "budget": "budget",
    "native language": "native_language", "mother tongue": "native_language",
    "first language": "native_language", "goal": "goal", "aim": "goal", "plan": "plans",
    "dream": "goal", "hobby": "hobby", "main hobby": "hobby", "salary": "salary",
    "process": "process", "manager": "reports_to", "boss": "reports_to",
}  # fmt: skip
_FAVOURITE = re.compile(
    r"(?:all[- ]time )?favou?rite (?P<what>[\w -]{2,40}?)(?: of all time)?$", re.IGNORECASE
)
_FAVOURITE_END = re.compile(
    r"(?P<value>)(?:one of )?(?:my|our|their|his|her|the user's)?\s?(?:all[- ]time )?"
    r"favou?rite (?P<what>[\w -]{2,40})",
    re.IGNORECASE,
)
SPECIFIC = re.compile(
    r"\d|https?://|\b[A-Z][a-z]+|\b[A-Z]{2,}|@|\b(?:daily|weekly|monthly|every)\b"
)
LISTED = re.compile(r"(?P<noun>[\w -]+?) (?:for|of|on) (?P<thing>(?:the )?[\w .-]{2,40})$")
_PLAIN = ("deadline", "process", "goal", "plans", "hobby", "job_title")


def attribute(clause: Clause) -> Reading | None:
    """What is whose: "My email is ..." gives the owner's, "My dog's name is Rex" the dog's."""
    owner, noun = clause.subject.entity, re.sub(r"^(?:new|current) ", "", clause.subject.noun)
    inner = re.fullmatch(r"([\w -]+)'s? ([\w -]+)", noun)
    if inner:
        owner, noun = f"{owner}'s {inner[1]}", inner[2]
    value = value_of(re.sub(r"^(?:called|named) ", "", clause.rest))
    favourite = _FAVOURITE.match(noun)
    if favourite:
        kind = MemoryType.PREFERENCE
        if not says_something(value):
            return None
        return Reading(f"favorite_{slug(favourite['what'])}", value, kind, entity=owner)
    known = NAMED.get(noun.lower())
    if known in _PLAIN and not says_something(re.sub(r"^to ", "", value)):
        return None
    if (
        known
        and value
        and not re.match(r"(?:to (?:be|make|get|keep)|not|so|very|going|it)\b", value)
    ):
        return Reading(known, value, entity=owner)
    listed = LISTED.match(noun)
    if listed and listed["noun"].lower() in NAMED:
        return Reading(NAMED[listed["noun"].lower()], value, entity=listed["thing"])
    somewhere = placed(clause.rest)
    if somewhere and not inner:
        return somewhere
    if SPECIFIC.search(value) and says_something(value) and len(value.split()) <= 8:
        return Reading(slug(noun), value, confidence=0.7, entity=owner)
    return None


def former(clause: Clause) -> Reading | None:
    """What no longer holds: "My old address was 12 Elm St."."""
    old = re.match(r"(?:old|former|previous|last) (?P<noun>.+)", clause.subject.noun)
    known = NAMED.get(old["noun"].lower()) if old else None
    value = value_of(clause.rest)
    if known is None or clause.tense != "past" or not says_something(value):
        return None
    return Reading(known, value, negated=True, entity=clause.subject.entity)


def who(clause: Clause) -> Reading | None:
    """Whose name: "My manager is Helena Ortiz" tells of the speaker who their manager is."""
    name = re.match(
        r"(?P<value>[A-Z][\w.'-]*(?: [A-Z][\w.'-]*){0,3})(?=$|[ .,])",
        clause.rest,
    )
    if clause.subject.kind != "owned" or name is None:
        return None
    noun = re.sub(r"^(?:new|current) ", "", clause.subject.noun.lower())
    return Reading(NAMED.get(noun, slug(noun)), name["value"], entity=clause.subject.entity)


def favourite_at_end(clause: Clause) -> Reading | None:
    match = _FAVOURITE_END.match(clause.rest)
    if match is None or clause.subject.kind not in ("name", "thing"):
        return None
    if not re.search(r"\b(?:my|our|user's)\b", clause.rest[:16], re.IGNORECASE):
        return None
    what = slug(value_of(match["what"]))
    attribute = "likes" if clause.rest.startswith("one of") else f"favorite_{what}"
    return Reading(attribute, clause.subject.shown, MemoryType.PREFERENCE, entity=SPEAKER)
