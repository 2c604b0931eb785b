"""The shelf of tokens: hashes and accessors, never a token."""

from collections.abc import Sequence
from datetime import datetime

from recall_server.domain.model import Namespace, TokenInfo
from recall_server.domain.plan import Policy
from recall_server.storage.driver import Row
from recall_server.storage.handle import Handle
from recall_server.storage.rows import moment, moment_or_none


class Access:
    """Namespaces and who may enter them."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def add_token(self, token: TokenInfo, token_hash: str) -> None:
        """Write a token, and its namespace where it is new."""
        await self._handle.send("add_namespace", now=token.created_at)
        await self._handle.send(
            "add_token",
            accessor=token.accessor,
            token_hash=token_hash,
            label=token.label,
            now=token.created_at,
        )

    async def policy(self) -> Policy | None:
        """Who settles contradictions in this namespace; None where nobody has said."""
        rows = await self._handle.fetch("conflict_policy")
        return Policy(rows[0]["conflict_policy"]) if rows and rows[0]["conflict_policy"] else None

    async def set_policy(self, policy: Policy | None) -> bool:
        """False where there is no such namespace."""
        return bool(await self._handle.fetch("set_conflict_policy", policy=policy))

    async def by_hash(self, token_hash: str) -> TokenInfo | None:
        return _first(await self._handle.fetch("token_by_hash", token_hash=token_hash))

    async def by_accessor(self, accessor: str) -> TokenInfo | None:
        return _first(await self._handle.fetch("token_by_accessor", accessor=accessor))

    async def tokens(self) -> list[TokenInfo]:
        """The tokens of this namespace."""
        return [_token(row) for row in await self._handle.fetch("tokens")]

    async def all_tokens(self) -> list[TokenInfo]:
        """The tokens of all namespaces."""
        return [_token(row) for row in await self._handle.fetch("all_tokens")]

    async def revoke(self, accessor: str, now: datetime) -> bool:
        """False where it was revoked before."""
        return bool(await self._handle.fetch("revoke_token", accessor=accessor, now=now))

    async def namespace_totals(self) -> tuple[int, int]:
        """How many namespaces there are, and findable items in all of them."""
        rows = await self._handle.fetch("all_namespaces")
        return int(rows[0]["namespaces"]), int(rows[0]["documents"] or 0)


def _first(rows: Sequence[Row]) -> TokenInfo | None:
    return _token(rows[0]) if rows else None


def _token(row: Row) -> TokenInfo:
    return TokenInfo(
        accessor=row["accessor"],
        namespace=Namespace(row["namespace"]),
        created_at=moment(row["created_at"]),
        revoked_at=moment_or_none(row["revoked_at"]),
        label=row["label"],
    )
