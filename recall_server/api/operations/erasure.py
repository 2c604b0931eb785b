"""Erasure: destroy a memory, a subject, a container or everything, and collect the receipt."""

from pydantic import Field

from recall_server.api import presenters
from recall_server.api.operations.operation import (
    Arguments,
    Call,
    Caller,
    Http,
    Mcp,
    Operation,
    operation,
)
from recall_server.application import Services
from recall_server.domain.context import Context
from recall_server.domain.erasure import CONFIRMATION
from recall_server.domain.errors import Invalid
from recall_server.domain.permissions import NONE, Rights, Scope
from recall_server.services.erasure import Collected, Erased

TARGETS = frozenset({"memory_id", "subject", "container"})
RECEIPT_HEADER = "Recall-Receipt-Secret"


class DeleteNamespaceData(Arguments):
    confirm: str = Field("", description=CONFIRMATION)


class Erase(Arguments):
    """Exactly one of the first four; `dry_run` shows what any but the first would erase."""

    # A missing value must not mean everything.
    empty_is_given = TARGETS

    confirm: str = ""
    memory_id: str | None = None
    subject: str | None = None
    container: str | None = None
    dry_run: bool = False


class CollectReceipt(Arguments):
    receipt_id: str
    secret: str = ""
    acknowledge: bool = Field(
        default=False,
        description="the final receipt is kept: its secret opens nothing from then on",
    )


async def holder(services: Services, given: CollectReceipt) -> Caller:
    """Return the holder of the secret of a receipt, to whose namespace the record belongs."""
    namespace = await services.erase.find_receipt(given.receipt_id, given.secret)
    return Caller(namespace, given.receipt_id, NONE)


def _erase_what(given: Erase, _: Rights) -> Operation:
    if given.memory_id:
        return ERASE_MEMORY
    if given.subject:
        return ERASE_SUBJECT
    return ERASE_CONTAINER if given.container else delete_namespace_data


ERASE_MEMORY = Operation(
    "erase_memory",
    Scope.ERASE,
    "Destroy a memory, and all that could show it.",
    whole_namespace=True,
    destroys=True,
    cli="recall erase --memory",
)
ERASE_SUBJECT = Operation(
    "erase_subject",
    Scope.ERASE,
    "Destroy all that is known of a subject.",
    whole_namespace=True,
    destroys=True,
    cli="recall erase --subject",
)
ERASE_CONTAINER = Operation(
    "erase_container",
    Scope.ERASE,
    "Destroy all that is in a container.",
    destroys=True,
    cli="recall erase --container",
)


@operation(
    Scope.ERASE,
    present=lambda erased, _: {"deleted": True, **presenters.erased(erased)},
    returns=("tokens_revoked", "receipt_id"),
    whole_namespace=True,
    destroys=True,
    mcp=Mcp(
        "Erase everything and revoke all tokens, for good.",
        title="Delete all data",
        destructive=True,
        idempotent=True,
    ),
    cli="recall erase",
)
async def delete_namespace_data(call: Call, given: DeleteNamespaceData) -> Erased:
    """Destroy everything, and revoke all tokens."""
    return await call.services.erase.namespace(call.context, given.confirm)


@operation(
    Scope.ERASE,
    present=lambda erased, _: presenters.erased(erased),
    returns=("kind", "counts", "dry_run"),
    destroys=True,
    becomes=_erase_what,
    http=(Http("POST", "/v1/erasure"),),
)
async def erase(call: Call, given: Erase) -> Erased:
    """Destroy a memory, a subject, a container or everything; a receipt says what was destroyed."""
    service, whole = call.services.erase, Context(call.context.entry)
    named = [one for one in (given.memory_id, given.subject, given.container) if one]
    mixed = bool(given.confirm) and bool(given.model_fields_set & TARGETS)
    if len(named) > 1 or mixed or (given.dry_run and not named):
        raise Invalid(
            f"Send one of memory_id, subject, container, or confirm: {CONFIRMATION}. dry_run goes "
            "with the first three."
        )
    if given.memory_id:
        return await service.memory(whole, given.memory_id, dry_run=given.dry_run)
    if given.subject:
        return await service.subject(whole, given.subject, dry_run=given.dry_run)
    if given.container:
        return await service.container(call.context, given.container, dry_run=given.dry_run)
    return await service.namespace(whole, given.confirm)


@operation(
    None,
    present=lambda found, _: {"receipt": found.receipt, "final": found.final},
    returns=("receipt", "final"),
    http=(
        Http("GET", "/v1/receipts/{receipt_id}", headers={"secret": RECEIPT_HEADER}, holder=holder),
    ),
)
async def collect_receipt(call: Call, given: CollectReceipt) -> Collected:
    """Collect the receipt of an erasure, with its secret instead of a token."""
    return await call.services.erase.collect(
        call.context, given.receipt_id, given.secret, acknowledge=given.acknowledge
    )


ERASE_AGAIN = Operation(
    "erase_again",
    Scope.ADMIN,
    "Erase again what a database restored from a backup still holds.",
    cli="recall erase-again",
)
ALLOW_ERASED = Operation(
    "allow_erased",
    Scope.ADMIN,
    "Let a text that was erased be stored again.",
    cli="recall erase-allow",
)
PURGE_SOURCE = Operation(
    "purge_source",
    Scope.ADMIN,
    "Take back the effects of a bad source.",
    destroys=True,
    cli="recall purge-source",
)
SET_HOLD = Operation(
    "set_hold", Scope.ADMIN, "Keep a namespace from being erased.", cli="recall hold set"
)
LIFT_HOLD = Operation(
    "lift_hold", Scope.ADMIN, "Let a namespace be erased again.", cli="recall hold lift"
)

OPERATIONS = (
    erase,
    delete_namespace_data,
    ERASE_MEMORY,
    ERASE_SUBJECT,
    ERASE_CONTAINER,
    collect_receipt,
    ERASE_AGAIN,
    ALLOW_ERASED,
    PURGE_SOURCE,
    SET_HOLD,
    LIFT_HOLD,
)
