"""Quarantine: texts that were held back, with their words and the reasons.

The words are exact, since they are data: an administrator judges them, and nothing obeys them.
"""

from typing import Annotated

from pydantic import Field

from recall_server.api import presenters
from recall_server.api.arguments import INT64_MAX, Arguments
from recall_server.api.operations.operation import Call, Http, Json, Operation
from recall_server.domain.permissions import Scope
from recall_server.domain.security.screening import Held
from recall_server.services.memory.quarantine import LISTED_MAX, Suspects


class ListQuarantine(Arguments):
    state: Annotated[Held, Field(strict=False)] = Held.HELD
    limit: int = Field(50, ge=1, le=LISTED_MAX)
    offset: int = Field(0, ge=0, le=INT64_MAX)


class OneSuspect(Arguments):
    id: str


async def list_page(call: Call, given: ListQuarantine) -> Suspects:
    return await call.services.quarantine.list(
        call.context, state=given.state, limit=given.limit, offset=given.offset
    )


async def release(call: Call, given: OneSuspect) -> Json:
    await call.services.quarantine.release(call.context, given.id)
    return {"id": given.id, "state": str(Held.RELEASED)}


async def reject(call: Call, given: OneSuspect) -> Json:
    await call.services.quarantine.reject(call.context, given.id)
    return {"id": given.id, "state": str(Held.REJECTED)}


def _page(found: Suspects, _: ListQuarantine) -> Json:
    return {
        "suspects": [presenters.suspect(one) for one in found.found],
        "total": found.total,
        "next_offset": found.next_offset,
    }


# Texts are shown as they were written, so that an administrator can judge them.
LIST_QUARANTINE = Operation(
    "list_quarantine",
    Scope.ADMIN,
    "List texts that were held back, with the reasons.",
    ListQuarantine,
    list_page,
    _page,
    ("suspects", "total", "next_offset"),
    whole_namespace=True,
    http=(Http("GET", "/v1/quarantine"),),
    cli="recall quarantine list",
    read_only=True,
)
RELEASE_QUARANTINED = Operation(
    "release_quarantined",
    Scope.ADMIN,
    "Let a text be found, and make memories of it.",
    OneSuspect,
    release,
    returns=("id", "state"),
    whole_namespace=True,
    http=(Http("POST", "/v1/quarantine/{id}/release"),),
    cli="recall quarantine release",
)
REJECT_QUARANTINED = Operation(
    "reject_quarantined",
    Scope.ADMIN,
    "Keep a text hidden for good.",
    OneSuspect,
    reject,
    returns=("id", "state"),
    whole_namespace=True,
    http=(Http("POST", "/v1/quarantine/{id}/reject"),),
    cli="recall quarantine reject",
)

OPERATIONS = (LIST_QUARANTINE, RELEASE_QUARANTINED, REJECT_QUARANTINED)
