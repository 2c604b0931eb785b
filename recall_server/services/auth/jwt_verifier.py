"""Verifies JSON web tokens by their issuer: this server, or a configured identity provider."""

from recall_server.domain.permissions import TokenInfo
from recall_server.integrations.crypto.issuers import OURS
from recall_server.integrations.crypto.jwt import read
from recall_server.services.auth.delegation import Delegation
from recall_server.services.auth.identity import Identity


class JwtVerifier:
    """Implements `SignedTokens`."""

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
