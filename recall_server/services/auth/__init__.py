"""Tokens: issues, verifies, lists, rotates and revokes them. Signed ones are delegated in a module
of their own.
"""

import hashlib
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from recall_server.domain.audit import AuditEntry, Outcome
from recall_server.domain.context import Context, Runtime
from recall_server.domain.errors import (
    BeingErased,
    Invalid,
    LastAdmin,
    NamespaceNotFound,
    TokenNotFound,
    Unauthenticated,
    WouldWiden,
)
from recall_server.domain.ids import Namespace, container
from recall_server.domain.moments import passed
from recall_server.domain.permissions import (
    ALPHABET,
    PREFIX,
    RANDOM_CHARS,
    Bearer,
    Refusal,
    Rights,
    Scope,
    TokenInfo,
    checksum,
    narrower_or_equal,
    well_formed,
)
from recall_server.domain.text.cleaning import clean_label, storable
from recall_server.integrations.issuers import NotValid
from recall_server.storage.store import Store, Transaction


def new_token(choice: Callable[[str], str] = secrets.choice) -> str:
    """Return a new token with 190 random bits."""
    body = "".join(choice(ALPHABET) for _ in range(RANDOM_CHARS))
    return PREFIX + body + checksum(body)


def token_hash(token: str) -> str:
    """Return the hash to store. One SHA-256 is enough for 190 random bits."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


log = structlog.get_logger()

LABEL_CHARS_MAX = 128
TOPICS_MAX = 100
CONTAINERS_MAX = 100
USES_MAX = 1_000_000_000
OVERLAP_MAX = timedelta(days=30)
REFUSED = (
    "This token is not let in here. Send 'Authorization: Bearer TOKEN', copied whole, and check "
    "that the server uses the database in which it was made. Ask the operator for a new one."
)
# Precision of `last_used_at` and `refused_at`: not every call writes.
NOTED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True)
class TokenRequest:
    """Limits of a new token; None: no expiry (if the operator asks), or any number of uses."""

    rights: Rights = field(default_factory=Rights)
    expires_in: timedelta | None = None
    uses: int | None = None


class SignedTokens(Protocol):
    """Tokens that no table holds: children, and those of configured issuers."""

    async def verify(self, token: str) -> TokenInfo:
        """Return the token's owner and rights. Raises `NotValid` if it is not a valid token, a
        `Denied` error if it is valid but has no access here, and `AuthUnavailable`.
        """

    async def still_valid(self, info: TokenInfo) -> bool:
        """True if a verified token would be accepted again."""


End = Callable[[Transaction, AuditEntry, Callable[[str], bool]], Awaitable[Callable[[], None]]]
"""Ends what tokens with these names (`Bearer.name`) began, in the transaction of their revocation,
and counts it in the audit record; returns a call for after the commit."""


@dataclass(frozen=True)
class Access:
    """Tokens by namespace. `begin` starts an audit record; `life` is a token's default lifetime;
    `signed` verifies tokens that no table holds; `end` ends what revoked ones began.
    """

    store: Store
    runtime: Runtime
    begin: Callable[[Namespace, str, str, str | None], AuditEntry]
    life: timedelta
    signed: SignedTokens
    end: End

    async def issue(
        self,
        context: Context,
        *,
        label: str = "",
        wanted: TokenRequest | None = None,
        by: str | None = None,
    ) -> tuple[str, TokenInfo]:
        """Return a new token for the namespace, which is created if it is new. The token is shown
        only once; its hash alone is stored. `by` is the issuing token, None for the operator. A
        token issued by another one without an expiry ends after `life`, or with its issuer.

        Raises `WouldWiden` if a token would issue more than it may do itself or for longer,
        `BeingErased` during an erasure of the namespace, and `Invalid` if a limit is not
        acceptable.
        """
        label = clean_label(label, "label", chars_max=LABEL_CHARS_MAX) if label else ""
        wanted = validated(wanted or TokenRequest())
        token, now = new_token(), self.runtime.now()
        info = TokenInfo(
            self.runtime.new_id("acc"),
            context.namespace,
            now,
            label=label,
            rights=wanted.rights,
            parent=by,
            expires_at=now + wanted.expires_in if wanted.expires_in else None,
            uses_left=wanted.uses,
        )
        async with self.store.transaction(context.namespace, entry=context.entry) as tx:
            if await tx.erasures.namespace_is_erased():
                raise BeingErased
            if by is not None:
                # A concurrent revocation of the issuer and its children must include this token.
                await tx.lock()
                issuer = await tx.access.token(by)
                if issuer is None:
                    raise WouldWiden("Only a token that was made here issues others.")
                if info.expires_at is None:
                    end = now + self.life
                    info = replace(info, expires_at=min(issuer.expires_at or end, end))
                _require_narrower(info, issuer, now)
            await tx.access.add_token(info, token_hash(token))
            context.entry.ids.append(info.accessor)
            context.entry.details |= {"label": label} if label else {}
        return token, info

    async def verify(self, token: str) -> TokenInfo:
        """Return the owner and rights of a token. Raises `Unauthenticated`, with the same message
        whatever the reason; the reason goes to the log and to the audit log of the namespace.

        Queries the database each time, so that a revocation applies from the next call on. A token
        of another form must be a JWT of this server or of a configured issuer; it raises the errors
        of `SignedTokens.verify`.
        """
        if not well_formed(token):
            try:
                return await self.signed.verify(token)
            except NotValid as why:
                log.info("token_refused", reason=str(why))
                raise Unauthenticated(REFUSED) from None
        info = await self.store.autocommit(None).access.by_hash(token_hash(token))
        if info is None:
            log.info("token_refused", reason="unknown")
            raise Unauthenticated(REFUSED)
        now = self.runtime.now()
        refusal = info.refusal(now)
        if refusal is None and (info.uses_left is not None or _note_due(info.last_used_at, now)):
            async with self.store.transaction(info.namespace) as tx:
                used, left = await tx.access.use(info.accessor, now)
            info = replace(info, uses_left=left)
            refusal = None if used else Refusal.USED_UP
        if refusal is not None:
            await self._refuse(info, refusal, now)
            raise Unauthenticated(REFUSED)
        return info

    async def still_valid(self, info: TokenInfo) -> bool:
        """True if a verified token would be accepted again, for streams that outlast a call. It
        takes one read and counts no use.
        """
        if info.signed is not None:
            return await self.signed.still_valid(info)
        now = await self.store.autocommit(None).access.by_accessor(info.accessor)
        # The current call may be the last counted use.
        return now is not None and now.refusal(self.runtime.now()) in (None, Refusal.USED_UP)

    async def _refuse(self, info: TokenInfo, refusal: Refusal, now: datetime) -> None:
        log.info("token_refused", reason=refusal, accessor=info.accessor)
        expired = refusal is Refusal.EXPIRED
        # Repeated use of a refused token must not fill the audit log or the disk.
        if not _note_due(info.refused_at, now) and not (expired and info.expired_at is None):
            return
        entry = self.begin(info.namespace, "authenticate", "guard", info.accessor)
        entry.outcome, entry.code = Outcome.ERROR, Unauthenticated.code
        entry.counts[refusal] = 1
        async with self.store.transaction(info.namespace, entry=entry, locked=True) as tx:
            await tx.access.refuse(info.accessor, now, expired=expired)

    async def tokens(
        self, namespace: Namespace | None = None, by: Rights | None = None
    ) -> list[TokenInfo]:
        """Return the tokens, of one namespace or of all, that a token with rights `by` may see."""
        found = await self.store.autocommit(namespace).access.tokens()
        # A namespace does not know what holds for all.
        since = await self.store.autocommit(None).server.tokens_not_before()
        return [one.also_not_before(since) for one in found if _visible(one, by)]

    async def find(
        self, accessor: str, namespace: Namespace | None = None, by: Rights | None = None
    ) -> TokenInfo:
        """Return the token with this accessor, in `namespace` if given. Raises `TokenNotFound`,
        also if a token with the rights `by` may not see it.
        """
        storable(accessor)
        info = await self.store.autocommit(None).access.by_accessor(accessor)
        if info is None or namespace not in (None, info.namespace) or not _visible(info, by):
            raise TokenNotFound
        return info

    async def rotate(
        self, context: Context, info: TokenInfo, overlap: timedelta, *, by: str | None = None
    ) -> tuple[str, TokenInfo]:
        """Return a replacement of `info`, which itself ends after `overlap`. It has the same
        rights, label, parent, children and uses left, and the old one's original lifetime. If a
        token asks for it (`by`), it ends when the old one would have.

        Raises `Invalid` if the old one is no longer valid, and `WouldWiden`.
        """
        if not timedelta() <= overlap <= OVERLAP_MAX:
            raise Invalid(f"overlap must be 0 seconds to {OVERLAP_MAX.days} days.")
        token, now = new_token(), self.runtime.now()
        async with self.store.transaction(info.namespace, entry=context.entry, locked=True) as tx:
            await tx.audit.require(context.entry)
            context.entry.ends_caller = True
            old = await _find(tx, info.accessor)
            if old.refusal(now) is not None:
                raise Invalid("This token is not valid any more. Issue a new one.")
            accessor = self.runtime.new_id("acc")
            new = replace(
                old, accessor=accessor, created_at=now, last_used_at=None, refused_at=None
            )
            if by is not None:
                _require_narrower(new, await _find(tx, by), now)
            elif old.expires_at is not None:
                new = replace(new, expires_at=now + (old.expires_at - old.created_at))
            await tx.access.add_token(new, token_hash(token))
            await tx.access.succeed(old.accessor, new.accessor, now + overlap, now)
            context.entry.ids += [old.accessor, new.accessor]
        return token, new

    async def revoke(
        self, context: Context, info: TokenInfo, *, children_only: bool = False, force: bool = False
    ) -> list[str]:
        """Revoke a token and all that it issued, or only the latter, from the next call on, and end
        what they began, which the audit record counts. Return the accessors that were not revoked
        before.

        Raises `LastAdmin` if the namespace would lose its last token with the scope admin, unless
        `force`.
        """
        now = self.runtime.now()
        async with self.store.transaction(info.namespace, entry=context.entry, locked=True) as tx:
            await tx.audit.require(context.entry)
            context.entry.ends_caller = True
            tokens = await tx.access.tokens()
            ended = _descendants(tokens, info.accessor) | (
                set() if children_only else {info.accessor}
            )
            admins = {
                one.accessor
                for one in tokens
                if Scope.ADMIN in one.rights.scopes and one.refusal(now) is None
            }
            if admins & ended and not admins - ended and not force:
                raise LastAdmin
            revoked = await tx.access.revoke(sorted(ended), now)
            if children_only:
                await tx.access.end_children(info.accessor, now)
            context.entry.ids += revoked or [info.accessor]
            context.entry.counts["revoked"] = len(revoked)
            parents = ended | {info.accessor}
            then = await self.end(
                tx, context.entry, lambda name: name in ended or _parent(name) in parents
            )
        then()
        return revoked

    async def not_before(
        self, namespace: Namespace | None, at: datetime | None, *, entry: AuditEntry | None
    ) -> datetime:
        """Refuse tokens that were made before `at` (None: now), of one namespace or of all. Raises
        `NamespaceNotFound`.
        """
        at = at or self.runtime.now()
        async with self.store.transaction(namespace, entry=entry) as tx:
            if namespace is None:
                await tx.server.set_tokens_not_before(at)
                log.warning("tokens_not_before", at=at.isoformat())
            elif not await tx.access.set_not_before(at):
                raise NamespaceNotFound
        return at


def _visible(info: TokenInfo, by: Rights | None) -> bool:
    """True if a token with the rights `by` may see and end another: a limited one only what it
    could issue, the operator (None) any.
    """
    return by is None or by.access_scope.everything or narrower_or_equal(info.rights, by)


async def stands(
    store: Store,
    now: datetime,
    namespace: Namespace,
    bearer: Bearer | None,
    rights: Rights | None = None,
) -> bool:
    """True if the token that began something is still valid and has these rights; None is the
    operator. A token stays valid here after its last counted use.
    """
    if bearer is None:
        return True
    accessor, jti = bearer.parts
    found = await store.autocommit(None).access.entrance(namespace, accessor, jti)
    if found is None or found.revoked or passed(bearer.until, now):
        return False
    issuer, not_before = found.parent, found.not_before
    if (jti or issuer is None) and not_before is not None and bearer.since < not_before:
        return False
    if issuer is None:
        return bearer.until is not None  # an identity provider's token, which no table holds
    good = issuer.refusal(now) in (None, Refusal.USED_UP)
    return good and (rights is None or narrower_or_equal(rights, issuer.rights))


async def require_standing(store: Store, now: datetime, entry: AuditEntry) -> None:
    """Raise `Unauthenticated` if the caller's token is no longer valid, for calls that last."""
    if not await stands(store, now, entry.namespace, entry.bearer):
        raise Unauthenticated(REFUSED)


async def _find(tx: Transaction, accessor: str) -> TokenInfo:
    """Return a token of the transaction's namespace. Raises `TokenNotFound`."""
    info = await tx.access.token(accessor)
    if info is None:
        raise TokenNotFound
    return info


def _require_narrower(new: TokenInfo, issuer: TokenInfo, now: datetime) -> None:
    """Raise `WouldWiden` if the new token is wider or longer-lived than its issuer, and
    `Unauthenticated` if the issuer is no longer valid.
    """
    if issuer.refusal(now) is not None:
        raise Unauthenticated(REFUSED)
    if not narrower_or_equal(new.rights, issuer.rights):
        raise WouldWiden
    if issuer.uses_left is not None:
        raise WouldWiden("A token whose uses are counted issues no other.")
    longer = issuer.expires_at is not None and (
        new.expires_at is None or new.expires_at > issuer.expires_at
    )
    if longer and Scope.ADMIN not in issuer.rights.scopes:
        raise WouldWiden(
            "A token cannot outlive the one that issues it. Ask for less, or have the operator "
            "issue it."
        )


def _parent(name: str) -> str:
    """Return the accessor of a child's parent; "" if the name is not that of a child."""
    parent, slash, _ = name.partition("/")
    return parent if slash else ""


def _descendants(tokens: Sequence[TokenInfo], accessor: str) -> set[str]:
    found: set[str] = set()
    issuers = {accessor}
    while issuers:
        issuers = {one.accessor for one in tokens if one.parent in issuers} - found
        found |= issuers
    return found


def validated(wanted: TokenRequest) -> TokenRequest:
    """Return the normalized request. Raises `Invalid` if a limit is not acceptable."""
    if not wanted.rights.scopes:
        raise Invalid("A token needs at least one scope.")
    if wanted.expires_in is not None and wanted.expires_in <= timedelta():
        raise Invalid("A token must expire in the future.")
    if wanted.uses is not None and not 1 <= wanted.uses <= USES_MAX:
        raise Invalid(f"uses must be 1 to {USES_MAX}.")
    access_scope = wanted.rights.access_scope
    topics, agent = access_scope.topics, access_scope.agent_id
    if topics is not None:
        if not 1 <= len(topics) <= TOPICS_MAX:
            raise Invalid(f"A token may be limited to 1 to {TOPICS_MAX} topics.")
        topics = frozenset(clean_label(one, "topic", chars_max=LABEL_CHARS_MAX) for one in topics)
    if access_scope.types is not None and not access_scope.types:
        raise Invalid("A token that is limited to types needs at least one.")
    if agent is not None:
        agent = clean_label(agent, "agent_id", chars_max=2 * LABEL_CHARS_MAX)
    containers = access_scope.containers
    if containers is not None:
        if not 1 <= len(containers) <= CONTAINERS_MAX:
            raise Invalid(f"A token may be limited to 1 to {CONTAINERS_MAX} containers.")
        containers = frozenset(map(container, containers))
    access_scope = replace(access_scope, topics=topics, agent_id=agent, containers=containers)
    return replace(wanted, rights=replace(wanted.rights, access_scope=access_scope))


def _note_due(at: datetime | None, now: datetime) -> bool:
    return at is None or not timedelta() <= now - at < NOTED_EVERY


STREAMS, EXPORTS, CALLS = "streams", "exports", "calls"
KINDS = (STREAMS, EXPORTS, CALLS)


class OpenAnswers:
    """The open streams, exports and waiting calls of this process. They end by themselves when
    their token ends: see `stands`.
    """

    def __init__(self) -> None:
        self._open: dict[object, tuple[Namespace, str, str]] = {}

    @contextmanager
    def counted(self, kind: str, namespace: Namespace, bearer: Bearer | None) -> Iterator[None]:
        """Count one more of a kind during the context; the operator (None) is not counted."""
        answer = object()
        if bearer is not None:
            self._open[answer] = (namespace, bearer.name, kind)
        try:
            yield
        finally:
            self._open.pop(answer, None)

    def count(self, namespace: Namespace, ended: Callable[[str], bool]) -> Counter[str]:
        """Return how many of each kind are open for the tokens for which `ended` is true."""
        return Counter(
            kind for held, name, kind in self._open.values() if held == namespace and ended(name)
        )

    def forget(self, namespace: Namespace, ended: Callable[[str], bool]) -> None:
        """Stop counting these: they were reported as ended, but may last a moment longer."""
        for answer, (held, name, _) in list(self._open.items()):
            if held == namespace and ended(name):
                del self._open[answer]
