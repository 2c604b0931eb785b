"""A statement before it becomes a candidate, and the judgement whether its value says anything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from recall_server.domain.attributes import normal_attribute
from recall_server.domain.memory import MemoryType
from recall_server.integrations.extraction.rules.dates import When
from recall_server.integrations.extraction.rules.moments import NUMBERS
from recall_server.integrations.extraction.rules.parsing import Clause
from recall_server.integrations.extraction.rules.subjects import Subject, Voice
from recall_server.integrations.extraction.rules.verbs import word_set
from recall_server.integrations.extraction.rules.wording import outside, sentence_of

VALUE_CHARS_MAX = 120
_PERSONAL = word_set(
    "lives_in has_pet has_child has_sibling visited attended owns watched relationship_status "
    "partner bought likes dislikes did made has met plays"
)
_WORK = word_set(
    "support deploy ship release maintain monitor deprecate merge refactor migrate provision "
    "rewrite log benchmark patch onboard standardise standardize document sprint"
)
_POINTS_AWAY = re.compile(
    r"(?:it|its|this|that|that's|these|those|them|him|her|me|us|you|your|yours|he|she|they|we|how"
    r"|what|when|where|who|why|which|whatever|one|ones|same|something|anything|everything|nothing"
    r"|someone|anyone|everyone|such|so|here|there|more|most|both|ever|together|for|since|with"
    r"|all of|all the|all that"
    r"|any(?: ?more)?|each other|not|as|too|like|too|than|even|to (?:see|hear|say|know|be"
    r"|have you|meet"
    r"|talk|chat|share|think|get|keep))\b(?!-)",
    re.IGNORECASE,
)
_SECOND_PERSON = re.compile(
    r"\b(?:you|your|yours|you're|you've|y'all|ya|u|ur|yourself)\b", re.IGNORECASE
)
_LOOSE = re.compile(
    r"\b(?:another one|it|them|this|that|those|these|there|here|him|her|she|he)\b", re.IGNORECASE
)
_THIS_TIME = re.compile(
    r"\bthis (?:year|month|week|weekend|summer|winter|spring|fall|autumn)\b", re.IGNORECASE
)
_EMPTY = word_set(
    "a an the some of in on at to for with and or my our their new good great nice lot lots bit"
    " time times fun thing things stuff way ways really very much many few little big day days"
    " life chance break step steps look idea ideas feeling moment moments work progress best"
    " better more such crazy amazing awesome pretty super well hard back up out off over today it"
    " so cool difference impact smile love hope courage strength point part kind sort care sense"
    " support top two one other place places people person everything anything everyone somewhere"
    " challenge challenges memories memory experience experiences adventure journey blast while"
    " first last next always lately others opportunity opportunities reminder inspiration news"
    " project"
    " projects book photo photos pic picture quite special ton color colour texture structure"
    " vibes vibe event events real road letdown mistake tough wild similar meaningful laugh laughs"
    " setback advice options win trial error rough busy setbacks turned world together done mind"
    " goal goals dream dreams positive effort"
)


@dataclass(frozen=True)
class Draft:
    """What a clause states, before it is placed, weighed and chosen."""

    text: str
    type: MemoryType
    entity: str
    attribute: str
    value: str
    confidence: float
    negated: bool = False
    valid_from: datetime | None = None
    correction: bool = False
    replaces: str | None = None


def entity_of(clause: Clause, voice: Voice, attribute: str, type_: MemoryType) -> str:
    """Whom a statement is about; "we" is the team, or the speaker where the matter is personal."""
    subject = clause.subject
    if subject.kind == "owned":
        return _owned(subject)
    if subject.kind != "we" or subject.entity == "team":
        return subject.entity
    if type_ is MemoryType.DECISION or attribute.startswith("uses"):
        return "team"
    if clause.lemma in _WORK or attribute == "supports":
        return "team"
    return voice.entity if voice.named or attribute in _PERSONAL else "team"


_COUNT = re.compile(r"(?:\d+|one|two|three|four|five|six|other|own) ")


def _owned(subject: Subject) -> str:
    """Whose what: "user's sister"; a named person goes by the name, a team's thing by its noun."""
    noun = _COUNT.sub("", subject.noun)
    name = re.fullmatch(r"(?:[a-z-]+ )+(?P<name>[A-Z][\w'-]*(?: [A-Z][\w'-]*)?)", noun)
    if name and not subject.inanimate:
        return name["name"]
    return noun if subject.entity == "team" else f"{subject.entity}'s {noun}"


def shown_entity(entity: str, voice: Voice) -> str:
    """How a sentence names an entity."""
    if entity == voice.entity:
        return voice.shown
    return {"team": "The team", "user": "The user"}.get(entity, entity)


def says_something(value: str) -> bool:
    """Whether a value means something outside its conversation."""
    if not value or len(value) > VALUE_CHARS_MAX or _POINTS_AWAY.match(value):
        return False
    if _SECOND_PERSON.search(value) or _LOOSE.search(_THIS_TIME.sub("", value)):
        return False
    words = re.findall(r"[\w'+#.-]+", value)
    return any(word.lower() not in _EMPTY and (len(word) > 1 or word.isupper() or word.isdigit())
               for word in words)  # fmt: skip


def addresses_someone(clause: str) -> bool:
    """Whether a clause speaks to the other person; what it says is then about the talk itself."""
    return _SECOND_PERSON.search(clause) is not None


def is_person(clause: Clause) -> bool:
    """Whether the subject is somebody who can have tastes, a home or a job."""
    return not clause.subject.inanimate


def slug(words: str) -> str:
    """A phrase as part of an attribute's name: "Deploy targets" is "deploy_targets"."""
    plain = re.sub(r"^(?:the|our|my|all|a|an|their|new)\s+", "", words.strip().lower())
    return normal_attribute(plain)[:40].strip("_")


def drafted(
    clause: Clause, voice: Voice, when: When | None, attribute: str, value: str, *,
    type_: MemoryType = MemoryType.FACT, confidence: float = 0.9, entity: str | None = None,
    negated: bool = False, correction: bool = False, replaces: str | None = None,
    ahead: bool = False,
) -> Draft:  # fmt: skip
    about = entity if entity is not None else entity_of(clause, voice, attribute, type_)
    ahead = ahead or clause.tense in _STILL_AHEAD or attribute in _UNDATED
    rest = clause.rest
    own = clause.subject.inanimate and clause.subject.entity == voice.entity
    if clause.subject.kind in ("name", "thing", "owned") and not own:
        rest, value = of_speaker(rest, voice), of_speaker(value, voice)
    text = sentence_of(clause, rest, when)
    if clause.subject.kind == "we" and entity is None and about != clause.subject.entity:
        old = clause.subject.shown
        text = shown_entity(about, voice) + text[len(old) :] if text.startswith(old) else text
    if attribute in _DEEDS:
        value = value.removeprefix("to ")
    value = _as_number(value) if attribute == "age" else outside(value)
    return Draft(
        text=text, type=type_, entity=about.replace('"', "").strip(), attribute=attribute,
        value=value,
        confidence=min(confidence, 0.7) if clause.weak else confidence, negated=negated,
        valid_from=when.at if when and (not ahead or _begins(when, attribute)) else None,
        correction=correction, replaces=replaces,
    )  # fmt: skip


def _as_number(value: str) -> str:
    return str(NUMBERS.get(value.lower(), value))


def _begins(when: When, attribute: str) -> bool:
    return when.begins and attribute == "schedule"


def of_speaker(rest: str, voice: Voice) -> str:
    """In a sentence about somebody else, "my" and "me" need the speaker's name."""
    ours = f"{voice.shown}'s" if voice.named else "the team's"
    mine = voice.shown if voice.named else "the user"
    for said, written in (("my", f"{mine}'s"), ("our", ours), ("me", mine)):
        rest = re.sub(rf"(?<![\w'-]){said}(?![\w'-])", written, rest)
    return rest


# The time that these name is their value, not when they came to be true.
_UNDATED = word_set(
    "deadline release_date start_date plans birthday schedule wants goal decided needs"
)
_DEEDS = word_set("goal wants decided plans")  # whose value is a verb phrase, without "to"
_STILL_AHEAD = frozenset({"will", "going", "would"})
