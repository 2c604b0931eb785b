"""What "is" says: age, origin, occupation, state, or the value of a named attribute."""

from __future__ import annotations

import re

from recall_server.integrations.extraction.rules import nouns
from recall_server.integrations.extraction.rules.dates import When
from recall_server.integrations.extraction.rules.drafts import (
    Draft,
    drafted,
    is_person,
    says_something,
    slug,
)
from recall_server.integrations.extraction.rules.named import (
    LISTED,
    NAMED,
    SPECIFIC,
    attribute,
    favourite_at_end,
    former,
    who,
)
from recall_server.integrations.extraction.rules.parsing import Clause
from recall_server.integrations.extraction.rules.states import SPEAKER, Reading, first_state, placed
from recall_server.integrations.extraction.rules.subjects import Voice
from recall_server.integrations.extraction.rules.wording import place_of, value_of

_KIND = re.compile(r"(?P<value>(?:an?|the|our|my) (?P<noun>[^,.;]{2,60}))")
_NOT_OLD = re.compile(r", (?:and )?not (?:on |in |at )?(?P<old>[^,.]{2,40})$")


def being(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    """What a clause with "be" (or "is called") says of its subject."""
    if clause.lemma not in ("be", "call", "name", "base"):
        return None
    reading = _reading(clause)
    if reading is None:
        return None
    old = _NOT_OLD.search(clause.rest)
    return drafted(clause, voice, when, reading.attribute, reading.value, type_=reading.type,
                   confidence=reading.confidence,
                   entity=voice.entity if reading.entity == SPEAKER else reading.entity,
                   negated=clause.negated is not reading.negated, correction=bool(old),
                   replaces=old["old"].strip() if old else None)  # fmt: skip


def _reading(clause: Clause) -> Reading | None:
    if clause.lemma in ("call", "name"):
        return _called(clause)
    if clause.tense in ("past", "past_ing", "will", "would", "can"):
        return _birth(clause) or former(clause) or _to_come(clause) or _stayed(clause)
    if clause.subject.kind == "owned" and not is_person(clause):
        return attribute(clause)
    favourite = favourite_at_end(clause)
    if favourite:
        return favourite
    if clause.subject.kind == "thing" and not is_person(clause):
        return _thing(clause)
    found = first_state(clause.rest)
    if found or clause.lemma != "be":
        return found
    return _kind(clause) or who(clause) or _tool(clause)


def _called(clause: Clause) -> Reading | None:
    name = re.match(r"(?P<value>[A-Z][\w.'-]*(?: [A-Z\d][\w.'-]*){0,3})", clause.rest)
    if name is None or clause.subject.kind in ("i", "we", "both"):
        return None
    return Reading("name", name["value"].rstrip("."))


def _stayed(clause: Clause) -> Reading | None:
    """Where somebody was: "I was in Chicago last week"."""
    there = re.match(r"(?:back |over |out )?in (?P<value>(?:the )?[A-Z].+)", clause.rest)
    value = place_of(there["value"]) if there else ""
    if clause.tense != "past" or not is_person(clause) or not says_something(value):
        return None
    return Reading("visited", value, confidence=0.7)


def _to_come(clause: Clause) -> Reading | None:
    """Where or when a thing will be: "Our offsite will be in Ghent"."""
    return None if clause.tense != "will" or is_person(clause) else placed(clause.rest)


def _tool(clause: Clause) -> Reading | None:
    """What is in use: "We're on Python 3.12"."""
    on = re.match(r"(?:still |all )?on (?P<value>.+)", clause.rest)
    value = place_of(on["value"]) if on else ""
    kind = nouns.category(value)
    if kind is None or clause.subject.kind not in ("i", "we", "name"):
        return None
    return Reading(f"uses_for_{kind}", value)


# "I'm Dana", but not "I'm German" or "I'm Swiss".
_OWN_NAME = re.compile(
    r"(?P<value>(?![A-Z]\w*(?:ish|ese|ian|ean|ican|tan|ic|ss|ch|lim|ew|ist|ant|ox|man)\b)"
    r"[A-Z][a-z]+(?: [A-Z][a-z]+)?)(?=$|,| and )"
)


def _birth(clause: Clause) -> Reading | None:
    match = re.match(r"(?:born|raised|born and raised) in (?P<value>[A-Z].+)", clause.rest)
    year = re.match(r"born (?:on|in) (?P<value>(?:[A-Z]\w+ )?\d.+)", clause.rest)
    if year and is_person(clause):
        return Reading("birthday", value_of(year["value"]))
    if match and is_person(clause):
        return Reading("from", place_of(match["value"]))
    return None


def _thing(clause: Clause) -> Reading | None:
    noun, value = clause.subject.noun, value_of(clause.rest)
    listed = LISTED.match(noun)
    if listed and listed["noun"].lower() in NAMED and value:
        entity = re.sub(r"^the ", "", listed["thing"])
        return Reading(NAMED[listed["noun"].lower()], value, entity=entity)
    if noun.lower() in NAMED and noun.lower() not in (
        "goal",
        "plan",
        "number",
        "name",
        "title",
        "dream",
    ):
        return (
            Reading(NAMED[noun.lower()], value, entity="team") if SPECIFIC.search(value) else None
        )
    somewhere = placed(clause.rest)
    if somewhere:
        return somewhere
    state = first_state(clause.rest)
    if state and state.attribute in ("deadline", "hosted_on", "written_in", "lives_in"):
        attribute = "located_in" if state.attribute == "lives_in" else state.attribute
        return Reading(attribute, state.value, confidence=0.9)
    if SPECIFIC.search(value) and says_something(value) and len(value.split()) <= 7:
        if nouns.SHARED.search(noun):  # as "our staging database" would be
            return Reading(slug(noun), value, confidence=0.7, entity="team")
        return Reading("is", value, confidence=0.7)
    return None


def _kind(clause: Clause) -> Reading | None:
    """What somebody is: an occupation, or another kind where the speaker claims it."""
    match = _KIND.match(clause.rest)
    name = _OWN_NAME.match(clause.rest)
    if name and clause.subject.kind == "i" and not clause.weak and not clause.negated:
        return Reading("name", name["value"], confidence=0.7)
    if match is None or clause.tense not in ("present", "perfect"):
        return None
    value = place_of(match["value"])
    if value.lower().startswith("my ") and clause.subject.kind == "name":
        return _relation(value[3:], clause)
    if value.lower().startswith(("the ", "our ")):
        found = (nouns.ROLE.match(value[4:]) or nouns.is_occupation(value)) and is_person(clause)
        return Reading("job_title", value_of(match["value"])[4:]) if found else None
    if not is_person(clause) or _judges(value) or not says_something(value):
        return None
    if nouns.is_occupation(value):
        return Reading("job_title", value)
    # What a speaker calls themselves is worth keeping; what others are called is mostly praise.
    return (
        Reading("is_a", value, confidence=0.7)
        if (clause.subject.kind == "i" and not clause.weak) or clause.subject.is_pet
        else None
    )


def _relation(noun: str, clause: Clause) -> Reading | None:
    """Whose what: "Bob is my manager" tells of the speaker to whom they report."""
    last = noun.rsplit(maxsplit=1)[-1].lower() if noun else ""
    if last not in nouns.PEOPLE:
        return None
    name = "reports_to" if last in ("boss", "manager") else last
    return Reading(name, clause.subject.shown, entity=SPEAKER)


_PRAISE = re.compile(
    r"\b(?:good|great|amazing|awesome|incredible|natural|wonderful|true|real|best|inspiring"
    r"|fantastic"
    r"|perfect|bit|lot|little|mess|huge|ton|sucker|wreck|tad|step|way|fan|must|big|better|keeper"
    r"|winner|lifesaver|stress|road|ride|journey|day|week|time|year|whole|while|part|blast"
    r"|beginner|work)\b",
    re.IGNORECASE,
)


def _judges(value: str) -> bool:
    return _PRAISE.search(value) is not None
