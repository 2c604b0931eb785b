"""The table of the aliases of subjects."""

from collections.abc import Iterable, Sequence

from recall_server.domain.attributes import Alias, SubjectAliases, normal_entity
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.tables.access import bytes_of, return_quota, take_quota


class SubjectAliasTable(BoundTable):
    """The names count for the quota as texts do."""

    async def all(self) -> SubjectAliases:
        rows = await self._bound.fetch("subject_aliases")
        return SubjectAliases(Alias(row["subject"], row["alias"]) for row in rows)

    async def add(self, aliases: Sequence[Alias]) -> None:
        """Add aliases. Raises `QuotaExceeded`."""
        await take_quota(self._bound, _bytes(aliases))
        await self._bound.many(
            "add_subject_alias",
            [
                {
                    **one._asdict(),
                    "alias_key": normal_entity(one.alias),
                    "subject_key": normal_entity(one.subject),
                }
                for one in aliases
            ],
        )

    async def remove(self, aliases: Iterable[str]) -> int:
        """Remove aliases. Return how many there were."""
        keys = sorted({normal_entity(one) for one in aliases})
        rows = await self._bound.fetch("remove_subject_aliases", keys=keys) if keys else []
        await return_quota(self._bound, _bytes(Alias(row["subject"], row["alias"]) for row in rows))
        return len(rows)


def _bytes(aliases: Iterable[Alias]) -> int:
    return sum(bytes_of(one) for one in aliases)
