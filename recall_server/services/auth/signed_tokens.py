"""JWTs, which no table holds: narrower children of a token for sub-agents, which this server signs
for an hour, and tokens of identity providers, whose claims name namespaces and scopes.

A child is valid while its parent is, unless its own id was revoked; one read checks both. It has no
children itself and cannot manage tokens. Nothing about a user is stored. Each issuer has its own
key set: no key of one verifies a token of another.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import jwt
import structlog

from recall_server.domain.context import Context, Runtime
from recall_server.domain.errors import (
    AuthUnavailable,
    InsufficientScope,
    Invalid,
    NamespaceNotAllowed,
    TokenNotFound,
    Unauthenticated,
    WouldWiden,
)
from recall_server.domain.ids import Namespace, namespace
from recall_server.domain.permissions import Rights, Scope, Signed, TokenInfo, narrower_or_equal
from recall_server.integrations.issuers import (
    LEEWAY,
    LIFE_MAX,
    OURS,
    TEXT_CHARS_MAX,
    TOKEN_CHARS_MAX,
    Expected,
    Issuer,
    Jwt,
    KeySet,
    NotValid,
    check,
    prove,
    read,
)
from recall_server.integrations.keys import ALG, ServerKey
from recall_server.services.auth import REFUSED, End, TokenRequest, validated
from recall_server.storage.store import Store
from recall_server.storage.tables.access import Entrance

TYP = "recall-child+jwt"
LIFE = timedelta(hours=1)
_NOT_FOR_CHILDREN = frozenset({Scope.TOKENS, Scope.ADMIN})
_BEARER_CHARS = len("Bearer ")


@dataclass(frozen=True)
class Delegation:
    """Mints, verifies and revokes children. `audience` is the name of this server in its tokens;
    `end` ends what revoked children began.
    """

    store: Store
    runtime: Runtime
    key: ServerKey
    audience: str
    end: End

    @cached_property
    def _public(self) -> jwt.PyJWK:
        return jwt.PyJWK(dict(self.key.public), ALG)

    @property
    def _expected(self) -> Expected:
        return Expected(OURS, self.audience, TYP, (ALG,))

    async def mint(
        self, context: Context, parent: str, wanted: TokenRequest
    ) -> tuple[str, TokenInfo]:
        """Return a child of the token `parent`; by default for `LIFE`, or until its parent ends.

        Raises `WouldWiden` if it would have more rights or time than the parent, or the parent may
        have no children; `Invalid` if a limit is not acceptable.
        """
        if _NOT_FOR_CHILDREN & wanted.rights.scopes:
            raise WouldWiden("A child cannot manage tokens: leave out tokens:manage and admin.")
        wanted = validated(wanted)
        life = wanted.expires_in or LIFE
        if life > LIFE_MAX:
            raise Invalid(f"A child lasts for {LIFE_MAX // timedelta(hours=1)} hours at most.")
        now = self.runtime.now()
        end = now + life
        async with self.store.transaction(context.namespace, entry=context.entry) as tx:
            issuer = await tx.access.token(parent)
            if issuer is None:
                raise WouldWiden("Only a token that was made here has children.")
            if issuer.refusal(now) is not None:
                raise Unauthenticated(REFUSED)
            if issuer.uses_left is not None:
                raise WouldWiden("A token whose uses are counted has no children.")
            if not narrower_or_equal(wanted.rights, issuer.rights):
                raise WouldWiden
            if issuer.expires_at is not None and end > issuer.expires_at:
                if wanted.expires_in is not None:
                    raise WouldWiden("A child cannot outlive its parent. Ask for less.")
                end = issuer.expires_at
            token, info = self._signed(context.namespace, parent, wanted.rights, now, end)
            context.entry.ids.append(info.accessor)
        return token, info

    def _signed(
        self, namespace: Namespace, parent: str, rights: Rights, now: datetime, end: datetime
    ) -> tuple[str, TokenInfo]:
        jti = self.runtime.new_id("child")
        issued, ends = int(now.timestamp()), int(end.timestamp())
        if ends <= issued:
            raise WouldWiden("The parent ends within a second.")
        claims = {
            "iss": OURS,
            "aud": self.audience,
            "sub": parent,
            "jti": jti,
            "iat": issued,
            "exp": ends,
            "namespace": namespace,
            **_claims(rights),
        }
        token = self.key.sign(claims, TYP)
        if len(token) + _BEARER_CHARS > TOKEN_CHARS_MAX:
            raise Invalid("The topics make the token too long for a header. Name fewer.")
        info = TokenInfo(
            accessor=f"{parent}/{jti}",
            namespace=namespace,
            created_at=datetime.fromtimestamp(issued, UTC),
            rights=rights,
            parent=parent,
            expires_at=datetime.fromtimestamp(ends, UTC),
        )
        return token, info

    async def revoke(self, context: Context, parent: str, jti: str) -> bool:
        """Revoke one child from the next call on; False if it was revoked before. Also revokes a
        token of an identity provider, with the user's accessor as `parent`.
        """
        if "/" in parent:
            raise TokenNotFound("A child has no children.")
        if not all(one.isprintable() and 0 < len(one) <= TEXT_CHARS_MAX for one in (parent, jti)):
            raise TokenNotFound
        now = self.runtime.now()
        until = now + LIFE_MAX + 2 * LEEWAY  # its expiry is unknown, but bounded
        async with self.store.transaction(
            context.namespace, entry=context.entry, locked=True
        ) as tx:
            name = f"{parent}/{jti}"
            context.entry.ids.append(name)
            revoked = await tx.access.revoke_child(parent, jti, now, until)
            context.entry.counts["revoked"] = int(revoked)
            then = await self.end(tx, context.entry, lambda one: one == name)
        then()
        return revoked

    async def verify(self, token: Jwt) -> TokenInfo:
        """Return the child's owner and rights. Raises `NotValid`."""
        now = self.runtime.now()
        if token.kid != self.key.kid:
            raise NotValid("no such key")
        check(token, self._expected, now)
        prove(token, self._public, self._expected)
        if token.jti is None:
            raise NotValid("jti")
        try:
            rights = Rights.read(token.claims)
        except (KeyError, TypeError, ValueError):
            raise NotValid("rights") from None
        namespace = _namespace(token.claims.get("namespace"))
        info = _info(token, f"{token.subject}/{token.jti}", namespace, rights)
        info = replace(info, parent=token.subject)
        return replace(info, label=await self._check_parent(info, now))

    async def still_valid(self, info: TokenInfo) -> bool:
        now = self.runtime.now()
        try:
            await self._check_parent(info, now)
        except NotValid:
            return False
        return info.expires_at is None or info.expires_at > now

    async def _check_parent(self, info: TokenInfo, now: datetime) -> str:
        """Check a child against its parent and return the parent's label. Raises `NotValid`."""
        assert info.parent is not None
        assert info.signed is not None
        found = await _entrance(self.store, info.namespace, info.parent, info.signed)
        if found is None or found.parent is None:
            raise NotValid("unknown parent")
        if (refusal := found.parent.refusal(now)) is not None:
            raise NotValid(f"parent {refusal}")
        if not narrower_or_equal(info.rights, found.parent.rights):
            raise NotValid("wider than its parent")
        return found.parent.label


async def _entrance(
    store: Store, namespace: Namespace, accessor: str, signed: Signed
) -> Entrance | None:
    """Return the values that a token is checked against; None if there is no such namespace. Raises
    `NotValid` if the token was revoked, by its name or by its date.
    """
    found = await store.autocommit(None).access.entrance(namespace, accessor, signed.jti)
    if found is not None and found.revoked:
        raise NotValid("revoked")
    not_before = found.not_before if found else None
    if not_before is not None and signed.issued_at < not_before.timestamp():
        raise NotValid("not_before")
    return found


def _info(token: Jwt, accessor: str, namespace: Namespace, rights: Rights) -> TokenInfo:
    return TokenInfo(
        accessor=accessor,
        namespace=namespace,
        created_at=datetime.fromtimestamp(token.seconds("iat"), UTC),
        rights=rights,
        expires_at=datetime.fromtimestamp(token.seconds("exp"), UTC),
        signed=token.signed,
    )


def _claims(rights: Rights) -> dict[str, Any]:
    """Return rights as claims; a missing claim means no limit."""
    limits = vars(rights.access_scope).items()
    return {"scopes": sorted(rights.scopes)} | {
        name: limit if isinstance(limit, str) else sorted(limit)
        for name, limit in limits
        if limit is not None
    }


def _namespace(claim: object) -> Namespace:
    try:
        return namespace(str(claim))
    except Invalid:
        raise NotValid("namespace") from None


log = structlog.get_logger()

_DIGEST_CHARS = 32


@dataclass(frozen=True)
class Identity:
    """Verifies the tokens of `issuers`."""

    store: Store
    now: Callable[[], datetime]
    issuers: Sequence[Issuer]

    @cached_property
    def _issuers(self) -> dict[str, tuple[Issuer, KeySet]]:
        return {one.issuer: (one, KeySet(one, self.now)) for one in self.issuers}

    async def verify(self, token: Jwt) -> TokenInfo:
        """Return the user's identity and rights. Raises `NotValid`; `NamespaceNotAllowed` or
        `InsufficientScope` if the token is valid but has no access here; `AuthUnavailable` if the
        issuer's keys are not available.
        """
        issuer, keys = self._issuers.get(token.issuer, (None, None))
        if issuer is None or keys is None:
            raise NotValid("issuer")
        expected = issuer.expected()
        check(token, expected, self.now())
        prove(token, await keys.key(token.kid, token.alg), expected)
        claims = token.claims
        if any(claims.get(name) != value for name, value in issuer.required_claims.items()):
            raise NotValid("required_claims")
        accessor = _accessor(issuer, token.subject)
        namespace = issuer.namespace_of(claims)
        if namespace is None:
            log.info("token_refused", reason="namespace", accessor=accessor)
            raise NamespaceNotAllowed
        await self._admit(issuer, namespace, accessor, token.signed)
        scopes = issuer.scopes_of(claims)
        if not scopes:
            log.info("token_refused", reason="scope", accessor=accessor)
            raise InsufficientScope(Scope.READ)
        return _info(token, accessor, namespace, Rights(scopes))

    async def still_valid(self, info: TokenInfo) -> bool:
        """True if a verified token would be accepted again: neither it nor its key has ended."""
        assert info.signed is not None
        issuer, keys = self._issuers[info.signed.issuer]
        try:
            await keys.key(info.signed.kid, info.signed.alg)
            await self._admit(issuer, info.namespace, info.accessor, info.signed)
        except (NotValid, NamespaceNotAllowed, AuthUnavailable):
            return False
        return info.expires_at is None or info.expires_at > self.now()

    async def _admit(
        self, issuer: Issuer, namespace: Namespace, accessor: str, signed: Signed
    ) -> None:
        if issuer.too_old(signed.issued_at):
            raise NotValid("not_before")
        if await _entrance(self.store, namespace, accessor, signed) is None:
            log.warning("token_refused", reason="namespace", accessor=accessor, missing=namespace)
            raise NamespaceNotAllowed(
                "The memory that this identity opens is not there yet. Ask the operator to make it "
                "with 'recall create-token NAMESPACE'."
            )

    async def close(self) -> None:
        for _, keys in self._issuers.values():
            await keys.close()


def _accessor(issuer: Issuer, subject: str) -> str:
    """Return a pseudonym of the user, as subjects are often e-mail addresses."""
    name = f"{issuer.issuer}\0{subject}".encode("utf-8", "surrogatepass")
    return f"{issuer.name}:{hashlib.sha256(name).hexdigest()[:_DIGEST_CHARS]}"


@dataclass(frozen=True)
class JwtVerifier:
    """Implements `SignedTokens`: passes each token to the part that knows its issuer."""

    delegation: Delegation
    identity: Identity

    async def verify(self, token: str) -> TokenInfo:
        parsed = read(token)
        return await self._verifier(parsed.issuer).verify(parsed)

    async def still_valid(self, info: TokenInfo) -> bool:
        issuer = info.signed.issuer if info.signed else None
        return await self._verifier(issuer).still_valid(info)

    def _verifier(self, issuer: str | None) -> Delegation | Identity:
        return self.delegation if issuer == OURS else self.identity
