"""Access: the tokens of a namespace, what a token may do, and the webhooks: receivers that are told
of the events of the namespace.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Annotated, TypeVar

from pydantic import Field

from recall_server.api import presenters
from recall_server.api.operations.operation import (
    Arguments,
    Call,
    Caller,
    Http,
    Json,
    Mcp,
    NoArguments,
    Operation,
    operation,
)
from recall_server.domain.audit import AuditEntry
from recall_server.domain.memory import MemoryType
from recall_server.domain.permissions import DEFAULT_SCOPES, AccessScope, Rights, Scope, TokenInfo
from recall_server.domain.webhook import WebhookKind
from recall_server.services.auth import TokenRequest
from recall_server.services.tasks.transitions import COUNTED
from recall_server.services.webhooks import Listed, Tested
from recall_server.storage.tables.tasks import Registration

T = TypeVar("T")
Made = tuple[str, TokenInfo]

CREATED = 201
YEAR_S = 366 * 86_400
OVERLAP_S = 3_600.0


class DelegateToken(Arguments):
    """An argument that is left out, or null, has the value of the issuing token: its topics, its
    types, its agent, its containers. An empty limit is refused where limits are checked: a limit
    that a caller computed as empty must not mean no limit.
    """

    empty_is_given = frozenset({"agent_id"})

    scopes: list[Annotated[Scope, Field(strict=False)]] | None = None
    topics: list[str] | None = None
    types: list[Annotated[MemoryType, Field(strict=False)]] | None = None
    agent_id: str | None = None
    containers: list[str] | None = None
    expires_in_s: float | None = Field(None, ge=0, le=YEAR_S)

    def wanted(self, issuer: Rights) -> TokenRequest:
        scopes = self.scopes
        if scopes is None:
            scopes = [one for one in DEFAULT_SCOPES if issuer.allows(one)]
        access_scope = issuer.access_scope
        access_scope = AccessScope(
            _limit(self.topics, access_scope.topics),
            _limit(self.types, access_scope.types),
            access_scope.agent_id if self.agent_id is None else self.agent_id,
            _limit(self.containers, access_scope.containers),
        )
        life = None if self.expires_in_s is None else timedelta(seconds=self.expires_in_s)
        return TokenRequest(Rights(frozenset(scopes), access_scope), life)


class IssueToken(DelegateToken):
    label: str = ""
    uses: int | None = None

    def wanted(self, issuer: Rights) -> TokenRequest:
        return replace(super().wanted(issuer), uses=self.uses)


class OneToken(Arguments):
    accessor: str


class RotateToken(OneToken):
    overlap_s: float = Field(OVERLAP_S, ge=0, le=30 * 86_400)


class RevokeToken(OneToken):
    # An unclear value must not end the token itself.
    empty_is_given = frozenset({"children_only"})

    children_only: bool = False


class OwnChild(Arguments):
    jti: str


class Child(OwnChild):
    accessor: str


def _limit(given: list[T] | None, issuers: frozenset[T] | None) -> frozenset[T] | None:
    return issuers if given is None else frozenset(given)


async def _find(call: Call, accessor: str) -> TokenInfo:
    caller = call.caller
    return await call.services.access.find(accessor, caller.namespace, caller.rights)


def _known_to_caller(call: Call, info: TokenInfo) -> TokenInfo:
    """Return a token as the caller may know it: what refuses all tokens of the namespace, or of
    the server, is nothing of the part that a limited token sees.
    """
    if call.caller.rights.access_scope.everything:
        return info
    return replace(info, not_before=None)


async def _revoke_child(call: Call, parent: str, jti: str) -> Json:
    ended = await call.services.delegation.revoke(call.context, parent, jti)
    return {"revoked": [f"{parent}/{jti}"] if ended else [], "ended": _ended(call.context.entry)}


def _ended(entry: AuditEntry) -> Json:
    """Return how much of what the revoked tokens began has ended with them."""
    return {name: entry.counts[name] for name in COUNTED}


def _made(made: Made, _: Arguments) -> Json:
    token, info = made
    return {"token": token, **presenters.token(info)}


_TOKEN = ("accessor", "namespace", "scopes", "expires_at")


@operation(
    None,
    present=lambda caller, _: presenters.whoami(caller),
    returns=("namespace", "accessor", "scopes"),
    http=(Http("GET", "/v1/whoami"),),
    mcp=Mcp("Your rights.", title="Who am I", returns=(), idempotent=True),
    read_only=True,
)
async def whoami(call: Call, _: NoArguments) -> Caller:
    """Show what this token may do."""
    return call.caller


@operation(
    Scope.TOKENS,
    present=lambda found, _: {"tokens": [presenters.token(one) for one in found]},
    returns=("tokens",),
    http=(Http("GET", "/v1/tokens"),),
    cli="recall tokens list",
    read_only=True,
)
async def list_tokens(call: Call, _: NoArguments) -> list[TokenInfo]:
    """List the tokens of the namespace; for a limited token, those that it could issue."""
    found = await call.services.access.tokens(call.caller.namespace, call.caller.rights)
    call.context.entry.counts["tokens"] = len(found)
    return [_known_to_caller(call, one) for one in found]


@operation(
    Scope.TOKENS,
    present=_made,
    returns=("token", *_TOKEN),
    http=(Http("POST", "/v1/tokens", CREATED),),
)
async def issue_token(call: Call, given: IssueToken) -> Made:
    """Issue a token that may do no more than the one that asks."""
    return await call.services.access.issue(
        call.context,
        label=given.label,
        wanted=given.wanted(call.caller.rights),
        by=call.caller.accessor,
    )


@operation(
    Scope.TOKENS,
    present=lambda info, _: presenters.token(info),
    returns=_TOKEN,
    http=(Http("GET", "/v1/tokens/{accessor}"),),
    cli="recall tokens show",
    read_only=True,
)
async def show_token(call: Call, given: OneToken) -> TokenInfo:
    """Show what a token may do, and when it was last used."""
    found = await _find(call, given.accessor)
    call.context.entry.ids.append(found.accessor)
    return _known_to_caller(call, found)


@operation(
    Scope.TOKENS,
    present=_made,
    returns=("token", *_TOKEN),
    http=(Http("POST", "/v1/tokens/{accessor}/rotate", CREATED),),
    cli="recall tokens rotate",
)
async def rotate_token(call: Call, given: RotateToken) -> Made:
    """Issue a token that takes the place of another, which ends after overlap_s seconds."""
    return await call.services.access.rotate(
        call.context,
        await _find(call, given.accessor),
        timedelta(seconds=given.overlap_s),
        by=call.caller.accessor,
    )


@operation(
    Scope.TOKENS,
    returns=("revoked", "ended"),
    http=(Http("DELETE", "/v1/tokens/{accessor}"),),
    cli="recall tokens revoke",
)
async def revoke_token(call: Call, given: RevokeToken) -> Json:
    """Revoke a token and all that it issued; with children_only, only what it issued."""
    info = await _find(call, given.accessor)
    access = call.services.access
    revoked = await access.revoke(call.context, info, children_only=given.children_only)
    return {"revoked": revoked, "ended": _ended(call.context.entry)}


@operation(
    None,
    present=_made,
    returns=("token", *_TOKEN),
    http=(Http("POST", "/v1/tokens/children", CREATED),),
    cli="recall tokens delegate",
)
async def delegate_token(call: Call, given: DelegateToken) -> Made:
    """Make a child of the token that asks, for a sub-agent."""
    return await call.services.delegation.mint(
        call.context, call.caller.accessor, given.wanted(call.caller.rights)
    )


@operation(
    None,
    returns=("revoked", "ended"),
    http=(Http("DELETE", "/v1/tokens/children/{jti}"),),
)
async def revoke_own_child(call: Call, given: OwnChild) -> Json:
    """Revoke a child of the token that asks."""
    return await _revoke_child(call, call.caller.accessor, given.jti)


@operation(
    Scope.TOKENS,
    returns=("revoked", "ended"),
    http=(Http("DELETE", "/v1/tokens/{accessor}/children/{jti}"),),
    cli="recall tokens revoke",
)
async def revoke_child(call: Call, given: Child) -> Json:
    """Revoke a child of any token of the namespace."""
    if not call.caller.rights.access_scope.everything:
        # The limits of the parent say whether a limited token may do that; for the user of an
        # identity provider, nothing says it.
        await _find(call, given.accessor)
    return await _revoke_child(call, given.accessor, given.jti)


CREATE_TOKEN = Operation(
    "create_token", Scope.ADMIN, "Make a token for a namespace.", cli="recall create-token"
)
TOKENS_NOT_BEFORE = Operation(
    "tokens_not_before",
    Scope.ADMIN,
    "Refuse all tokens that were made earlier.",
    cli="recall tokens not-before",
)

TOKENS = (
    whoami,
    list_tokens,
    issue_token,
    delegate_token,
    revoke_own_child,
    show_token,
    rotate_token,
    revoke_token,
    revoke_child,
    CREATE_TOKEN,
    TOKENS_NOT_BEFORE,
)


class AddWebhook(Arguments):
    url: str
    kinds: list[Annotated[WebhookKind, Field(strict=False)]] = Field([])
    include_text: bool = False


class OneWebhook(Arguments):
    webhook_id: str


def _added(made: tuple[Registration, str], _: Arguments) -> Json:
    registration, secret = made
    return {"secret": secret, **presenters.webhook(registration)}


_WEBHOOK = ("id", "url", "kinds", "include_text", "state")


@operation(
    Scope.WEBHOOKS,
    present=_added,
    returns=("secret", *_WEBHOOK),
    whole_namespace=True,
    http=(Http("POST", "/v1/webhooks", CREATED),),
    cli="recall webhooks add",
)
async def add_webhook(call: Call, given: AddWebhook) -> tuple[Registration, str]:
    """Have a URL told of events of the namespace, signed with a secret that is shown once."""
    if given.include_text:
        call.caller.rights.require(Scope.READ, whole_namespace=True)
    return await call.services.webhooks.add(
        call.context, given.url, given.kinds, include_text=given.include_text
    )


@operation(
    Scope.WEBHOOKS,
    present=lambda found, _: {
        "webhooks": [
            {**presenters.webhook(one.registration), "pending": one.pending} for one in found
        ]
    },
    returns=("webhooks",),
    whole_namespace=True,
    http=(Http("GET", "/v1/webhooks"),),
    cli="recall webhooks list",
    read_only=True,
)
async def list_webhooks(call: Call, _: NoArguments) -> Sequence[Listed]:
    """List the webhooks of the namespace: what each is told, whether it takes it, what waits."""
    found = await call.services.webhooks.all(call.caller.namespace)
    call.context.entry.counts["webhooks"] = len(found)
    return found


@operation(
    Scope.WEBHOOKS,
    returns=("removed",),
    whole_namespace=True,
    http=(Http("DELETE", "/v1/webhooks/{webhook_id}"),),
    cli="recall webhooks remove",
)
async def remove_webhook(call: Call, given: OneWebhook) -> Json:
    """Remove a webhook: it gets no more events."""
    await call.services.webhooks.remove(call.context, given.webhook_id)
    return {"removed": given.webhook_id}


@operation(
    Scope.WEBHOOKS,
    present=lambda tested, _: asdict(tested),
    returns=("delivered", "status", "code"),
    whole_namespace=True,
    http=(Http("POST", "/v1/webhooks/{webhook_id}/test"),),
    cli="recall webhooks test",
)
async def test_webhook(call: Call, given: OneWebhook) -> Tested:
    """Send a webhook an event without data; a dead one that accepts it gets events again."""
    return await call.services.webhooks.test(call.context, given.webhook_id)


WEBHOOKS = (add_webhook, list_webhooks, remove_webhook, test_webhook)
