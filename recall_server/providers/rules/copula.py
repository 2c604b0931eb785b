"""What "is" says: age, origin, occupation, state, or the value of a named attribute."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recall_server.domain.model import MemoryType
from recall_server.providers.rules import nouns
from recall_server.providers.rules.clauses import Clause
from recall_server.providers.rules.drafts import is_person, says_something, slug
from recall_server.providers.rules.states import STATES
from recall_server.providers.rules.wording import place_of, value_of

_NAMED = {
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
_SPECIFIC = re.compile(
    r"\d|https?://|\b[A-Z][a-z]+|\b[A-Z]{2,}|@|\b(?:daily|weekly|monthly|every)\b"
)


_KIND = re.compile(r"(?P<value>(?:an?|the|our|my) (?P<noun>[^,.;]{2,60}))")
_LISTED = re.compile(r"(?P<noun>[\w -]+?) (?:for|of|on) (?P<thing>(?:the )?[\w .-]{2,40})$")


@dataclass(frozen=True)
class Reading:
    """What "is" was found to say."""

    attribute: str
    value: str
    type: MemoryType = MemoryType.FACT
    confidence: float = 0.9
    negated: bool = False
    entity: str | None = None  # another one than the subject: the owner of the attribute


def read_copula(clause: Clause) -> Reading | None:
    """What a clause with "be" says of its subject, or None."""
    if clause.tense in ("past", "past_ing", "will", "would", "can"):
        return _birth(clause) or _passive(clause)
    rest = clause.rest
    if clause.subject.kind == "owned" and not is_person(clause):
        return _attribute(clause)
    favourite = _favourite_at_end(clause)
    if favourite:
        return favourite
    if clause.subject.kind == "thing":
        return _thing(clause)
    found = _first_state(rest)
    if found or clause.lemma != "be":
        return found
    return _kind(clause) or _who(clause)


def _who(clause: Clause) -> Reading | None:
    """Whose name: "My manager is Helena Ortiz" tells of the speaker who their manager is."""
    name = re.match(
        r"(?:called |named )?(?P<value>[A-Z][\w.'-]*(?: [A-Z][\w.'-]*){0,3})(?=$|[ .,])",
        clause.rest,
    )
    if clause.subject.kind != "owned" or name is None:
        return _passive(clause)
    noun = clause.subject.noun.lower()
    return Reading(_NAMED.get(noun, slug(noun)), name["value"], entity=clause.subject.entity)


# "I'm Dana", but not "I'm German" or "I'm Swiss".
_OWN_NAME = re.compile(
    r"(?P<value>(?![A-Z]\w*(?:ish|ese|ian|ean|ican|tan|ic|ss|ch|lim|ew|ist|ant|ox|man)\b)"
    r"[A-Z][a-z]+(?: [A-Z][a-z]+)?)(?=$|,| and )"
)
_PASSIVE = re.compile(
    r"(?P<deed>caused|fixed|written|built|created|owned|maintained|designed|introduced|approved"
    r"|rejected|postponed"
    r"|cancelled|canceled|delayed|merged|released|deployed|migrated|moved|replaced|renamed"
    r"|deprecated|removed"
    r"|scheduled|run|handled|reviewed|signed|encrypted|stored|backed up|generated|assigned"
    r"|limited|set)"
    r" (?P<how>by|to|on|in|from|at|with|until|for) (?P<value>.+)"
)


def _passive(clause: Clause) -> Reading | None:
    """What was done to a thing: "The bug was caused by an expired certificate"."""
    match = _PASSIVE.match(clause.rest)
    value = value_of(match["value"]) if match else ""
    if match is None or clause.subject.kind not in ("thing", "owned", "name"):
        return None
    if not says_something(value):
        return None
    return Reading(f"{slug(match['deed'])}_{match['how']}", value, confidence=0.7)


def _birth(clause: Clause) -> Reading | None:
    match = re.match(r"(?:born|raised|born and raised) in (?P<value>[A-Z].+)", clause.rest)
    year = re.match(r"born (?:on|in) (?P<value>(?:[A-Z]\w+ )?\d.+)", clause.rest)
    if year and is_person(clause):
        return Reading("birthday", value_of(year["value"]))
    if match and is_person(clause):
        return Reading("from", place_of(match["value"]))
    return None


def _first_state(rest: str) -> Reading | None:
    for state in STATES:
        match = state.pattern.match(rest)
        if match is None:
            continue
        value = (place_of if state.place else value_of)(match["value"])
        if says_something(value) or state.attribute == "diet":
            denies = state.attribute.startswith("not ")
            return Reading(state.attribute.removeprefix("not "), value, state.type,
                           state.confidence, negated=denies)  # fmt: skip
    return None


_PLAIN = ("deadline", "process", "goal", "plans", "hobby", "job_title")


def _attribute(clause: Clause) -> Reading | None:
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
    known = _NAMED.get(noun.lower())
    if known in _PLAIN and not says_something(re.sub(r"^to ", "", value)):
        return None
    if (
        known
        and value
        and not re.match(r"(?:to (?:be|make|get|keep)|not|so|very|going|it)\b", value)
    ):
        return Reading(known, value, entity=owner)
    listed = _LISTED.match(noun)
    if listed and listed["noun"].lower() in _NAMED:
        return Reading(_NAMED[listed["noun"].lower()], value, entity=listed["thing"])
    named = clause.lemma in ("call", "name")
    if (named or _SPECIFIC.search(value)) and says_something(value) and len(value.split()) <= 8:
        return Reading(slug(noun), value, confidence=0.7, entity=owner)
    return None


def _thing(clause: Clause) -> Reading | None:
    noun, value = clause.subject.noun, value_of(clause.rest)
    listed = _LISTED.match(noun)
    if listed and listed["noun"].lower() in _NAMED and value:
        entity = re.sub(r"^the ", "", listed["thing"])
        return Reading(_NAMED[listed["noun"].lower()], value, entity=entity)
    if noun.lower() in _NAMED and noun.lower() not in (
        "goal",
        "plan",
        "number",
        "name",
        "title",
        "dream",
    ):
        return (
            Reading(_NAMED[noun.lower()], value, entity="team") if _SPECIFIC.search(value) else None
        )
    state = _first_state(clause.rest)
    if state and state.attribute in ("deadline", "hosted_on", "written_in", "lives_in"):
        attribute = "located_in" if state.attribute == "lives_in" else state.attribute
        return Reading(attribute, state.value, confidence=0.9)
    passive = _passive(clause)
    if passive:
        return passive
    at = re.match(r"(?:at|on|every|in) (?P<value>.*\d.*|\w+day.*)", clause.rest)
    if at and says_something(value):
        return Reading("schedule", value, confidence=0.7)
    if _SPECIFIC.search(value) and says_something(value) and len(value.split()) <= 7:
        return Reading("is", value, confidence=0.7)
    return None


def _favourite_at_end(clause: Clause) -> Reading | None:
    match = _FAVOURITE_END.match(clause.rest)
    if match is None or clause.subject.kind not in ("name", "thing"):
        return None
    if not re.search(r"\b(?:my|our|user's)\b", clause.rest[:16], re.IGNORECASE):
        return None
    what = slug(value_of(match["what"]))
    attribute = "likes" if clause.rest.startswith("one of") else f"favorite_{what}"
    return Reading(attribute, clause.subject.shown, MemoryType.PREFERENCE, entity="")


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
        if clause.subject.kind == "i" and not clause.weak
        else None
    )


def _relation(noun: str, clause: Clause) -> Reading | None:
    """Whose what: "Bob is my manager" tells of the speaker to whom they report."""
    last = noun.rsplit(maxsplit=1)[-1].lower() if noun else ""
    if last not in nouns.PEOPLE:
        return None
    name = "reports_to" if last in ("boss", "manager") else last
    return Reading(name, clause.subject.shown, entity="")


_PRAISE = re.compile(
    r"\b(?:good|great|amazing|awesome|incredible|natural|wonderful|true|real|best|inspiring|fantastic"
    r"|perfect|bit|lot|little|mess|huge|ton|sucker|wreck|tad|step|way|fan|must|big|better|keeper"
    r"|winner|lifesaver|stress|road|ride|journey|day|week|time|year|whole|while|part|blast|beginner|work)\b",
    re.IGNORECASE,
)


def _judges(value: str) -> bool:
    return _PRAISE.search(value) is not None
