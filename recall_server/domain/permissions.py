"""Permissions of tokens: the operations, and the part of a namespace that they apply to; and the
form of this server's tokens, and how to find them in a text, even disguised. Pure.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter

from recall_server.domain.episode import checked_metadata, checked_tags
from recall_server.domain.errors import InsufficientScope, Invalid, OutsideAccessScope
from recall_server.domain.ids import Namespace, is_child
from recall_server.domain.ids import container as checked_container
from recall_server.domain.memory import Layer, MemoryType
from recall_server.domain.moments import passed
from recall_server.domain.text.cleaning import storable

# No moment of a memory or text is before or after these.
EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)


class Scope(StrEnum):
    """The operations that a token may ask for. `admin` includes all of them except metrics, which
    cover the whole server; `memory:write` includes `memory:propose`.
    """

    READ = "memory:read"
    PROPOSE = "memory:propose"
    WRITE = "memory:write"
    FORGET = "memory:forget"
    EDIT = "memory:admin"
    ERASE = "memory:erase"
    CONSOLIDATE = "consolidate"
    AUDIT = "audit:read"
    TOKENS = "tokens:manage"
    WEBHOOKS = "webhooks:manage"
    METRICS = "metrics:read"
    ADMIN = "admin"


DEFAULT_SCOPES = frozenset({Scope.READ, Scope.WRITE, Scope.FORGET, Scope.CONSOLIDATE})


AFTER = ("said_after", "recorded_after", "valid_after", "expires_after")
BEFORE = ("said_before", "recorded_before", "valid_before", "expires_before")
"""The limits of the time when something was said, was recorded here, became true, and expires."""
EXPIRY = (AFTER[-1], BEFORE[-1])
# The limits that are a set of values, and those that are one.
_SETS = ("topics", "types", "containers", "layers")
_SINGLE = ("agent_id", "app", "group_id")
NO_TIMES: Mapping[str, datetime | None] = {}


@dataclass(frozen=True)
class AccessScope:
    """A part of a namespace: these topics, types, containers and layers, and this agent; None means
    any. Items in it have all of these tags and metadata (names with their values as JSON), and were
    said at `said_after` or later and before `said_before`; likewise for the times when they were
    recorded here and became true. `expires_after` and `expires_before` leave out what does not
    expire. `app` and `group_id`: those of the text that an item cites first.
    """

    topics: frozenset[str] | None = None
    types: frozenset[MemoryType] | None = None
    agent_id: str | None = None
    containers: frozenset[str] | None = None
    tags: frozenset[str] = frozenset()
    metadata: frozenset[tuple[str, str]] = frozenset()
    said_after: datetime | None = None
    said_before: datetime | None = None
    layers: frozenset[Layer] | None = None
    recorded_after: datetime | None = None
    recorded_before: datetime | None = None
    valid_after: datetime | None = None
    valid_before: datetime | None = None
    expires_after: datetime | None = None
    expires_before: datetime | None = None
    app: str | None = None
    group_id: str | None = None

    @property
    def everything(self) -> bool:
        return self == FULL_ACCESS

    @property
    def narrowed(self) -> bool:
        """True if a search has narrowed it by a condition that no token can have."""
        times = (getattr(self, one) for one in (*AFTER, *BEFORE))
        others = (self.layers, self.app, self.group_id, *times)
        return bool(self.tags or self.metadata) or any(one is not None for one in others)

    def within(self, other: AccessScope) -> bool:
        """True if everything in this access scope is also in `other`."""
        return (
            all(_part(getattr(self, n), getattr(other, n)) for n in _SETS)
            and all(getattr(other, n) in (None, getattr(self, n)) for n in _SINGLE)
            and self.tags >= other.tags
            and self.metadata >= other.metadata
            and any(getattr(self, n) for n in EXPIRY) >= any(getattr(other, n) for n in EXPIRY)
            and all(
                (getattr(self, n) or EARLIEST) >= (getattr(other, n) or EARLIEST) for n in AFTER
            )
            and all((getattr(self, n) or LATEST) <= (getattr(other, n) or LATEST) for n in BEFORE)
        )

    def canonical(self) -> str:
        """Return a text that is equal for equal access scopes."""
        parts = {
            name: sorted(value) if isinstance(value, frozenset) else value
            for name, value in vars(self).items()
            if value
        }
        return json.dumps(parts, sort_keys=True, default=str)

    def writer(self, topic: str, agent_id: str | None) -> str | None:
        """Return the agent in whose name to write to `topic`. Raises `OutsideAccessScope`."""
        if self.topics is not None and topic not in self.topics:
            allowed = ", ".join(sorted(self.topics))
            raise OutsideAccessScope(f"This token may write to these topics only: {allowed}.")
        if self.agent_id is None:
            return agent_id
        if agent_id not in (None, self.agent_id):
            raise OutsideAccessScope(
                f"This token writes as the agent {self.agent_id}. Leave out agent_id, or send that."
            )
        return self.agent_id

    def container_for(self, container: str) -> str:
        """Return the container to write into, given the one that the caller names, if any. A token
        with one container need not name it. Raises `OutsideAccessScope`.
        """
        if self.containers is None:
            return container
        if not container and len(self.containers) == 1:
            (container,) = self.containers
        if container not in self.containers:
            allowed = ", ".join(repr(one) for one in sorted(self.containers))
            raise OutsideAccessScope(
                f"This token may write into these containers only: {allowed}. Name one of them as "
                "container."
            )
        return container

    def whole(self, container: str) -> None:
        """Raise `OutsideAccessScope` unless all of a container is in this access scope."""
        if not AccessScope(containers=frozenset({container})).within(self):
            raise OutsideAccessScope(
                "This token may erase only what it reaches as a whole: a container that it is "
                "limited to, and by nothing else. `whoami` names those."
            )

    def inside(self, containers: Collection[str] | None, tags: Iterable[str] = ()) -> AccessScope:
        """Return the part of this access scope that is in these containers (None for any) and has
        all of these tags. Raises `Invalid` if a name is not valid for a container or a tag.
        """
        if containers is None and not tags:
            return self
        inside = self.containers
        if containers is not None:
            named = frozenset(map(checked_container, containers))
            inside = named if inside is None else inside & named
        return replace(self, containers=inside, tags=self.tags.union(checked_tags(tags)))

    def filtered(
        self,
        *,
        topic: str = "",
        type_: MemoryType | None = None,
        metadata: Mapping[str, Any] | None = None,
        layer: Layer | None = None,
        app: str = "",
        group_id: str = "",
        times: Mapping[str, datetime | None] = NO_TIMES,
    ) -> AccessScope:
        """Return the part of this access scope with this topic, type, layer, app and group, with
        these values among its metadata, and within these `times`, given by their names in `AFTER`
        and `BEFORE`. No token is limited to an app or a group. Raises `Invalid`.
        """
        parts: dict[str, Any] = {}
        given = {"topics": topic, "types": type_, "layers": layer, "app": app, "group_id": group_id}
        for name, label in given.items():
            if label:
                storable(label)
                mine = getattr(self, name)
                one = label if name in _SINGLE else frozenset({label})
                parts[name] = one if name in _SINGLE or mine is None else mine & one
        if metadata:
            parts["metadata"] = self.metadata | _pairs(metadata)
        for after, before in zip(AFTER, BEFORE, strict=True) if times else ():
            if (times.get(after) or EARLIEST) > (times.get(before) or LATEST):
                raise Invalid(f"{after} lies behind {before}. Send the earlier moment as {after}.")
        parts |= {
            name: (max if name in AFTER else min)(at, getattr(self, name) or at)
            for name, at in times.items()
            if at is not None
        }
        return replace(self, **parts) if parts else self

    def confined(self, topic: str, container: str) -> AccessScope:
        """Return the access scope of work about `topic` in `container` on behalf of a token with
        this access scope: the work may see and change nothing outside of it.
        """
        topics = frozenset({topic}) if self.topics is not None else None
        containers = frozenset({container}) if self.containers is not None else None
        return AccessScope(topics, None, self.agent_id, containers)


FULL_ACCESS = AccessScope()
ACCESS_SCOPE = TypeAdapter(AccessScope)
"""Reads and writes an access scope as JSON, as jobs and receipts keep it."""


@dataclass(frozen=True)
class Rights:
    """All that a token may do."""

    scopes: frozenset[Scope] = DEFAULT_SCOPES
    access_scope: AccessScope = FULL_ACCESS

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Rights:
        """Return the rights of lists of `scopes`, `topics`, `types` and `containers`, and of an
        `agent_id`; without one of the last four there is no such limit. Raises `KeyError`,
        `TypeError` and `ValueError`.
        """
        limits: dict[str, Any] = {
            name: frozenset(map(kind, values[name]))
            for name, kind in (("topics", str), ("types", MemoryType), ("containers", str))
            if values.get(name) is not None
        }
        access_scope = AccessScope(agent_id=values.get("agent_id"), **limits)
        return cls(frozenset(map(Scope, values["scopes"])), access_scope)

    def allows(self, scope: Scope | None) -> bool:
        if scope is Scope.PROPOSE and Scope.WRITE in self.scopes:
            return True
        return (
            scope is None
            or scope in self.scopes
            or (Scope.ADMIN in self.scopes and scope is not Scope.METRICS)
        )

    @property
    def proposes(self) -> bool:
        """True if a change that the token may not make should become a proposal without asking."""
        return Scope.PROPOSE in self.scopes

    def require(self, scope: Scope | None, *, whole_namespace: bool) -> None:
        """Raise `InsufficientScope` unless these rights allow `scope`, and `OutsideAccessScope`
        if a limited token asks for the `whole_namespace`.
        """
        if not self.allows(scope):
            raise InsufficientScope(str(scope))
        if whole_namespace and not self.access_scope.everything:
            raise OutsideAccessScope


NONE = Rights(frozenset())
OPERATOR = Rights(frozenset({Scope.ADMIN}))


def narrower_or_equal(child: Rights, parent: Rights) -> bool:
    """True if `child` may do nothing that `parent` may not."""
    return all(parent.allows(scope) for scope in child.scopes) and child.access_scope.within(
        parent.access_scope
    )


class Refusal(StrEnum):
    """Why a token is refused; for the log and the audit log, never for the client."""

    REVOKED = "revoked"
    EXPIRED = "expired"
    TOO_OLD = "not_before"
    USED_UP = "used_up"


@dataclass(frozen=True)
class Signed:
    """A token that is a JWT and is in no table. `jti`: its id among the tokens of its issuer, if it
    has one.
    """

    issuer: str
    kid: str
    alg: str
    issued_at: int
    jti: str | None


def revocation(parent: str, jti: str | None) -> str:
    """Return the name under which a JWT is revoked. Another issuer's id is hashed: it may hold
    any words.
    """
    if not jti or is_child(jti):
        return jti or ""
    return hashlib.sha256(f"{parent}\0{jti}".encode()).hexdigest()


@dataclass(frozen=True)
class Bearer:
    """A token, as the work that it began names it. `name`: its accessor, followed by its id if it
    is a JWT. `since`: it was made then at the latest. `until`: when it ends, if no table says so.
    """

    name: str
    since: datetime
    until: datetime | None = None

    @property
    def parts(self) -> tuple[str, str]:
        """The accessor, and the id if it is a JWT."""
        accessor, _, jti = self.name.partition("/")
        return accessor, jti

    def named(self) -> dict[str, Any]:
        """Return the parameters by which a query finds out whether it was revoked: its parts, the
        name under which it is revoked if it is a JWT, and since when it exists.
        """
        accessor, _, jti = self.name.partition("/")
        name = revocation(accessor, jti) if jti else ""
        return {"accessor": accessor, "jti": jti, "name": name, "made_at": self.since}


@dataclass(frozen=True)
class TokenInfo:
    """All that is known of a token except its secret; `accessor` names it everywhere.

    `parent`: the token that issued it, None for the operator. `expired_at`: when it was first seen
    expired; it stays expired whatever the clock says later. `not_before`: tokens of its namespace,
    or of the server, that were made before this moment are refused.
    """

    accessor: str
    namespace: Namespace
    created_at: datetime
    revoked_at: datetime | None = None
    label: str = ""
    rights: Rights = field(default_factory=Rights)
    parent: str | None = None
    expires_at: datetime | None = None
    expired_at: datetime | None = None
    uses_left: int | None = None
    last_used_at: datetime | None = None
    refused_at: datetime | None = None
    not_before: datetime | None = None
    signed: Signed | None = None

    @property
    def bearer(self) -> Bearer:
        if self.signed is None:
            return Bearer(self.accessor, self.created_at)
        # A child token's accessor contains its id; that of an identity provider's token does not.
        owner = self.accessor.partition("/")[0]
        name = "/".join(filter(None, (owner, self.signed.jti)))
        return Bearer(name, self.created_at, self.expires_at)

    @property
    def too_old(self) -> bool:
        """True if it was made before the moment of `not_before`."""
        return self.not_before is not None and self.created_at < self.not_before

    def also_not_before(self, at: datetime | None) -> TokenInfo:
        """Return it with the later one of this moment and its own `not_before`."""
        if at is None or (self.not_before is not None and self.not_before >= at):
            return self
        return replace(self, not_before=at)

    def refusal(self, now: datetime) -> Refusal | None:
        """Return why it may not be used at `now`; None if it may."""
        if self.revoked_at is not None:
            return Refusal.REVOKED
        if self.expired_at is not None or passed(self.expires_at, now):
            return Refusal.EXPIRED
        if self.too_old:
            return Refusal.TOO_OLD
        return Refusal.USED_UP if self.uses_left == 0 else None


def _pairs(metadata: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    checked = checked_metadata(metadata)
    if any(isinstance(value, Mapping | list) for value in checked.values()):
        raise Invalid("metadata filters by texts, numbers, true, false and null. Name one of them.")
    return frozenset((name, json.dumps(value)) for name, value in checked.items())


def _part(mine: frozenset[Any] | None, theirs: frozenset[Any] | None) -> bool:
    return theirs is None or (mine is not None and mine <= theirs)


PREFIX = "rcl_"
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
RANDOM_CHARS = 32
_SHAPE = re.compile(r"rcl_([0-9A-Za-z]{32})([0-9A-Za-z]{6})", re.ASCII)
# The underscore may be escaped as in addresses, Markdown and HTML; between the other characters may
# be what a mail program inserts when it breaks a line.
_ANYWHERE = re.compile(r"rcl(?:_|%5[Ff]|\\_|&#95;)((?:[\s>|=\\-]{0,4}[0-9A-Za-z]){38})", re.ASCII)
_BETWEEN = re.compile(r"[^0-9A-Za-z]+", re.ASCII)


def well_formed(token: str) -> bool:
    """True if `token` has the form and checksum of a token of this server."""
    match = _SHAPE.fullmatch(token)
    return match is not None and checksum(match[1]) == match[2]


def checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits = ""
    for _ in range(6):
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits


def own_tokens(text: str) -> Iterator[tuple[int, int]]:
    """Yield where tokens with the right checksum begin and end in `text`, whole or broken over
    lines.
    """
    for found in _ANYWHERE.finditer(text):
        if well_formed(PREFIX + _BETWEEN.sub("", found[1])):
            yield found.span()
