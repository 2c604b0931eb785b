"""The caller of a request, as authentication found out."""

from dataclasses import dataclass, field
from datetime import datetime

from starlette.types import Scope

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context
from recall_server.domain.errors import InsufficientScope, Unauthenticated
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import AccessScope, Rights, TokenInfo

_KEY = "recall.caller"


@dataclass(frozen=True)
class Caller:
    """The tenant, the token that was shown (by its accessor), and what it may do. `refused` are
    the operations that it asked for without the scope, which are answered with a challenge;
    `token` is what was verified, for `Access.still_valid` to be asked about what stays open.
    """

    namespace: Namespace
    accessor: str
    rights: Rights
    expires_at: datetime | None = None
    refused: list[InsufficientScope] = field(default_factory=list, compare=False)
    token: TokenInfo | None = field(default=None, compare=False)

    def context(self, entry: AuditEntry) -> Context:
        """On whose behalf a service acts for the operation that `entry` records."""
        return Context(entry, self.access_scope)

    @property
    def access_scope(self) -> AccessScope:
        return self.rights.access_scope


def admit(scope: Scope, caller: Caller) -> None:
    scope[_KEY] = caller


def admitted(scope: Scope) -> Caller | None:
    """The caller; None where the path needs no token, or the request is none of HTTP."""
    caller = scope.get(_KEY)
    return caller if isinstance(caller, Caller) else None


def caller_of(scope: Scope) -> Caller:
    """The caller of the request at hand. Read from its own scope, never from a context variable,
    which a session may have kept from another request.
    """
    caller = scope.get(_KEY)
    if not isinstance(caller, Caller):
        raise Unauthenticated
    return caller
