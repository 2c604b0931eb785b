"""Who may enter: issue, verify, list and revoke tokens."""

from collections.abc import Callable
from datetime import datetime

from recall_server.domain.errors import TokenNotFound, Unauthenticated
from recall_server.domain.model import AuditEntry, Namespace, TokenInfo
from recall_server.domain.text import clean_label
from recall_server.domain.tokens import new_token, token_hash, well_formed
from recall_server.storage.store import Store

LABEL_CHARS_MAX = 128


class Access:
    """Tokens by namespace. What a token may do is all of its namespace."""

    def __init__(
        self, store: Store, now: Callable[[], datetime], new_id: Callable[[str], str]
    ) -> None:
        self._store = store
        self._now = now
        self._new_id = new_id

    async def issue(
        self, namespace: Namespace, *, label: str = "", entry: AuditEntry
    ) -> tuple[str, TokenInfo]:
        """A new token for `namespace`, which is made where it is new. The token is told this once;
        only its hash is kept.
        """
        label = clean_label(label, "label", chars_max=LABEL_CHARS_MAX) if label else ""
        token = new_token()
        info = TokenInfo(self._new_id("acc"), namespace, self._now(), label=label)
        async with self._store.transaction(namespace, entry=entry) as tx:
            await tx.access.add_token(info, token_hash(token))
            entry.ids.append(info.accessor)
        return token, info

    async def verify(self, token: str) -> TokenInfo:
        """Whose token it is. Raises `Unauthenticated` where it is unknown or revoked.

        Asks the database each time, so that a revocation holds from the next call on.
        """
        if not well_formed(token):
            raise Unauthenticated(
                "This is not a token of this server. Check that it was copied whole."
            )
        async with self._store.transaction(None, write=False) as tx:
            info = await tx.access.by_hash(token_hash(token))
        if info is None:
            raise Unauthenticated(
                "This token is not known here. Check that the server uses the database in which "
                "it was made."
            )
        if info.revoked_at is not None:
            raise Unauthenticated("This token was revoked. Ask the operator for a new one.")
        return info

    async def tokens(self, namespace: Namespace | None = None) -> list[TokenInfo]:
        """The tokens of one namespace, or of all."""
        async with self._store.transaction(namespace, write=False) as tx:
            return await (tx.access.all_tokens() if namespace is None else tx.access.tokens())

    async def find(self, accessor: str) -> TokenInfo:
        """The token that `accessor` names. Raises `TokenNotFound`."""
        async with self._store.transaction(None, write=False) as tx:
            info = await tx.access.by_accessor(accessor)
        if info is None:
            raise TokenNotFound
        return info

    async def stands(self, accessor: str) -> bool:
        """Whether the token that let a caller in would still do so."""
        async with self._store.transaction(None, write=False) as tx:
            info = await tx.access.by_accessor(accessor)
        return info is not None and info.revoked_at is None

    async def revoke(self, info: TokenInfo, *, entry: AuditEntry) -> bool:
        """End a token, from the next call on; False where it was revoked before."""
        async with self._store.transaction(info.namespace, entry=entry) as tx:
            entry.ids.append(info.accessor)
            return await tx.access.revoke(info.accessor, self._now())
