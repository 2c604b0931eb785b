"""Who is calling, as the guard found out."""

from dataclasses import dataclass

from starlette.types import Scope

from recall_server.domain.errors import Unauthenticated
from recall_server.domain.model import Namespace

_KEY = "recall.caller"


@dataclass(frozen=True)
class Caller:
    """The tenant, and the token that was shown (by its accessor)."""

    namespace: Namespace
    accessor: str


def admit(scope: Scope, caller: Caller) -> None:
    scope[_KEY] = caller


def admitted(scope: Scope) -> Caller | None:
    """Who sent the request, None where the path is open to everybody, or it is none of HTTP."""
    caller = scope.get(_KEY)
    return caller if isinstance(caller, Caller) else None


def caller_of(scope: Scope) -> Caller:
    """Who sent the request at hand. Read from its own scope, never from a context variable, which
    a session may have kept from somebody else's request.
    """
    caller = scope.get(_KEY)
    if not isinstance(caller, Caller):
        raise Unauthenticated
    return caller
