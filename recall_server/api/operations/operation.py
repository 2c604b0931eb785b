"""An operation: one entry of the registry, from which every protocol derives its own form.

A protocol knows how to read arguments and write answers. This module says which operations there
are, what they need and what they do.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from starlette.types import Scope as Connection

from recall_server.api.arguments import Arguments, NoArguments
from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context
from recall_server.domain.errors import InsufficientScope, Unauthenticated
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import AccessScope, Rights, Scope, TokenInfo
from recall_server.services import Services
from recall_server.services.transfer.export import Reader

Json = dict[str, Any]

# All other methods have their arguments in the query.
BODY_METHODS = frozenset({"POST", "PATCH", "PUT"})


# Tools that are listed only if RECALL_MCP_TOOLSETS names them; calls work in any case.
REVIEWS = "reviews"
ENGRAM = "engram"
CAMILLO = "camillo"
AGENTERNAL = "agenternal"

CALLER = "recall.caller"
"""The key of the `Caller` in the scope of a request whose token was verified."""


@dataclass(frozen=True)
class Caller:
    """The tenant, the token that was sent (by its accessor), and what it may do. `refused` are the
    operations that it asked for without the scope, which are answered with a challenge; `token` is
    the verified token, with which `Access.still_valid` is asked about open answers. `request_id` is
    that of the request, which its records have too.
    """

    namespace: Namespace
    accessor: str
    rights: Rights
    expires_at: datetime | None = None
    refused: list[InsufficientScope] = field(default_factory=list, compare=False)
    token: TokenInfo | None = field(default=None, compare=False)
    request_id: str | None = field(default=None, compare=False)

    def context(self, entry: AuditEntry) -> Context:
        """Return the context of a service for the operation that `entry` records."""
        return Context(entry, self.access_scope)

    @property
    def access_scope(self) -> AccessScope:
        return self.rights.access_scope


def caller_of(scope: Connection) -> Caller:
    """Return the caller of this request. It is read from the request's own scope, never from a
    context variable, which a session may have kept from another request.
    """
    caller = scope.get(CALLER)
    if not isinstance(caller, Caller):
        raise Unauthenticated
    return caller


@dataclass(frozen=True)
class Call:
    """A call with all that a handler knows of it besides its arguments; `client` is the name that
    the client gives itself, or else its protocol.
    """

    services: Services
    caller: Caller
    entry: AuditEntry
    client: str | None = None

    @property
    def context(self) -> Context:
        """Return the context of a service for this call."""
        return Context(self.entry, self.caller.rights.access_scope)


Handler = Callable[[Call, Any], Awaitable[Any]]
# Makes the data of the answer from what the handler returns and the arguments.
Presenter = Callable[[Any, Any], Any]


def as_is(value: Any, _: Any) -> Any:
    """The presenter for a handler that returns the data itself."""
    return value


@dataclass(frozen=True)
class Download:
    """The answer of an operation that returns a file: its first piece, and those that follow, which
    `reader` takes until it is ended.
    """

    name: str
    media_type: str
    first: bytes
    pieces: AsyncGenerator[bytes, None]
    reader: Reader


@dataclass(frozen=True)
class Plain:
    """An answer that is not JSON, whole."""

    media_type: str
    body: bytes


@dataclass(frozen=True)
class Http:
    """A route. Its arguments come from the path, from `headers` (by the names of their arguments),
    and the rest from the JSON body of a POST or a PATCH, or from the query of any other method.

    `arguments`, `present` and `returns` are set if they differ from those of the operation.
    `media_type` is set if the answer is not JSON. `holder` finds the caller of a request that
    needs no token. `besides` lists answers of another protocol at the same path, by status.
    """

    method: str
    path: str
    status: int = 200
    arguments: type[Arguments] | None = None
    present: Presenter | None = None
    returns: tuple[str, ...] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = ""
    holder: Callable[[Services, Any], Awaitable[Caller]] | None = None
    besides: Mapping[int, str] = field(default_factory=dict)

    @property
    def takes_body(self) -> bool:
        return self.method in BODY_METHODS


@dataclass(frozen=True)
class Mcp:
    """A tool, named like its operation; `description` is what a model reads. `arguments`, `present`
    and `returns` are set if they differ from those of the operation. The tool accepts `unlisted`
    arguments, but the list of tools does not name them, since it costs each client tokens. The
    same holds for `aliases`: names that other servers use for it, each with its arguments and its
    toolset. A tool of a `toolset` is listed only if the setting names that toolset.
    """

    title: str
    description: str
    arguments: type[Arguments] | None = None
    present: Presenter | None = None
    returns: tuple[str, ...] | None = None
    unlisted: frozenset[str] = frozenset()
    aliases: Mapping[str, tuple[type[Arguments], str]] = field(default_factory=dict)
    toolset: str = ""
    destructive: bool = False
    idempotent: bool = False


@dataclass(frozen=True)
class Operation:
    """One entry of the registry. `name` appears in the audit log. `scope` is what a token needs
    (None: any token will do). A token limited to a part of its namespace may not call a
    `whole_namespace` operation. A `read_only` operation changes nothing: its audit record is
    written after the reply. An operation that `destroys` is refused while a hold stands.

    `returns` names the fields that the answer always has. `becomes` returns the operation, with
    its own scope, that these arguments stand for with these rights, if it is another one. A token
    that may only propose can call an operation that `proposes`. `a2a` lists methods of A2A and
    `cli` names a command: their code is with their protocol, their name and scope are here.
    """

    name: str
    scope: Scope | None
    summary: str
    arguments: type[Arguments] = NoArguments
    handler: Handler | None = None
    present: Presenter = as_is
    returns: tuple[str, ...] = ()
    whole_namespace: bool = False
    read_only: bool = False
    destroys: bool = False
    becomes: "Callable[[Any, Rights], Operation] | None" = None
    proposes: bool = False
    http: tuple[Http, ...] = ()
    mcp: Mcp | None = None
    a2a: tuple[str, ...] = ()
    cli: str | None = None

    def allowed(self, rights: Rights) -> bool:
        """True if `rights` have the scope of this operation, or may propose what it does."""
        return rights.allows(self.scope) or (self.proposes and rights.proposes)
