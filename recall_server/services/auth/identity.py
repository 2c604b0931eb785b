"""Verifies tokens of identity providers and maps their claims to namespaces and scopes.

Nothing about a user is stored. Each issuer has its own key set: no key of one verifies a token of
another.
"""

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import structlog

from recall_server.domain.errors import AuthUnavailable, InsufficientScope, NamespaceNotAllowed
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import Rights, Scope, Signed, TokenInfo
from recall_server.integrations.crypto.issuers import OURS, Issuer, KeySet
from recall_server.integrations.crypto.jwt import Jwt, NotValid, check, prove, read
from recall_server.services.auth.delegation import Delegation
from recall_server.storage.store import Store

log = structlog.get_logger()

_DIGEST_CHARS = 32


class Identity:
    """Verifies the tokens of `issuers`."""

    def __init__(
        self, store: Store, now: Callable[[], datetime], issuers: Sequence[Issuer]
    ) -> None:
        self._store = store
        self._now = now
        self._issuers = {one.issuer: (one, KeySet(one, now)) for one in issuers}

    async def verify(self, token: Jwt) -> TokenInfo:
        """Return the user's identity and rights. Raises `NotValid`; `NamespaceNotAllowed` or
        `InsufficientScope` if the token is valid but has no access here; `AuthUnavailable` if the
        issuer's keys are not available.
        """
        issuer, keys = self._issuers.get(token.issuer, (None, None))
        if issuer is None or keys is None:
            raise NotValid("issuer")
        expected = issuer.expected()
        check(token, expected, self._now())
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
        return TokenInfo(
            accessor=accessor,
            namespace=namespace,
            created_at=datetime.fromtimestamp(token.seconds("iat"), UTC),
            rights=Rights(scopes),
            expires_at=datetime.fromtimestamp(token.seconds("exp"), UTC),
            signed=token.signed,
        )

    async def still_valid(self, info: TokenInfo) -> bool:
        """True if a verified token would be accepted again: neither it nor its key has ended."""
        assert info.signed is not None
        issuer, keys = self._issuers[info.signed.issuer]
        try:
            await keys.key(info.signed.kid, info.signed.alg)
            await self._admit(issuer, info.namespace, info.accessor, info.signed)
        except (NotValid, NamespaceNotAllowed, AuthUnavailable):
            return False
        return info.expires_at is None or info.expires_at > self._now()

    async def _admit(
        self, issuer: Issuer, namespace: Namespace, accessor: str, signed: Signed
    ) -> None:
        if issuer.too_old(signed.issued_at):
            raise NotValid("not_before")
        async with self._store.transaction(None, write=False) as tx:
            found = await tx.access.entrance(namespace, accessor, signed.jti)
        if found is None:
            log.warning("token_refused", reason="namespace", accessor=accessor, missing=namespace)
            raise NamespaceNotAllowed(
                "The memory that this identity opens is not there yet. Ask the operator to make it "
                "with 'recall create-token NAMESPACE'."
            )
        if found.revoked:
            raise NotValid("revoked")
        if found.not_before is not None and signed.issued_at < found.not_before.timestamp():
            raise NotValid("not_before")

    async def close(self) -> None:
        for _, keys in self._issuers.values():
            await keys.close()


def _accessor(issuer: Issuer, subject: str) -> str:
    """Return a pseudonym of the user, as subjects are often e-mail addresses."""
    name = f"{issuer.issuer}\0{subject}".encode("utf-8", "surrogatepass")
    return f"{issuer.name}:{hashlib.sha256(name).hexdigest()[:_DIGEST_CHARS]}"


class JwtVerifier:
    """Implements `SignedTokens`: passes each token to the part that knows its issuer."""

    def __init__(self, delegation: Delegation, identity: Identity) -> None:
        self._delegation = delegation
        self._identity = identity

    async def verify(self, token: str) -> TokenInfo:
        parsed = read(token)
        ours = parsed.issuer == OURS
        return await (self._delegation if ours else self._identity).verify(parsed)

    async def still_valid(self, info: TokenInfo) -> bool:
        ours = info.signed is not None and info.signed.issuer == OURS
        return await (self._delegation if ours else self._identity).still_valid(info)
