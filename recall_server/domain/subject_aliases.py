"""Aliases of subjects: names that stand for one person or thing. Pure."""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from recall_server.domain.attributes import normal_entity

ALIASES_MAX = 32
"""How many aliases a subject may have: facts are looked up by each of them."""
NAMESPACE_ALIASES_MAX = 1_000
_USER = "user"
_FIRST_PERSON = frozenset({"i", "me", "myself"})


class Alias(NamedTuple):
    """Another name of a subject."""

    subject: str
    alias: str


class SubjectAliases:
    """The aliases of a namespace. Facts keep the name that was said; what compares or looks up
    facts asks here which names are of one subject.
    """

    def __init__(self, aliases: Iterable[Alias] = ()) -> None:
        self.all = tuple(aliases)
        self._subjects = {
            key: normal_entity(one.subject) for one in self.all for key in keys_of(one.alias)
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
        """Return the aliases of a subject."""
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
