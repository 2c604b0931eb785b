"""The tables of namespaces, of tokens (hashes and accessors, never a token), of their limits, of
the aliases of subjects and of the server.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from recall_server.domain.attributes import Alias, SubjectAliases, normal_entity
from recall_server.domain.errors import QuotaExceeded
from recall_server.domain.extraction import RejectedKey, Role
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import AccessScope, Bearer, Rights, TokenInfo, revocation
from recall_server.domain.plan import Policy
from recall_server.storage.bound_connection import BoundConnection, BoundTable
from recall_server.storage.driver import Document, Row, document, moment, moment_or_none, reader

Counted = tuple[Namespace, str, int]
"""A namespace, one of its tokens (or '' for all of them), and the number of a minute."""


class Rates(BoundTable):
    """Counts of calls, for all tenants."""

    async def add(self, counts: Mapping[Counted, int]) -> dict[Counted, int]:
        """Add to the counts. Return their new values. Erased namespaces are not counted."""
        counted = Document([[*key, calls] for key, calls in counts.items()])
        found = await self._bound.fetch("add_calls", counted=counted)
        return {
            (Namespace(row["namespace"]), row["accessor"], int(row["minute"])): int(row["calls"])
            for row in found
        }

    async def forget(self, *, before: int) -> None:
        """Remove the counts of minutes before `before`."""
        await self._bound.send("forget_calls", minute=before)


DAYS_KEPT = 31


# Bytes that a findable item counts in addition to its text, for its rows and its vector.
ITEM_BYTES = 256
# Bytes that an event counts.
EVENT_BYTES = 96


def bytes_of(values: Iterable[object]) -> int:
    """Return the stored bytes of the texts and documents among these values."""
    texts = (one.text if isinstance(one, Document) else one for one in values)
    return sum(len(one.encode("utf-8", "surrogatepass")) for one in texts if isinstance(one, str))


def label_bytes(memory: Mapping[str, Any]) -> int:
    """Return what the labels of a memory count, which are copies of those of its text: 256 bytes of
    them are a part of what an item counts.
    """
    return max(0, bytes_of(memory[name] for name in _COPIED) - ITEM_BYTES)


_COPIED = ("topic", "session_id", "agent_id", "container", "tags", "metadata")


async def take_quota(bound: BoundConnection, size: int) -> None:
    """Take bytes that this transaction stores from the quota, which findable items use too. If not
    enough is left, `QuotaExceeded` is raised here or later (see `Connection.expect`).
    """
    if size:
        await bound.expect(
            "take_quota",
            QuotaExceeded,
            bytes=size,
            bytes_max=bound.quota_bytes_max,
            item_bytes=ITEM_BYTES,
        )


async def return_quota(bound: BoundConnection, size: int) -> None:
    """Give bytes that are no longer stored back to the quota."""
    if size:
        await bound.send("return_quota", bytes=size)


class Spend(BoundTable):
    """Tokens spent per day, for all models together."""

    async def reserve(self, day: int, tokens: int, tokens_max: int) -> bool:
        """Reserve tokens for a call. Return False if the day has not enough left."""
        await self._bound.send("forget_spend", day=day - DAYS_KEPT)
        return await self._bound.touched(
            "reserve_tokens", day=day, tokens=tokens, tokens_max=tokens_max
        )

    async def settle(self, day: int, more: int) -> None:
        """Add what a call took more than was reserved; negative if it took less."""
        await self._bound.send("settle_tokens", day=day, more=more)


@dataclass(frozen=True)
class Entrance:
    """The values that a signed token is checked against. `not_before`: the latest of the limits of
    the server, the namespace and its parent. `revoked`: the token itself was revoked by its name.
    """

    not_before: datetime | None
    parent: TokenInfo | None
    revoked: bool


@dataclass(frozen=True)
class FailingWork:
    """Background work that has failed `failures` times in a row, the last time at `at`."""

    work: str
    error: str
    failures: int
    at: datetime

    def __str__(self) -> str:
        return f"{self.work} ({self.error}, {self.failures} times) until {self.at:%H:%M:%S} UTC"


@dataclass(frozen=True)
class NamespaceUsage:
    """How much a namespace keeps: `kept` are the bytes that count towards its quota."""

    namespace: Namespace
    kept: int
    findable_items: int
    audit_records: int


class Access(BoundTable):
    """Namespaces, and the tokens that open them."""

    async def add_token(self, token: TokenInfo, token_hash: str) -> None:
        """Write a token, and its namespace if that is new."""
        access_scope = token.rights.access_scope
        await self.add_namespace(token.created_at)
        await self._bound.send(
            "add_token",
            **vars(token),
            **_limits(access_scope),
            token_hash=token_hash,
            scopes=_listed(token.rights.scopes),
            types=_listed(access_scope.types),
        )

    async def add_namespace(self, now: datetime) -> None:
        """Create the namespace, if it is new."""
        await self._bound.send("add_namespace", now=now)

    async def policy(self) -> Policy | None:
        """Return the policy that settles contradictions in this namespace; None if not set."""
        [policy] = await self._column("conflict_policy", "conflict_policy") or [None]
        return Policy(policy) if policy else None

    async def set_policy(self, policy: Policy | None) -> bool:
        """Set the policy; None removes it. Return False if there is no such namespace."""
        return await self._bound.touched("set_conflict_policy", policy=policy)

    async def by_hash(self, token_hash: str) -> TokenInfo | None:
        return await self._first(_token, "token_by_hash", token_hash=token_hash)

    async def by_accessor(self, accessor: str) -> TokenInfo | None:
        return await self._first(_token, "token_by_accessor", accessor=accessor)

    async def token(self, accessor: str) -> TokenInfo | None:
        return await self._first(_token, "token", accessor=accessor)

    async def tokens(self) -> list[TokenInfo]:
        """Return the tokens of the namespace, or of all."""
        return await self._all(_token, "all_tokens" if self._bound.namespace is None else "tokens")

    async def use(self, accessor: str, now: datetime) -> tuple[bool, int | None]:
        """Note a use of a token, and count it if its uses are limited. Return whether the use is
        allowed, and how many are left (None: no limit).
        """
        rows = await self._bound.fetch("use_token", accessor=accessor, now=now)
        return bool(rows), rows[0]["uses_left"] if rows else None

    async def refuse(self, accessor: str, now: datetime, *, expired: bool) -> None:
        """Note that a token was refused. If it was `expired`, it stays expired for good."""
        await self._bound.send("refuse_token", accessor=accessor, now=now, expired=expired)

    async def revoke(self, accessors: Iterable[str], now: datetime) -> list[str]:
        """Revoke tokens. Return the accessors of those that were not revoked before."""
        wanted = list(accessors)
        return await self._column("accessor", "revoke_tokens", accessors=wanted, now=now)

    async def redact(self, token: TokenInfo) -> None:
        """Overwrite the label and the limits of a token."""
        given = _limits(token.rights.access_scope)
        await self._bound.send("redact_token", accessor=token.accessor, label=token.label, **given)

    async def revoked(self, bearer: Bearer) -> bool:
        """Return whether this token of the namespace was revoked. Expiry does not count."""
        return await self._bound.touched("revoked_token", **bearer.named())

    async def at_work(self) -> list[str]:
        """Return the names of the tokens that have begun something which has not ended."""
        return await self._column("accessor", "tokens_at_work")

    async def succeed(self, accessor: str, successor: str, at: datetime, now: datetime) -> None:
        """Replace a token by a successor, also as the parent of its children. The old one ends at
        `at`, or earlier if it had an earlier end.
        """
        await self._bound.send("end_token", accessor=accessor, at=at, now=now)
        await self._bound.send("adopt_tokens", accessor=accessor, successor=successor)

    async def entrance(self, owner: Namespace, accessor: str, jti: str | None) -> Entrance | None:
        """Return the values that a signed token of `owner` is checked against; None if there is no
        such namespace. `accessor` is its parent, or the user that its issuer names.
        """
        name = revocation(accessor, jti)
        return await self._first(
            _entrance, "entrance", owner=owner, accessor=accessor, jti=jti or "", name=name
        )

    async def end_children(self, accessor: str, now: datetime) -> None:
        """End all signed children of a token that were made before `now`."""
        await self._bound.send("end_children", accessor=accessor, now=now)

    async def revoke_child(self, parent: str, jti: str, now: datetime, until: datetime) -> bool:
        """Revoke a signed child until it expires. Return False if it was revoked before. Deletes
        revocations of children that have expired.
        """
        await self._bound.send("forget_revoked_children", now=now)
        return await self._bound.touched(
            "revoke_child", parent=parent, jti=revocation(parent, jti), expires_at=until
        )

    async def ended(self, before: datetime) -> list[str]:
        """Return the tokens that ended before `before` and have no child that is still kept."""
        return await self._column("accessor", "ended_tokens", before=before)

    async def remove(self, accessors: Iterable[str]) -> None:
        """Delete tokens, which makes them unknown."""
        await self._bound.send("remove_tokens", accessors=list(accessors))

    async def set_not_before(self, at: datetime) -> bool:
        """Refuse all tokens of the namespace that were made before `at`. Return False if there is
        no such namespace.
        """
        return await self._bound.touched("set_tokens_not_before", at=at)

    async def usage(self) -> list[NamespaceUsage]:
        """Return how much each namespace keeps, the largest first."""
        return await self._all(_usage, "namespace_usage")

    async def first_namespace_at(self) -> datetime | None:
        """Return when the oldest namespace was made. Needs a connection for all namespaces."""
        return moment_or_none((await self._bound.fetch("first_namespace"))[0]["at"])

    async def text_bytes(self, since: datetime) -> tuple[int, int]:
        """Return the bytes of all texts, and of those recorded since `since`."""
        (row,) = await self._bound.fetch("recent_bytes", since=since)
        return int(row["bytes"]), int(row["recent"])

    async def namespace_totals(self) -> tuple[int, int]:
        """Return the number of namespaces, and of the findable items in all of them."""
        rows = await self._bound.fetch("all_namespaces")
        return int(rows[0]["namespaces"]), int(rows[0]["documents"] or 0)


class Server(BoundTable):
    """The server as a whole. Needs a connection for all namespaces."""

    async def kid(self) -> str | None:
        """Return the name of the key that this database is bound to; None if it is new."""
        return await self._first(lambda row: str(row["kid"]), "bound_key")

    async def bind(self, kid: str, public: Mapping[str, str], now: datetime) -> None:
        """Bind the database to a key, unless it is bound to one."""
        await self._bound.send("bind_key", kid=kid, public_key=Document(dict(public)), now=now)

    async def tokens_not_before(self) -> datetime | None:
        """Return the moment before which no token may have been made; None if there is none."""
        [at] = await self._column("tokens_not_before", "server_not_before") or [None]
        return moment_or_none(at)

    async def set_tokens_not_before(self, at: datetime) -> None:
        """Refuse all tokens that were made before `at`."""
        await self._bound.send("set_server_not_before", at=at)

    async def purged_at(self) -> datetime | None:
        """Return when the last purge began."""
        [at] = await self._column("purged_at", "purged_at") or [None]
        return moment_or_none(at)

    async def begin_purge(self, now: datetime, before: datetime) -> bool:
        """Note that a purge begins. Return False, without noting it, if one has begun since
        `before`.
        """
        return await self._bound.touched("begin_purging", now=now, before=before)

    async def set_purged_at(self, at: datetime | None) -> None:
        await self._bound.send("set_purged_at", at=at)

    async def note_rejected_key(self, role: Role, status: int, now: datetime) -> None:
        """Note that the key of a language model is rejected. An earlier `since` stays."""
        await self._bound.send("note_rejected_key", role=role, status=status, now=now)

    async def forget_rejected_key(self, role: Role) -> None:
        await self._bound.send("forget_rejected_key", role=role)

    async def note_failing_work(self, failing: FailingWork) -> None:
        await self._bound.send("note_failing_work", **asdict(failing))

    async def failing_work(self) -> list[FailingWork]:
        return await self._all(reader(FailingWork), "failing_work")

    async def rejected_keys(self) -> list[RejectedKey]:
        return await self._all(reader(RejectedKey), "rejected_keys")


def _not_before(row: Row, *more: str) -> datetime | None:
    names = ("of_namespace", "of_server", *more)
    return max((moment(row[name]) for name in names if row.get(name)), default=None)


_LISTS = ("scopes", "topics", "types", "containers")
_token = reader(
    TokenInfo,
    rights=lambda row: Rights.read({**row, **{name: document(row[name]) for name in _LISTS}}),
    not_before=_not_before,
    signed=lambda _: None,
)


def _entrance(row: Row) -> Entrance:
    parent = _token(row) if row["accessor"] is not None else None
    return Entrance(_not_before(row, "of_parent"), parent, bool(row["child_revoked"]))


def _usage(row: Row) -> NamespaceUsage:
    items = int(row["documents"])
    kept = int(row["stored_bytes"]) + items * ITEM_BYTES
    return NamespaceUsage(Namespace(row["namespace"]), kept, items, int(row["records"]))


def _limits(scope: AccessScope) -> dict[str, Any]:
    """Return the limits of a token that may name somebody, as query parameters."""
    lists = {"topics": _listed(scope.topics), "containers": _listed(scope.containers)}
    return {**lists, "agent_id": scope.agent_id}


def _listed(values: Iterable[str] | None) -> Document | None:
    return None if values is None else Document(sorted(values))


class SubjectAliasTable(BoundTable):
    """The names count for the quota as texts do."""

    async def all(self) -> SubjectAliases:
        rows = await self._bound.fetch("subject_aliases")
        return SubjectAliases(Alias(row["subject"], row["alias"]) for row in rows)

    async def names(self, entity: str, *, limited: bool) -> Collection[str]:
        """Return all normal names of the subject that an entity is. For a `limited` token that is
        one: aliases are of the whole namespace.
        """
        return (SubjectAliases() if limited else await self.all()).names(entity)

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
