"""The target of a command for people: a database here, or a server at a URL.

Both run the same operation of the registry and answer the same data: the database by its handler,
the server by its route.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin
from urllib.parse import quote

import httpx2
import typer
from annotated_types import Ge, Le
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from recall_server import local as local_server
from recall_server.api import operations
from recall_server.api.operations.operation import (
    INT64_MAX,
    Arguments,
    Call,
    Caller,
    Json,
    Operation,
)
from recall_server.application import Application
from recall_server.cli.shared import (
    PROTOCOL,
    Answer,
    Db,
    echo,
    existing,
    fail,
    in_application,
    option,
    run,
    settings,
    signed,
    waiting,
)
from recall_server.config import ENV_FILE, LOOPBACK, Access, is_address
from recall_server.doctor import settings_of_file
from recall_server.domain.context import Context
from recall_server.domain.errors import Invalid, NamespaceNotAllowed, RecallError
from recall_server.domain.ids import Namespace, namespace
from recall_server.domain.permissions import OPERATOR
from recall_server.domain.task import JobState
from recall_server.integrations.redaction import load_rules
from recall_server.local import Local

T = TypeVar("T")
TIMEOUT_S = 60.0
# The time that a command waits for memories of a text that it has stored.
WAIT_S = 20.0
POLL_S = 0.1
_FIRST = "The namespace stands last. Write it before the other argument."
_ALONE = "Only the namespace {} was given. Write the other argument behind it."
_DONE = {str(JobState.COMPLETE), str(JobState.FAILED)}

Url = Annotated[
    str | None,
    typer.Option("--url", help="Use this server instead of a database.", show_default="RECALL_URL"),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        help="A file with the token of the server; else RECALL_TOKEN is the token itself.",
    ),
]
Whose = Annotated[
    str,
    typer.Argument(
        metavar="NAMESPACE",
        help="The namespace. Leave it out with --url, or if the database has only one.",
        show_default=False,
    ),
]


class NamespaceFirst(TyperCommand):
    """A command whose first argument, the namespace, may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, [*args])
        except typer.BadParameter as error:
            if not hasattr(error, "param_type"):  # a value is bad, and nothing is missing
                raise
            return super().parse_args(ctx, ["", *args])


class Target:
    """Runs operations on behalf of the operator, or of the holder of a token."""

    async def ask(self, operation: Operation, **given: Any) -> Any:
        """Return the data of the operation's answer. Arguments that are None are not given."""
        raise NotImplementedError

    async def work(self) -> None:
        """Make memories of stored texts, if no other process does."""
        await asyncio.sleep(POLL_S)

    async def made_of(self, job_id: str) -> Json:
        """Return the job of a stored text when it has ended, or after `WAIT_S` seconds."""
        until = time.monotonic() + WAIT_S
        while True:
            job: Json = await self.ask(operations.contents.get_job, job_id=job_id)
            if job["state"] in _DONE or time.monotonic() > until:
                return job
            await self.work()


@dataclass(frozen=True)
class Database(Target):
    built: Application
    ns: Namespace

    async def ask(self, operation: Operation, **given: Any) -> Any:
        assert operation.handler is not None
        arguments = _arguments(operation).parse(_given(operation, given), operation.name)
        operator = Caller(self.ns, PROTOCOL, OPERATOR)
        asked = operation.becomes(arguments, OPERATOR) if operation.becomes else operation
        audit = self.built.services.audit
        entry = audit.begin(self.ns, asked.name, PROTOCOL, None, read_only=asked.read_only)
        call = Call(self.built.services, operator, Context(entry), PROTOCOL)
        data = operation.present(await operation.handler(call, arguments), arguments)
        if not entry.written:
            await audit.note(entry)
            await audit.reads.flush()
        return data

    async def work(self) -> None:
        if not await self.built.worker.run_once():
            await super().work()

    async def made_of(self, job_id: str) -> Json:
        """The same; jobs that are due after it run too, as there may be no server that runs them:
        without vectors a text is found by its words alone.
        """
        job = await super().made_of(job_id)
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until and await self.built.worker.run_once():
            pass
        return job


@dataclass(frozen=True)
class Server(Target):
    http: httpx2.AsyncClient

    async def ask(self, operation: Operation, **given: Any) -> Any:
        route, rest = operation.http[0], _given(operation, given)
        path = route.path
        for name in [name for name in rest if f"{{{name}}}" in path]:
            path = path.replace(f"{{{name}}}", quote(str(rest.pop(name)), safe=""))
        in_body = route.takes_body
        try:
            answer = await self.http.request(
                route.method,
                path,
                json=rest if in_body else None,
                params=None if in_body else rest,
            )
            data = answer.json()
        except httpx2.TransportError as error:
            why = (str(error) or type(error).__name__).removesuffix(".")
            secure = self.http.base_url.scheme == "https"
            tls = " If it is on this machine, it speaks http." if secure else ""
            fail(f"{self.http.base_url} does not answer: {why}. See whether the server runs, and "
                 f"the URL is right.{tls}", "UNAVAILABLE")  # fmt: skip
        except ValueError:
            data = None
        if not answer.is_success and isinstance(data, dict) and "code" in data:
            fail(str(data.get("detail")), str(data["code"]))
        if not answer.is_success or data is None:
            fail(f"{self.http.base_url} answers with HTTP {answer.status_code}, and not as "
                 "recall-server does. See whether the URL is right.", "UNAVAILABLE")  # fmt: skip
        return data


def with_target(
    act: Callable[..., Awaitable[Answer | None]], *, creates: bool = False
) -> Callable[..., None]:
    """Make a command of `act`, which takes a target. The other parameters of `act` come after the
    namespace, the first argument, and before the options that name the target. `creates`: where
    nothing was stored yet and no target is named, create the database of the local server.
    """

    def run_it(
        name: str, db: str | None, url: str | None, token_file: Path | None, **given: Any
    ) -> Answer | None:
        taken, asked = given[needed] if needed else None, partial(act, **given)
        return on_target(name, db, url, token_file, asked, taken=taken, creates=creates)

    needed = next(
        (
            one.name
            for one in inspect.signature(act, eval_str=True).parameters.values()
            if one.default is one.empty and one.kind is one.KEYWORD_ONLY
        ),
        None,
    )
    whose = inspect.Parameter("name", inspect.Parameter.KEYWORD_ONLY, default="", annotation=Whose)
    target = (option("db", Db), option("url", Url), option("token_file", TokenFile))
    return signed(run_it, act, *target, first=[whose])


def asks(
    operation: Operation, *, part: str | None = None, without: Collection[str] = (), **always: Any
) -> Callable[[Callable[..., str | None]], Callable[..., None]]:
    """Make a command of a function that shows the data of an operation's answer, or returns a
    sentence about it. Its other parameters are those of the command, and the arguments of the
    operation by the same names. The operation's other arguments are too, but those `without`: the
    required ones come first, and all others are options. `always` are the same in each call. --json
    prints the data, or a `part` of them.
    """

    def made(show: Callable[..., str | None]) -> Callable[..., None]:
        async def act(target: Target, **given: Any) -> Answer:
            arguments = {name.removesuffix("_"): value for name, value in given.items()}
            data = await target.ask(operation, **arguments, **always)
            said = partial(show, data, **{name: given[name] for name in declared})
            return Answer(data if part is None else data[part], said)

        signature = inspect.signature(show)
        first, *own = signature.parameters.values()
        declared = [one.name for one in own]
        taken = {*(name.removesuffix("_") for name in declared), *always, *without}
        fields = _arguments(operation).model_fields.items()
        left = [(name, field) for name, field in fields if name not in taken]
        first_ones = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=field.annotation)
            for name, field in left
            if field.is_required()
        ]
        own = [*first_ones, *own, *(_option(*one) for one in left if not one[1].is_required())]
        vars(act)["__signature__"] = signature.replace(
            parameters=[first, *own], return_annotation=Answer
        )
        act.__name__, act.__doc__ = show.__name__, show.__doc__
        return with_target(act)

    return made


# The help of some options. The registry describes the other arguments.
_HELP = {
    "container": "Only this container.",
    "tags": "Only items with this tag; repeatable, all must match.",
    "metadata": "Only items with these values.",
    "topic": "Only this topic.",
    "type": "Only memories of this type.",
    "layer": "Only memories of this layer.",
    "status": "Only memories in this state.",
    "session_id": "Only this session.",
    "app": "Only what was sent from this app.",
    "group_id": "Only this group of texts.",
    "limit": "How many at most.",
    "offset": "How many to skip.",
    "before": "Continue here, as the page before says.",
    "said_after": "Only what was said at this moment or later: a date, or a time with its zone.",
    "said_before": "Only what was said before.",
    "recorded_after": "Only what became known here at this moment or later.",
    "recorded_before": "Only what became known here before.",
    "valid_after": "Only what began to be true at this moment or later.",
    "valid_before": "Only what began to be true before.",
    "expires_after": "Only what expires at this moment or later.",
    "expires_before": "Only what expires before.",
    "kind": "Only this kind.",
    "kinds": "A kind of event; repeatable.",
    "include_text": "Send the texts of memories too.",
}


def _option(name: str, field: FieldInfo) -> inspect.Parameter:
    """Return the option of an argument; None means that it is not given. One that is a list is
    given once for each of its items.
    """
    called = name.removesuffix("s") if get_origin(field.annotation) is list else name
    called = called.replace("session_id", "session").replace("_", "-")
    bounds = {type(one): one for one in field.metadata}
    most = bounds[Le].le if Le in bounds else INT64_MAX
    described = field.description or ""
    shown = typer.Option(
        f"--{called}/--no-{called}" if field.default is True else f"--{called}",
        help=_HELP.get(name) or f"{described[:1].upper()}{described[1:]}.".removeprefix("."),
        min=bounds[Ge].ge if Ge in bounds else None,
        max=None if most == INT64_MAX else most,
        metavar="JSON" if get_origin(field.annotation) is dict else None,
        show_default=str(field.default) if field.default else False,
    )
    return option(name, Annotated[_kind_of(field.annotation) | None, shown])


def _kind_of(annotation: Any) -> Any:
    """Return the type of an option: that of the argument, without what pydantic alone reads."""
    if get_origin(annotation) is dict:
        return str
    if get_origin(annotation) is list:
        return list[_kind_of(*get_args(annotation))]  # type: ignore[misc]
    if get_origin(annotation) in (Annotated, Union, UnionType):
        return _kind_of(get_args(annotation)[0])
    return annotation


def on_target(
    name: str | None,
    db: str | None,
    url: str | None,
    token_file: Path | None,
    act: Callable[[Target], Awaitable[T]],
    *,
    taken: str | None = None,
    creates: bool = False,
) -> T:
    """Run `act` on the target that the options and the environment name: --db takes precedence over
    RECALL_URL. `taken`: the first argument, if it is no namespace. `creates`: as `with_target`.
    """
    address = named_server(db, url)
    if address:
        return run(_on_server(address, _token(Access(), token_file), name, act, taken))

    async def here(built: Application) -> T:
        # It may be the file of a project, and what a person stores goes where it says.
        if from_file := settings_of_file():
            echo(f"Settings from {ENV_FILE} in this folder: {', '.join(from_file)}", err=True)
        try:
            found = await _namespace(built, name)
        except RecallError:
            if not await _is_namespace(built, taken):
                raise
            raise Invalid(_FIRST if name else _ALONE.format(taken)) from None
        if not name and taken == found:
            raise Invalid(_ALONE.format(found))
        if creates:
            with waiting("Loading the rules that find secrets, compiled once on a machine"):
                await built.services.ingest.redaction.ready()
        return await act(Database(built, found))

    if creates:
        # They load beside the start, which takes as long as they do once they are compiled.
        Thread(target=load_rules, daemon=True).start()
    return in_application(db or _local(creates=creates), here)


def named_server(db: str | None, url: str | None) -> str | None:
    """Return the URL of the server that the options and the environment name, if they name one.
    Clients of MCP know the server by an address that ends in /mcp.
    """
    if db is not None and url is not None:
        fail("Give --db or --url, not both.")
    address = url or (Access().url if db is None else None)
    if not address:
        return None
    if not is_address(address):
        fail(f"{'--url' if url else 'The address in RECALL_URL'} must be an address such as "
             "http://127.0.0.1:8000.")  # fmt: skip
    return address.rstrip("/").removesuffix("/mcp")


def _local(*, creates: bool) -> str | None:
    """Return the database of the local server, which the clients of this machine use, if no other
    is named or is in this folder. Make it if there is none and the command `creates`.
    """
    chosen, path = settings(None), local_server.database()
    if not {"db_path", "db_url"}.isdisjoint(chosen.model_fields_set) or chosen.db_path.exists():
        return None
    if not path.exists():
        if not creates:
            fail(
                "Nothing is stored here yet. Store a text with `recall add TEXT`, or name a "
                "database with --db or a server with --url.",
                "DATABASE_UNUSABLE",
            )
        try:
            with waiting("Creating a database"):
                Local(path).create()
        except RecallError as error:
            fail(error.message, error.code)
    return str(path)


async def _on_server(
    url: str,
    token: str,
    name: str | None,
    act: Callable[[Target], Awaitable[T]],
    taken: str | None,
) -> T:
    headers = {"Authorization": f"Bearer {token}"}
    parts = httpx2.URL(url)
    # Plain HTTP on loopback needs no certificates, and loading them takes longer than most calls.
    verify = parts.scheme != "http" or parts.host not in LOOPBACK
    async with httpx2.AsyncClient(
        base_url=url, headers=headers, timeout=TIMEOUT_S, verify=verify
    ) as http:
        server = Server(http)
        if name:
            own = (await server.ask(operations.access.whoami))["namespace"]
            if own == taken and own != name:
                raise Invalid(_FIRST)
            if own != name:
                raise NamespaceNotAllowed(
                    "The token opens another namespace. Leave the namespace out, or show its token."
                )
        return await act(server)


async def _is_namespace(built: Application, value: str | None) -> bool:
    try:
        return bool(await existing(built, value or ""))
    except RecallError:
        return False


async def _namespace(built: Application, name: str | None) -> Namespace:
    """Return the namespace of this name, or the only one. Raises `Invalid`, `NamespaceNotFound`."""
    if name:
        return await existing(built, name)
    found = await built.store.autocommit(None).erasures.namespaces()
    if not found:
        raise Invalid(
            "The database has no namespace yet. Make one with `recall create-token NAMESPACE`."
        )
    if len(found) != 1:
        raise Invalid(
            f"The database has {len(found)} namespaces. Name one before the other arguments."
        )
    return namespace(found[0])


def _token(access: Access, file: Path | None) -> str:
    named = file or access.token_file
    token = access.token.get_secret_value() if access.token else ""
    if named is not None:
        try:
            token = named.read_text(encoding="utf-8")
        except OSError as error:
            fail(f"{named} cannot be read ({error.strerror}). Name a file that holds a token.")
        except UnicodeDecodeError:
            fail(f"{named} holds no token: it is not UTF-8. Name a file that holds a token.")
    token = token.strip()
    if not token:
        fail(
            "A server needs a token. Name its file with --token-file, or set RECALL_TOKEN.",
            "UNAUTHENTICATED",
        )
    # The error for an invalid header would show the token.
    if not token.isascii() or not token.isprintable() or " " in token:
        where = named or "RECALL_TOKEN"
        fail(f"{where} holds more than a token. Write the token alone there, as "
             "`recall create-token` prints it.", "UNAUTHENTICATED")  # fmt: skip
    return token


def _arguments(operation: Operation) -> type[Arguments]:
    return operation.http[0].arguments or operation.arguments


def _given(operation: Operation, given: Json) -> Json:
    """Leave out what is empty, but a required text: its error says that it is empty."""
    path, fields = operation.http[0].path, _arguments(operation).model_fields
    return {
        name: value
        for name, value in given.items()
        if value not in (None, "", [], ())
        or (value == "" and fields[name].is_required() and f"{{{name}}}" not in path)
    }
