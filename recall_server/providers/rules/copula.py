"""What "is" says: age, origin, occupation, state, the value of a named attribute ("my email is ...")."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recall_server.domain.model import MemoryType
from recall_server.providers.rules import nouns
from recall_server.providers.rules.clauses import Clause
from recall_server.providers.rules.drafts import is_person, says_something, slug
from recall_server.providers.rules.wording import place_of, value_of

_NAMED = {
    "name": "name", "full name": "name", "first name": "name", "nickname": "nickname",
    "birthday": "birthday", "date of birth": "birthday", "age": "age", "email": "email",
    "e-mail": "email", "email address": "email", "phone number": "phone", "phone": "phone",
    "number": "phone", "cell": "phone", "address": "address", "job": "job_title", "role": "job_title",
    "title": "job_title", "job title": "job_title", "position": "job_title", "profession": "job_title",
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


@dataclass(frozen=True)
class _Is:
    pattern: re.Pattern[str]
    attribute: str
    type: MemoryType = MemoryType.FACT
    confidence: float = 0.9
    place: bool = False


def _is(
    pattern: str, attribute: str, *, taste: bool = False, sure: bool = True, place: bool = False
) -> _Is:
    kind = MemoryType.PREFERENCE if taste else MemoryType.FACT
    return _Is(re.compile(pattern, re.IGNORECASE), attribute, kind, 0.9 if sure else 0.7, place)


_STATES = (
    _is(r"(?P<value>\d{1,3}) (?:years? old|yo|y/o)\b", "age"),
    _is(r"(?:turning )?(?P<value>\d{2})(?= now|$)", "age"),
    _is(r"(?:originally |actually )?from (?P<value>[A-Z].+)", "from", place=True),
    _is(r"(?:born|raised|born and raised) in (?P<value>[A-Z].+)", "from", place=True),
    _is(r"(?:currently |now )?(?:based|living) (?:in|out of|near) (?P<value>.+)", "lives_in", place=True),
    _is(r"(?:severely |very |mildly |also )?allergic to (?P<value>.+)", "allergic_to"),
    _is(r"(?P<value>\w+)[- ]intolerant", "allergic_to"),
    _is(nouns.DIETS.pattern, "diet"),
    _is(r"(?:happily |recently |newly |now )?(?:married|engaged) to (?P<value>[A-Z].+)", "partner"),
    _is(nouns.STATUSES.pattern, "relationship_status"),
    _is(r"(?:an? )?(?:big|huge|massive|avid|lifelong)?\s?fan of (?P<value>.+)", "likes", taste=True),
    _is(r"(?:really |very |super |so |big |totally |quite |pretty |also |always been |heavily )*(?:into"
        r"|keen on|fond of|crazy about|obsessed with|passionate about|addicted to|partial to) "
        r"(?P<value>.+)", "likes", taste=True),
    _is(r"(?:really |very |also |super |particularly |especially )*interested in (?P<value>.+)",
        "interested_in", taste=True),
    _is(r"(?:really |terribly |a bit |so )?(?:afraid|scared|terrified|sick|tired) of (?P<value>.+)",
        "dislikes", taste=True),
    _is(r"(?:primarily |currently )?(?:in charge of|responsible for) (?P<value>.+)", "responsible_for"),
    _is(r"(?:fluent|proficient) in (?P<value>.+)", "speaks"),
    _is(r"(?:also )?(?:called|named|nicknamed) (?P<value>[A-Z].+)", "name"),
    _is(r"(?:diagnosed with) (?P<value>.+)", "condition"),
    _is(r"(?P<value>pregnant|diabetic|dyslexic|autistic|colou?r[- ]?blind|left[- ]handed|deaf|asthmatic"
        r"|celiac|coeliac|transgender|gay|lesbian|bisexual|non-binary|queer|jewish|muslim|christian"
        r"|buddhist|hindu|catholic|atheist)\b", "condition"),
    _is(r"due (?:on |by )?(?P<value>.+)", "deadline"),
    _is(r"(?:hosted|deployed|running) (?:on|in|at) (?P<value>.+)", "hosted_on"),
    _is(r"written in (?P<value>.+)", "written_in"),
    _is(r"(?:an? )?(?:proud )?(?P<value>(?:single )?(?:mom|mum|mother|dad|father|parent) of .+)",
        "has_child"),
    _is(r"(?:currently )?(?P<value>(?:out of office|ooo|on (?:parental|maternity|paternity|sick)? ?leave"
        r"|on vacation|on holiday|on call|on-call)\b.*)", "status"),
    _is(r"(?:a |an )?(?:proud |active )?(?:member|part) of (?P<value>(?:an?|the|our|my|[A-Z]).+)",
        "member_of"),
    _is(r"(?:training|studying) to be(?:come)? (?P<value>.+)", "goal"),
)  # fmt: skip
_KIND = re.compile(r"(?P<value>(?:an?|the|our|my) (?P<noun>[^,.;]{2,60}))")
_LISTED = re.compile(r"(?P<noun>[\w -]+?) (?:for|of|on) (?P<thing>(?:the )?[\w .-]{2,40})$")


@dataclass(frozen=True)
class Reading:
    """What "is" was found to say."""

    attribute: str
    value: str
    type: MemoryType = MemoryType.FACT
    confidence: float = 0.9
    entity: str | None = None  # another one than the subject: the owner of the attribute


def read_copula(clause: Clause) -> Reading | None:
    """What a clause with "be" says of its subject, or None."""
    if clause.tense in ("past", "past_ing", "will", "would", "can"):
        return _birth(clause)
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
    return _kind(clause)


def _birth(clause: Clause) -> Reading | None:
    match = re.match(r"(?:born|raised|born and raised) in (?P<value>[A-Z].+)", clause.rest)
    year = re.match(r"born (?:on|in) (?P<value>(?:[A-Z]\w+ )?\d.+)", clause.rest)
    if year and is_person(clause):
        return Reading("birthday", value_of(year["value"]))
    if match and is_person(clause):
        return Reading("from", place_of(match["value"]))
    return None


def _first_state(rest: str) -> Reading | None:
    for state in _STATES:
        match = state.pattern.match(rest)
        if match is None:
            continue
        value = (place_of if state.place else value_of)(match["value"])
        if says_something(value) or state.attribute == "diet":
            return Reading(state.attribute, value, state.type, state.confidence)
    return None


def _attribute(clause: Clause) -> Reading | None:
    """ "My email is ..." gives the owner's email; "My dog's name is Rex" the dog's name."""
    owner, noun = clause.subject.entity, clause.subject.noun
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
    if known in ("deadline", "process") and not says_something(value):
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
    if _SPECIFIC.search(value) and says_something(value) and len(value.split()) <= 8:
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
    """ "I'm a nurse at Mercy" gives the occupation; other kinds only where they are said plainly."""
    match = _KIND.match(clause.rest)
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
    return Reading("is_a", value, confidence=0.7) if clause.subject.kind == "i" else None


def _relation(noun: str, clause: Clause) -> Reading | None:
    """ "Bob is my manager" tells of the speaker: to whom they report."""
    last = noun.rsplit(maxsplit=1)[-1].lower() if noun else ""
    if last not in nouns.PEOPLE:
        return None
    name = "reports_to" if last in ("boss", "manager") else last
    return Reading(name, clause.subject.shown, entity="")


def _judges(value: str) -> bool:
    return bool(re.search(r"\b(?:good|great|amazing|awesome|incredible|natural|wonderful|true|real|best"
                          r"|inspiring|fantastic|perfect|bit|lot|little|mess|huge|ton|sucker|wreck|tad|step|way|fan|must|big|"
                          r"better|keeper|winner|lifesaver|stress)\b", value, re.IGNORECASE))  # fmt: skip
