"""Facts: the vocabulary of attributes, how many values each has at a time, the normal form of
entities, attributes and values for comparison, the aliases of subjects (names that stand for one
person or thing), and the values of an attribute over time: when each was true, and when it was
believed. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from recall_server.domain.memory import Fact, Memory


class Cardinality(StrEnum):
    """How many values of an attribute hold at the same time."""

    SINGLE = "single"
    MANY = "many"


@dataclass(frozen=True)
class Attribute:
    """A kind of statement about an entity. The description also goes into the model's prompt."""

    name: str
    cardinality: Cardinality
    description: str


_SINGLE = {
    "lives_in": "where it lives or is based",
    "from": "the place it comes from",
    "works_at": "employer",
    "works_in": "the field or department of work",
    "job_title": "profession or role",
    "reports_to": "manager",
    "name": "full or given name",
    "nickname": "what it wants to be called",
    "pronouns": "pronouns",
    "birthday": "date of birth",
    "age": "age",
    "relationship_status": "single, married, ...",
    "partner": "spouse or partner",
    "phone": "phone number",
    "email": "e-mail address",
    "address": "postal address",
    "timezone": "time zone",
    "diet": "vegan, gluten-free, ...",
    "deadline": "when it is due",
    "start_date": "when it starts",
    "release_date": "when it ships",
    "budget": "money set aside",
    "version": "version in use",
    "status": "state of a project or task",
    "owner": "who is responsible for it",
    "located_in": "where a thing or event is",
    "hosted_on": "the machine or service a thing runs on",
    "schedule": "when a regular thing takes place",
    "salary": "pay",
    "process": "how something is done, in order",
    "native_language": "mother tongue",
    "work_mode": "from home, remotely, in the office",
    "port": "the port a service listens on",
    "expires": "until when it is good",
}
_MANY = {
    "likes": "a thing or activity it likes",
    "dislikes": "a thing it dislikes; better said as likes, negated",
    "prefers": "a preference that has no category",
    "interested_in": "a subject of interest",
    "hobby": "a regular pastime",
    "plays": "a sport, game or instrument",
    "speaks": "a language",
    "knows": "a person or a skill",
    "uses": "a tool without a stated purpose",
    "owns": "a possession",
    "has": "anything else it has",
    "has_pet": "a pet",
    "has_child": "a child or children",
    "has_sibling": "a brother or sister",
    "has_relative": "another relative",
    "friend": "a friend",
    "team_member": "a member of the team",
    "member_of": "a group it belongs to",
    "allergic_to": "an allergy or intolerance",
    "condition": "an illness or injury",
    "moved_to": "where several moved, a place or a system; of one alone it is lives_in",
    "is_a": "a kind or identity",
    "experience": "how long or how well it has done something",
    "studies": "a subject or course",
    "studied": "a completed study or its place",
    "learning": "a skill being learnt",
    "working_on": "an undertaking under way",
    "responsible_for": "a duty",
    "wants": "a wish",
    "plans": "an intention",
    "goal": "an aim",
    "needs": "a requirement",
    "always": "a standing instruction",
    "never": "a standing prohibition",
    "decided": "a decision without a category",
    "habit": "a regular activity",
    "can": "an ability or, denied, what is not possible",
    "rule": "what must hold for it",
    "supports": "what it works with",
    "sent_to": "where it goes as a rule",
    "expects": "what or how much is expected",
    "eats": "what it eats as a rule",
    "drinks": "what it drinks as a rule",
    "teaches": "a subject, school or group it teaches",
    "depends_on": "a thing that it needs in order to work",
    "visited": "a place or event gone to",
    "attended": "an event taken part in",
    "bought": "a purchase",
    "made": "a thing created",
    "started": "a beginning",
    "finished": "a completion",
    "joined": "a group or course entered",
    "left": "a group, place or job left",
    "received": "a thing got or given",
    "lost": "a loss",
    "won": "a win",
    "met": "an encounter",
    "read": "a book or text",
    "watched": "a film, show or match",
    "learned": "a thing learnt",
    "found": "a thing found",
    "correction": "a value put right without saying of what",
    "did": "any other thing done",
}
ATTRIBUTES: dict[str, Attribute] = {
    **{n: Attribute(n, Cardinality.SINGLE, text) for n, text in _SINGLE.items()},
    **{n: Attribute(n, Cardinality.MANY, text) for n, text in _MANY.items()},
}
FAMILIES: tuple[Attribute, ...] = (
    Attribute("preferred_<category>", Cardinality.SINGLE, "the choice it prefers in a category"),
    Attribute("favorite_<category>", Cardinality.SINGLE, "its favourite in a category"),
    Attribute("uses_for_<purpose>", Cardinality.SINGLE, "what it uses for a purpose"),
)
_SINGLE_PREFIXES = ("preferred_", "favorite_", "favourite_", "uses_for_", "current_", "default_")
_MANY_PREFIXES = (
    "likes_",
    "dislikes_",
    "has_",
    "knows_",
    "speaks_",
    "wants_",
    "plans_",
    "visited_",
)
# Words that end in s without being plural, as attributes do ("status", "address").
_NOT_PLURAL = ("ss", "us", "is", "ous", "as", "_at", "news", "series")
_ARTICLE = re.compile(r"(?:the|a|an|my|our|their|his|her|its|some)\s+")
_EDGE = " \t\r\n.,;:!?\"'`’‘“”()[]{}<>*_~…"
VALUE_KEY_CHARS = 64
OPPOSITES = {"dislikes": "likes"}
"""An attribute that is the negation of another: "dislikes tea" clashes with "likes tea"."""


def is_single_valued(attribute: str) -> bool:
    """True if a new value replaces the old one.

    An attribute that is not in the table is single-valued, so that a contradiction is asked about
    and not lost, unless its name is plural or has a prefix of multi-valued ones ("has_", ...).
    """
    name = normal_attribute(attribute)
    if attribute_kind := ATTRIBUTES.get(name):
        return attribute_kind.cardinality is Cardinality.SINGLE
    if name.startswith(_SINGLE_PREFIXES):
        return True
    if name.startswith(_MANY_PREFIXES):
        return False
    return not name.endswith("s") or name.endswith(_NOT_PLURAL)


def normal_entity(entity: str) -> str:
    """Normalize an entity's name for comparison: "The User" is "user", "My sister" is "sister"."""
    return _normal(entity)


def normal_attribute(attribute: str) -> str:
    """Normalize an attribute's name: "Lives in" and "lives-in" are "lives_in"."""
    words = re.sub(r"[\W_]+", "_", _plain(attribute)).strip("_")
    return words.replace("favourite", "favorite").replace("colour", "color")


def normal_value(value: str) -> str:
    """Normalize a value for comparison: ignore case, width, blanks, articles and outer
    punctuation.
    """
    return _normal(value)


def value_key(value: str) -> str:
    """Return the beginning of a normalized value, the key for looking it up: equal values have
    equal keys, and so have long values with the same beginning.
    """
    return normal_value(value)[:VALUE_KEY_CHARS]


def canonical(fact: Fact) -> Fact:
    """Replace an opposite by a negation: "dislikes X" becomes "likes X", negated."""
    opposite = OPPOSITES.get(normal_attribute(fact.attribute))
    return replace(fact, attribute=opposite, negated=not fact.negated) if opposite else fact


def vocabulary() -> str:
    """Return the table as lines for a prompt: name, number of values, and description."""
    attributes = [*ATTRIBUTES.values(), *FAMILIES]
    return "\n".join(f"- {one.name} ({one.cardinality}): {one.description}" for one in attributes)


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    return unicodedata.normalize("NFKC", " ".join(folded.split()))


def _normal(text: str) -> str:
    plain = _plain(text).strip(_EDGE)
    while article := _ARTICLE.match(plain):
        plain = plain[article.end() :].strip(_EDGE)
    return plain


ALIASES_MAX = 32
"""How many aliases a subject may have: facts are looked up by each of them."""
NAMESPACE_ALIASES_MAX = 1_000
_USER = "user"
_FIRST_PERSON = frozenset({"i", "me", "myself"})


class Alias(NamedTuple):
    subject: str
    alias: str


class SubjectAliases:
    """The aliases of a namespace. Facts keep the name that was said; what compares or looks up
    facts asks here which names are of one subject.
    """

    def __init__(self, aliases: Iterable[Alias] = ()) -> None:
        self.all = tuple(aliases)
        self._subjects = {
            key: subject
            for one in self.all
            for subject in [normal_entity(one.subject)]
            for key in keys_of(one.alias)
            if key != subject
        }
        self._names: dict[str, list[str]] = {}
        for key, subject in self._subjects.items():
            self._names.setdefault(subject, [subject]).append(key)

    def subject(self, entity: str) -> str:
        """Return the normal name of the subject that an entity is."""
        key = normal_entity(entity)
        return self._subjects.get(key, key)

    def names(self, entity: str) -> Collection[str]:
        """Return all normal names of the subject that an entity is."""
        subject = self.subject(entity)
        return self._names.get(subject, (subject,))

    def aliases(self, subject: str) -> list[Alias]:
        return [one for one in self.all if normal_entity(one.subject) == normal_entity(subject)]

    def taken(self, subject: str, aliases: Collection[str]) -> bool:
        """True if the subject is an alias, or one of the aliases is one of another subject or has
        aliases itself.
        """
        mine, keys = normal_entity(subject), {key for one in aliases for key in keys_of(one)}
        others = (other for key, other in self._subjects.items() if key in keys)
        return (
            mine in self._subjects
            or not keys.isdisjoint(self._names.keys() - {mine})
            or any(other != mine for other in others)
        )


def keys_of(alias: str) -> Iterator[str]:
    """Yield the normal names by which facts name an alias: "I" is "user" there, and "my mum" is
    "user's mum".
    """
    key = normal_entity(alias)
    yield key
    if key in _FIRST_PERSON:
        yield _USER
    elif key != _USER and not key.startswith(f"{_USER}'s "):
        yield f"{_USER}'s {key}"


# Two hundred values that are all kept have twenty thousand overlaps.
OVERLAPS_MAX = 200


class Interval(NamedTuple):
    """From `start` (inclusive) to `end` (exclusive); None: not ended yet."""

    start: datetime
    end: datetime | None

    def until(self, now: datetime) -> datetime:
        return max(self.start, now) if self.end is None else self.end


class Overlap(NamedTuple):
    """Two memories that were both true in an interval, by their ids."""

    interval: Interval
    one: str
    other: str


def true_in(memory: Memory) -> Interval:
    """Return when a memory was true in the world: until its end, or until it expired."""
    ends = [end for end in (memory.valid_until, memory.expires_at) if end is not None]
    end = min(ends, default=None)
    return Interval(memory.valid_from, end and max(end, memory.valid_from))


def known_in(memory: Memory) -> Interval:
    """Return when a memory was believed here."""
    return Interval(memory.recorded_at, memory.retired_at)


def without_taken_over(memories: Sequence[Memory]) -> list[Memory]:
    """Leave out the memories whose whole time another one has taken over that says the same: it was
    said before, and arrived later.
    """
    said = {
        one.id: (normal_value(one.fact.value), one.fact.negated) for one in memories if one.fact
    }

    def taken_over(one: Memory) -> bool:
        by = said.get(one.superseded_by or "")
        return one.valid_until == one.valid_from and by is not None and by == said.get(one.id)

    return [one for one in memories if not taken_over(one)]


@dataclass(frozen=True)
class Timeline:
    """The values of one attribute of one entity, in the order in which they became true. `cut`:
    older values exist that are not shown.
    """

    entity: str
    attribute: str
    memories: tuple[Memory, ...]
    cut: bool = False

    @property
    def gaps(self) -> tuple[Interval, ...]:
        """The intervals between the first and the last value in which none was true."""
        found, reached = [], None
        for memory in self._values:
            start, end = true_in(memory)
            if reached is not None and start > reached:
                found.append(Interval(reached, start))
            if end is None:
                break
            reached = end if reached is None else max(reached, end)
        return tuple(found)

    @property
    def overlaps(self) -> tuple[Overlap, ...]:
        """The intervals in which two values of a single-valued attribute were true, the first
        `OVERLAPS_MAX`.
        """
        if not is_single_valued(self.attribute):
            return ()
        return tuple(islice(self._overlapping(), OVERLAPS_MAX))

    def _overlapping(self) -> Iterator[Overlap]:
        values = [(one.id, true_in(one)) for one in self._values]
        for place, (one_id, one) in enumerate(values):
            for other_id, other in values[place + 1 :]:
                if one.end is not None and other.start >= one.end:
                    break  # all following values begin later still
                ends = [end for end in (one.end, other.end) if end is not None]
                end = min(ends, default=None)
                if end is None or other.start < end:
                    yield Overlap(Interval(other.start, end), one_id, other_id)

    @property
    def _values(self) -> Sequence[Memory]:
        """The memories that state a value; a denial only says what it was not."""
        return [one for one in self.memories if one.fact and not one.fact.negated]
