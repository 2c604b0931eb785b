"""An operation: one entry of the registry, from which every protocol derives its own form; its
arguments: exact types, and errors that name the fault, never the value; and its run, for any
protocol: the required scope, a deadline, one record in the audit log, and an error that a client
can act on.

A protocol knows how to read arguments and write answers. This module says which operations there
are, what they need and what they do.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from inspect import signature
from itertools import islice
from typing import Any, ClassVar, Self, TypeVar, cast, get_args

import structlog
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic_core import CoreSchema
from starlette.types import Scope as Connection
from structlog.contextvars import bound_contextvars

from recall_server.application import Services
from recall_server.domain.audit import AuditEntry, Outcome
from recall_server.domain.context import Context
from recall_server.domain.errors import (
    AuditUnavailable,
    Busy,
    DeadlineExceeded,
    Deadlocked,
    InsufficientScope,
    Invalid,
    RecallError,
    Unauthenticated,
)
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import Rights, Scope, TokenInfo
from recall_server.services.transfer import Reader
from recall_server.telemetry import Attributes, tracer

INT64_MAX = 2**63 - 1
FAULTS_NAMED = 5
ID_CHARS_MAX = 128
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,40}")


def _failing_fast(schema: Any) -> Any:
    """Return a schema by which a list has at most one error: its first."""
    if isinstance(schema, list):
        return [_failing_fast(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _failing_fast(part) for name, part in schema.items()}
    return found | {"fail_fast": True} if schema.get("type") == "list" else found


class Arguments(BaseModel):
    """Arguments of one operation: exact types, finite numbers, and no unknown names.

    `null` and `""` mean that an optional argument is not given, and a whole float, such as 3.0, is
    an integer, since clients and models that fill in a schema send these. Texts are plain `str`
    with "" for "none": the MCP SDK would parse other strings as JSON.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    # True if an error repeats the name of an unknown argument that looks like a name.
    repeats_names: ClassVar[bool] = True
    # The arguments for which an empty text is refused, since leaving them out would mean more.
    empty_is_given: ClassVar[frozenset[str]] = frozenset()
    # The arguments of others that are left out and not refused.
    ignored: ClassVar[frozenset[str]] = frozenset()
    _known: ClassVar[frozenset[str]]
    _left_out_if_empty: ClassVar[frozenset[str]]
    _left_out_if_null: ClassVar[frozenset[str]]
    _integers: ClassVar[frozenset[str]]

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        fields = cls.model_fields.items()
        cls._known = frozenset(one for name, field in fields for one in (name, field.alias) if one)
        optional = frozenset(name for name, field in fields if not field.is_required())
        cls._left_out_if_empty = optional - cls.empty_is_given
        # If None is a value of the argument, it is its default too.
        cls._left_out_if_null = frozenset(
            name for name in optional if cls.model_fields[name].default is not None
        )
        cls._integers = frozenset(
            name for name, field in fields if field.annotation in (int, int | None)
        )

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler, /
    ) -> CoreSchema:
        return cast("CoreSchema", _failing_fast(handler(source)))

    @model_validator(mode="before")
    @classmethod
    def _with_few_unknown(cls, given: Any) -> Any:
        """Leave out all but a few unknown names: each would be an error, and the event loop would
        wait while thousands of errors are made.
        """
        if not isinstance(given, dict) or len(given) <= len(cls._known) + FAULTS_NAMED:
            return given
        unknown = ((name, value) for name, value in given.items() if name not in cls._known)
        known = {name: value for name, value in given.items() if name in cls._known}
        return known | dict(islice(unknown, FAULTS_NAMED))

    @classmethod
    def parse(cls, given: Any, operation: str, *, as_text: bool = False) -> Self:
        """Return the checked arguments `given` to `operation`; with `as_text` each is a text, as in
        a query. Raises `Invalid`, which names each fault and the allowed values.
        """
        try:
            if isinstance(given, dict):
                given = cls._given(given)
            return cls.model_validate(given, strict=False if as_text else None)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)
            faults = [
                cls._fault(each["type"], each["loc"], each["msg"], operation)
                for each in found[:FAULTS_NAMED]
            ]
            raise Invalid(" ".join(dict.fromkeys(faults))) from None

    @classmethod
    def _given(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return what is given, with integers for whole floats. There may be very many names."""
        kept = {**given}
        for name in (one for one in cls.model_fields if one in given):
            value = given[name]
            if (value is None and name in cls._left_out_if_null) or (
                value == "" and name in cls._left_out_if_empty
            ):
                del kept[name]
            elif isinstance(value, float) and name in cls._integers and value.is_integer():
                kept[name] = int(value)
        for name in cls.ignored:
            kept.pop(name, None)
        return kept

    @classmethod
    def _fault(cls, kind: str, place: tuple[int | str, ...], why: str, operation: str) -> str:
        names = (field.alias or name for name, field in cls.model_fields.items())
        known = ", ".join(names) or "no arguments"
        if not place:
            return f"Send a JSON object. It may have {known}."
        field = str(place[0])
        if len(place) > 1:
            inner, model = cls._declared(place)
            if kind != "extra_forbidden":
                return f"{inner}: {why}."
            takes = f" It takes {', '.join(model.model_fields)}." if model else ""
            return f"{inner}: A field in it is not known.{takes}"
        if kind != "extra_forbidden":
            return f"{field}: {why}."
        # Only a possible name of an argument is worth repeating, and safe to repeat.
        named = f"'{field}'" if cls.repeats_names and _NAME.fullmatch(field) else "An argument"
        return f"{named} is not known to {operation}, which takes {known}."

    @classmethod
    def _declared(cls, place: tuple[int | str, ...]) -> tuple[str, type[BaseModel] | None]:
        """Return the part of a place that is declared here, and the model that is there: names
        further down may come from what the client sent.
        """
        named, model = "", cast("type[BaseModel] | None", cls)
        for part in place:
            if isinstance(part, int):
                named += f"[{part}]"
            elif model is not None and part in model.model_fields:
                named += f".{part}"
                model = _model_in(model.model_fields[part].annotation)
            else:
                break
        return named.removeprefix("."), model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model of an argument that is an object, or a list of them; None for another."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((one for each in get_args(annotation) if (one := _model_in(each))), None)


class NoArguments(Arguments):
    """The arguments of an operation that takes none."""


_OBJECT = {"type": "object"}


@cache
def schema_of(model: type[Arguments]) -> dict[str, Any]:
    """Return the schema of arguments without the parts that cost a client tokens and tell it
    nothing.
    """
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def strip(node: Any) -> Any:
        if isinstance(node, list):
            return [strip(part) for part in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            # The docstring of a class is for readers of the code. The description of the argument
            # says which fields an object has.
            named = definitions[node["$ref"].rsplit("/", 1)[1]]
            if named["type"] == "object":
                return {key: node[key] for key in ("description",) if key in node} | _OBJECT
            node = {**named, "description": "", **node}
            del node["$ref"]
        if "anyOf" in node:
            # "or null" means the same as leaving an optional argument out.
            options = [part for part in node["anyOf"] if part != {"type": "null"}]
            rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
            node = {**rest, **strip(options[0])}
        return {
            key: strip(value)
            for key, value in node.items()
            if value != INT64_MAX
            # An unknown argument is refused, and the error names the known ones.
            and key != "additionalProperties"
            # "", 0 and false mean the same as leaving an argument out.
            and (key != "default" or value)
            if (not (key == "title" and isinstance(value, str)) and key != "description")
            or (key == "description" and value and "type" in node and "properties" not in node)
        }

    return {"properties": {}, **strip(schema)}


def checked_id(value: str, name: str) -> str:
    """Return an id of the client's. Raises `Invalid` if it cannot be kept everywhere."""
    if len(value) > ID_CHARS_MAX or not (value.isprintable() or not value):
        raise Invalid(f"{name} must be at most {ID_CHARS_MAX} printable characters.")
    return value


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
REQUEST_ID = "recall.request_id"


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
    context: Context
    client: str | None = None


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
    """A tool, named like its operation; `description` is what a model reads. It is set if it
    differs from the summary of the operation, `title` if it differs from the name in words, and
    `arguments`, `present` and `returns` if they differ from those of the operation. The tool
    accepts `unlisted` arguments, but the list of tools does not name them, since it costs each
    client tokens. The same holds for `aliases`: names that other servers use for it, each with its
    arguments and its toolset. A tool of a `toolset` is listed only if the setting names that one.
    """

    description: str = ""
    arguments: type[Arguments] | None = None
    present: Presenter | None = None
    returns: tuple[str, ...] | None = None
    title: str = ""
    unlisted: frozenset[str] = frozenset()
    aliases: Mapping[str, tuple[type[Arguments], str]] = field(default_factory=dict)
    toolset: str = ""
    destructive: bool = False
    idempotent: bool = False


@dataclass(frozen=True, eq=False)
class Operation:
    """One entry of the registry, equal to itself only. `name` appears in the audit log. `scope` is
    what a token needs (None: any token will do). A token limited to a part of its namespace may not
    call a `whole_namespace` operation. A `read_only` operation changes nothing: its audit record is
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


def operation(scope: Scope | None, **more: Any) -> Callable[[Handler], Operation]:
    """Make an operation of a handler, which gives it its name and its arguments; the summary is its
    docstring. `more` are the other fields of `Operation`, and `arguments` if the handler is typed
    for those of several forms.
    """

    def made(handler: Handler) -> Operation:
        _, given = signature(handler).parameters.values()
        summary = " ".join((handler.__doc__ or "").split())
        fields = {"arguments": given.annotation, **more}
        return Operation(handler.__name__, scope, summary, handler=handler, **fields)

    return made


log = structlog.get_logger()

# The pauses before a call in a deadlock is tried again, one for each try.
DEADLOCK_PAUSES_S = (0.1, 0.5)

T = TypeVar("T")


@dataclass(frozen=True)
class Calls:
    """Runs operations; the protocols share one."""

    services: Services
    deadline_s: float

    async def run(
        self,
        caller: Caller,
        protocol: str,
        operation: Operation,
        *,
        read: Callable[[], Arguments],
        present: Presenter,
        client: str | None = None,
    ) -> Any:
        """Return the data of the answer to a call of a registered operation. `read` returns its
        arguments or raises. Raises `RecallError` and nothing else.
        """
        asked, arguments = operation, None
        fault: Exception | None = None
        try:
            arguments = read()
        except Exception as error:  # noqa: BLE001 - raised again below, where it is recorded
            fault = error
        else:
            if operation.becomes:
                asked = operation.becomes(arguments, caller.rights)

        async def work(context: Context) -> Any:
            if arguments is None:
                raise fault or AssertionError
            assert operation.handler is not None
            digest = hashlib.sha256(arguments.model_dump_json().encode()).digest()
            context.entry.inputs = digest
            value = await operation.handler(Call(self.services, caller, context, client), arguments)
            return present(value, arguments)

        return await self.perform(caller, protocol, asked, work)

    async def perform(
        self,
        caller: Caller,
        protocol: str,
        operation: Operation,
        work: Callable[[Context], Awaitable[T]],
    ) -> T:
        """Run `work`, if the caller's token may, and leave exactly one record in the audit log.

        `work` hands the entry to the transaction of its effect; where it has none, the record is
        written here. Raises `RecallError` and nothing else; if the record cannot be written, the
        operation has failed.
        """
        audit = self.services.audit
        entry = audit.begin(
            caller.namespace,
            operation.name,
            protocol,
            caller.accessor,
            read_only=operation.read_only,
            request_id=caller.request_id,
        )
        entry.bearer = caller.token.bearer if caller.token else None
        # The attributes of the semantic conventions for tools of MCP, and our own.
        tool = {"mcp.method.name": "tools/call", "gen_ai.tool.name": operation.name}
        attributes: Attributes = {
            "recall.protocol": protocol,
            **(tool if protocol == "mcp" else {}),
        }
        with (
            bound_contextvars(request_id=entry.request_id),
            tracer.operation(operation.name, attributes) as span,
        ):
            error: RecallError | None = None
            try:
                caller.rights.require(operation.scope, whole_namespace=operation.whole_namespace)
                audit.check(entry)
                async with asyncio.timeout(self.deadline_s):
                    result = await _undisturbed(work, Context(entry, caller.rights.access_scope))
                    if not entry.written:
                        await audit.note(entry)
            except TimeoutError:
                error = DeadlineExceeded()
            except RecallError as raised:
                error = raised
            except MemoryError:
                error = Busy("The server has no memory for this just now. Send less at once.")
            except Exception:
                log.exception(
                    "operation_failed", operation=entry.operation, request_id=entry.request_id
                )
                error = RecallError(
                    f"Something went wrong here. Ask the operator, naming {entry.request_id}."
                )
            if error is not None:
                entry.outcome, entry.code = Outcome.ERROR, error.code
                _empty(entry)
            span["recall.outcome"] = entry.code or "ok"
            self.services.metrics.called(entry)
            log.info(
                "operation",
                protocol=entry.protocol,
                operation=entry.operation,
                accessor=entry.accessor,
                namespace=self.services.log_name(entry.namespace),
                request_id=entry.request_id,
                outcome=entry.outcome,
                code=entry.code,
                ms=round(entry.elapsed_ms(), 2),
            )
            if error is None:
                return result
            if isinstance(error, InsufficientScope):
                caller.refused.append(error)
            error.request_id = entry.request_id
            # Else only the wait for the work failed; or nothing can be recorded, and the log says
            # why, once.
            if not entry.written and not isinstance(error, AuditUnavailable):
                await self._record_failed(entry)
            raise error from None

    async def _record_failed(self, entry: AuditEntry) -> None:
        try:
            async with asyncio.timeout(self.deadline_s):
                await self.services.audit.note(entry)
        except Exception:
            # The client already gets an error; which one must not depend on the audit log.
            log.exception("audit_write_failed", request_id=entry.request_id)


async def _undisturbed(work: Callable[[Context], Awaitable[T]], context: Context) -> T:
    """Run `work`, and run it again if a deadlock rolled it back. A pause before that lets the other
    side of the deadlock take the lock.
    """
    for pause_s in DEADLOCK_PAUSES_S:
        try:
            return await work(context)
        except Deadlocked:
            if context.entry.written:
                raise
        _empty(context.entry)
        await asyncio.sleep(pause_s)
    return await work(context)


def _empty(entry: AuditEntry) -> None:
    """Clear the entry after an attempt that has changed nothing."""
    for noted in (entry.ids, entry.counts, entry.details):
        noted.clear()
