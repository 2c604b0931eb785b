"""`recall create-token` and `recall tokens`: manage tokens. `recall webhooks`: send the events of a
namespace to a URL.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated

import typer

from recall_server.api import operations, presenters
from recall_server.api.operations.operation import Json
from recall_server.application import Application
from recall_server.cli.shared import (
    Answer,
    AnyName,
    Create,
    Db,
    answering,
    begin,
    cell,
    echo,
    existing,
    fail,
    in_application,
    observed,
    print_table,
    warn_of_readers,
    with_application,
)
from recall_server.cli.target import NamespaceFirst, Target, asks, with_target
from recall_server.domain.audit import AuditEntry
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import MemoryType
from recall_server.domain.permissions import DEFAULT_SCOPES, OPERATOR, Rights, Scope, TokenInfo
from recall_server.domain.webhook import WebhookKind
from recall_server.services.auth import TokenRequest
from recall_server.services.tasks.transitions import STORED

tokens = typer.Typer(help="List, show, rotate and revoke tokens.", no_args_is_help=True)

_DURATION = re.compile(r"([0-9]{1,6})([smhd])", re.ASCII)
_UNIT = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

Accessor = Annotated[
    str, typer.Argument(metavar="ACCESSOR", help="The accessor, as `recall tokens list` shows it.")
]


@answering
def create_token(  # noqa: PLR0917  # options, each by its name
    name: Namespace,
    label: str = "",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Its scopes; repeatable, or with commas: {', '.join(Scope)}.",
            show_default=",".join(sorted(DEFAULT_SCOPES)),
        ),
    ] = None,
    topic: list[str] | None = None,
    type_: list[MemoryType] | None = None,
    agent_id: str | None = None,
    container: list[str] | None = None,
    expires_in: Annotated[str | None, typer.Option(show_default="RECALL_TOKEN_DAYS")] = None,
    never: bool = False,
    uses: Annotated[int | None, typer.Option(min=1)] = None,
    create: Create = False,
    db: Db = None,
) -> Answer:
    """Create a token for a namespace, and print it once: alone on standard output.

    Args:
        name: The namespace that the token opens.
        label: A note that identifies it.
        topic: Only this topic; repeatable.
        type_: Only memories of this type.
        agent_id: Only the texts of this agent, and write as it.
        container: Only this container; '' means in no container; repeatable.
        expires_in: How long the token is valid, such as 12h.
        never: It never expires.
        uses: The token is valid for this many requests.
    """
    if never and expires_in is not None:
        fail("Give --expires-in or --never, not both.")
    life = _duration(expires_in) if expires_in is not None else None
    wanted = _wanted(OPERATOR, scope, topic, type_, agent_id=agent_id, containers=container)

    async def issue(built: Application) -> Answer:
        by_default = None if never else timedelta(days=built.settings.token_days)
        lasts = by_default if life is None else life
        context = begin(built, name, operations.access.CREATE_TOKEN)
        return _new(
            *await built.services.access.issue(
                context, label=label, wanted=replace(wanted, expires_in=lasts, uses=uses)
            )
        )

    return in_application(db, issue, create=create)


@tokens.command()
@with_application
async def delegate(  # noqa: PLR0917  # options, each by its name
    built: Application,
    accessor: Accessor,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            show_default=f"those of {','.join(sorted(DEFAULT_SCOPES))} that its parent has"
        ),
    ] = None,
    topic: list[str] | None = None,
    type_: list[MemoryType] | None = None,
    agent_id: str | None = None,
    container: list[str] | None = None,
    expires_in: str = "1h",
) -> Answer:
    """Create a child of a token, for a sub-agent, and print it once.

    Args:
        scope: Scopes of the child; repeatable, or with commas.
        topic: Only this topic; repeatable.
        type_: Only memories of this type.
        agent_id: Only the texts of this agent, and write as it.
        container: Only this container; '' means in no container; repeatable.
        expires_in: 24h at most.
    """
    life, services = _duration(expires_in), built.services
    parent = await services.access.find(accessor)
    context = begin(built, parent.namespace, operations.access.delegate_token)
    wanted = _wanted(parent.rights, scope, topic, type_, agent_id=agent_id, containers=container)
    wanted = replace(wanted, expires_in=life)
    return _new(*await services.delegation.mint(context, accessor, wanted))


@tokens.command("list")
@with_application
async def list_tokens(built: Application, name: AnyName = None) -> Answer:
    """List tokens by their accessors."""
    found = await built.services.access.tokens(name)
    if name is not None:
        await observed(built, name, operations.access.list_tokens, tokens=len(found))
    rows = [presenters.token(info) for info in found]
    names = ("accessor", "namespace", "label", "scopes", "created_at", "expires_at", "revoked_at")
    shown = [{**{one: row[one] for one in names}, "refused": _too_old(row)} for row in rows]
    if not any(one["refused"] for one in shown):
        for one in shown:
            del one["refused"]
    return Answer(rows, partial(print_table, shown, "No tokens yet."))


@tokens.command()
@with_application
async def show(built: Application, accessor: Accessor) -> Answer:
    """Show a token's rights and its last use."""
    services = built.services
    info = await services.access.find(accessor)
    context = begin(built, info.namespace, operations.access.show_token)
    context.entry.ids.append(accessor)
    await services.audit.write(context.entry)
    row = presenters.token(info)
    shown = {key: value for key, value in row.items() if key != "not_before"}
    shown |= {"refused": _too_old(row)}
    lines = [f"{key.replace('_', ' '):14}{cell(value)}" for key, value in shown.items()]
    return Answer(row, partial(typer.echo, "\n".join(lines)))


def _too_old(row: Json) -> str:
    """Return why a token is refused that is neither revoked nor expired; nothing for another."""
    return f"made before {row['not_before']}" if row["not_before"] else ""


@tokens.command()
@with_application
async def revoke(  # options, each by its name
    built: Application,
    accessor: Accessor,
    children_only: bool = False,
    force: bool = False,
    name: Annotated[str | None, typer.Option("--namespace")] = None,
) -> Answer:
    """Revoke a token and all that it issued from the next call on; or a signed one, as
    ACCESSOR/JTI.

    Args:
        children_only: Revoke only the tokens that it issued.
        force: Even if no token with the scope admin is left.
        name: The namespace, for a token of an identity provider.
    """
    services = built.services
    parent, _, jti = accessor.partition("/")
    if jti:
        # No table holds an identity provider's token, but its namespace must exist.
        named = name or (await services.access.find(parent)).namespace
        ns = await existing(built, named)
        context = begin(built, ns, operations.access.revoke_child)
        await services.delegation.revoke(context, parent, jti)
        return _revoked([accessor], f"Revoked {accessor} of {ns}.", context.entry)
    info = await services.access.find(accessor)
    context = begin(built, info.namespace, operations.access.revoke_token)
    revoked = await services.access.revoke(context, info, children_only=children_only, force=force)
    owner = f"of {info.namespace}"
    if not revoked and children_only:
        said = f"Nothing that {accessor} {owner} issued is left; the token itself is still valid."
    elif not revoked:
        said = f"{accessor} {owner} was revoked before, and all that it issued."
    else:
        said = "\n".join(f"Revoked {one} {owner}." for one in revoked)
    return _revoked(revoked, said, context.entry)


@tokens.command()
@with_application
async def rotate(built: Application, accessor: Accessor, overlap: str = "1h") -> Answer:
    """Create a token that replaces another, and print it once.

    Args:
        overlap: How long the old one stays valid.
    """
    services, lasts = built.services, _duration(overlap)
    info = await services.access.find(accessor)
    context = begin(built, info.namespace, operations.access.rotate_token)
    return _new(*await services.access.rotate(context, info, lasts))


@tokens.command("not-before")
@with_application
async def not_before(
    built: Application,
    name: AnyName = None,
    at: Annotated[str | None, typer.Option(show_default="now")] = None,
) -> Answer:
    """Refuse tokens that were made earlier.

    Args:
        at: Such as 2026-03-01T12:00:00Z.
    """
    moment = _moment(at) if at else None
    entry = begin(built, name, operations.access.TOKENS_NOT_BEFORE).entry if name else None
    since = (await built.services.access.not_before(name, moment, entry=entry)).isoformat()
    said = f"Tokens of {name or 'all namespaces'} made before {since} are refused."
    return Answer({"namespace": name, "not_before": since}, said)


def _revoked(revoked: Sequence[str], said: str, entry: AuditEntry) -> Answer:
    """Return what was revoked, and how much of its work has ended with it. Streams and the like
    belong to the process of a server: they end within seconds, and are not known here.
    """
    ended = {name: entry.counts[name] for name in STORED}
    if any(ended.values()):
        parts = [f"{number} {name.replace('_', ' ')}" for name, number in ended.items()]
        said += f"\nEnded with it: {', '.join(parts)}."
    return Answer({"revoked": list(revoked), "ended": ended}, said)


def _new(token: str, info: TokenInfo) -> Answer:
    ends = info.expires_at
    until = f", good until {ends.isoformat(timespec='minutes')}" if ends else ", without end"

    def said() -> None:
        echo(
            f"Token for the namespace {info.namespace} (accessor {info.accessor}{until}). Keep it: "
            "it is not shown again. Clients send 'Authorization: Bearer TOKEN'.",
            err=True,
        )
        typer.echo(token)

    return Answer({"token": token, **presenters.token(info)}, said, secret=True)


def _wanted(
    issuer: Rights,
    scopes: list[str] | None,
    topics: list[str] | None,
    types: list[MemoryType] | None,
    *,
    agent_id: str | None,
    containers: list[str] | None,
) -> TokenRequest:
    return operations.access.DelegateToken(
        scopes=_scopes(scopes) if scopes else None,
        topics=topics or None,
        types=types or None,
        agent_id=agent_id,
        containers=containers or None,
        expires_in_s=None,
    ).wanted(issuer)


def _scopes(given: list[str]) -> list[Scope]:
    names = [part.strip() for one in given for part in one.split(",")]
    unknown = [one for one in names if one not in set(Scope)]
    if unknown:
        fail(f"There is no such scope. There are {', '.join(Scope)}.")
    return [*map(Scope, names)]


def _duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None:
        fail("A duration is a whole number and one of s, m, h, d, such as 90d.")
    return timedelta(**{_UNIT[match[2]]: int(match[1])})


def _moment(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        fail("A moment is written as 2026-03-01T12:00:00Z.")
    return at if at.tzinfo else at.replace(tzinfo=UTC)


NOT_TAKEN = 1

webhooks = typer.Typer(help="Have a URL told of the events of a namespace.", no_args_is_help=True)


@webhooks.command(cls=NamespaceFirst)
@asks(operations.access.add_webhook)
def add(added: Json, *, url_: str) -> None:
    """Register a URL, and print the secret of its signatures once: alone on standard output.

    Args:
        url_: Begins with https://.
    """
    echo(
        f"Webhook {added['id']}. Its receiver verifies each delivery with this secret. Keep it: it "
        "is not shown again.",
        err=True,
    )
    typer.echo(added["secret"])
    warn_of_readers()


@webhooks.command("list", cls=NamespaceFirst)
@asks(operations.access.list_webhooks, part="webhooks")
def list_webhooks(found: Json) -> None:
    """List the webhooks of a namespace, whether they accept their events, and how many wait."""
    print_table([_row(row) for row in found["webhooks"]], "No webhooks yet.")


def _row(row: Json) -> Json:
    kinds = "all" if len(row["kinds"]) == len(WebhookKind) else ",".join(row["kinds"])
    shown = ("id", "url", "state", "code", "failures", "pending")
    return {**{name: row[name] for name in shown}, "kinds": kinds}


@webhooks.command(cls=NamespaceFirst)
@asks(operations.access.remove_webhook)
def remove(done: Json) -> str:
    """Remove a webhook: it gets no more events.

    Args:
        webhook_id: As `recall webhooks list` shows it.
    """
    return f"Removed {done['removed']}."


@webhooks.command("test", cls=NamespaceFirst)
@with_target
async def send_test(target: Target, *, webhook_id: str) -> Answer:
    """Send a webhook an event without data; a dead one that accepts it gets events again. Exits
    with 1 if it does not accept it.

    Args:
        webhook_id: As `recall webhooks list` shows it.
    """
    tested = await target.ask(operations.access.test_webhook, webhook_id=webhook_id)
    if tested["delivered"]:
        return Answer(tested, f"{webhook_id} took it.")
    answered = f"it answered {tested['status']}"
    if not tested["status"]:
        sent = "it gave no answer" if tested["code"] == "PUSH_FAILED" else "nothing was sent"
        answered = f"{sent} [{tested['code']}]"
    return Answer(tested, f"{webhook_id} did not take it: {answered}.", NOT_TAKEN)
