"""Lists, sets and removes the aliases of subjects."""

from collections.abc import Sequence
from dataclasses import dataclass

from recall_server.domain.attributes import NAMESPACE_ALIASES_MAX, Alias, normal_entity
from recall_server.domain.context import Context
from recall_server.domain.erasure import SUBJECT_CHARS_MAX, Subject
from recall_server.domain.errors import Invalid, LimitReached, NamespaceNotFound, NotFound
from recall_server.domain.security.screening import orders, suspicions
from recall_server.domain.text.cleaning import clean_label
from recall_server.services.memory.episodes import Redaction
from recall_server.storage.store import Store, Transaction


@dataclass(frozen=True)
class Aliases:
    """The aliases of namespaces. They change no fact: from then on facts about all names of a
    subject are looked up and compared as facts about one.
    """

    store: Store
    redaction: Redaction

    async def all(self, context: Context) -> Sequence[Alias]:
        async with self.store.view(context) as tx:
            found = (await tx.aliases.all()).all
        context.entry.counts["aliases"] = len(found)
        return found

    async def set(self, context: Context, subject: str, aliases: Sequence[str]) -> Sequence[Alias]:
        """Make these names the aliases of a subject, in place of those that it had. Return them.
        Raises `Invalid`, `LimitReached`, `NamespaceNotFound` and `QuotaExceeded`.
        """
        names = [checked(one) for one in (subject, *aliases)]
        subject, *aliases = [await self.redaction.text(one, context.entry) for one in names]
        async with self.store.change(context) as tx:
            if not await tx.exports.exists():
                raise NamespaceNotFound
            found = await replace(tx, subject, aliases)
            context.entry.counts["aliases"] = len(found)
        return found

    async def remove(self, context: Context, alias: str) -> None:
        """Remove an alias: it is a subject of its own again. Raises `NotFound`."""
        alias = clean_label(alias, "alias", chars_max=SUBJECT_CHARS_MAX)
        async with self.store.change(context) as tx:
            if not await tx.aliases.remove([alias]):
                raise NotFound("No alias has this name. List the aliases.")
            context.entry.counts["aliases"] = 1


async def replace(tx: Transaction, subject: str, aliases: Sequence[str]) -> Sequence[Alias]:
    """Replace the aliases of a subject. Return them. Raises `Invalid` and `LimitReached`."""
    named = {normal_entity(one): one for one in aliases}
    named.pop(normal_entity(subject), None)
    known = await tx.aliases.all()
    if known.taken(subject, named.values()):
        raise Invalid(
            "A name is the alias of one subject only, and a subject is no alias. List the aliases, "
            "and remove the name where it stands."
        )
    old, new = known.aliases(subject), [Alias(subject, named[key]) for key in sorted(named)]
    if len(known.all) - len(old) + len(new) > NAMESPACE_ALIASES_MAX:
        raise LimitReached(
            f"A namespace may have {NAMESPACE_ALIASES_MAX} aliases. Remove some of them."
        )
    await tx.aliases.remove(one.alias for one in old)
    await tx.aliases.add(new)
    return new


def checked(name: str) -> str:
    """Return a name that an erasure would find, and that is no instruction. Raises `Invalid`."""
    name = Subject(clean_label(name, "A name", chars_max=SUBJECT_CHARS_MAX)).name
    if orders(name) or suspicions(name):
        raise Invalid("A name reads like an instruction. Send the name alone.")
    return name
