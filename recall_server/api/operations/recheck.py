"""Recheck the believed memories, in the background."""

from recall_server.api.arguments import NoArguments
from recall_server.api.operations.operation import Call, Http, Json, Operation
from recall_server.domain.permissions import Scope


async def begin(call: Call, _: NoArguments) -> Json:
    return {"queued": True, "job_id": await call.services.recheck.begin(call.context)}


RECHECK_MEMORIES = Operation(
    "recheck_memories",
    Scope.CONSOLIDATE,
    "Compare the believed memories again: contradictions open disputes, and what nearly "
    "repeats is stated as a duplicate.",
    NoArguments,
    begin,
    returns=("queued", "job_id"),
    whole_namespace=True,
    http=(Http("POST", "/v1/recheck", 202),),
    cli="recall recheck",
)

OPERATIONS = (RECHECK_MEMORIES,)
