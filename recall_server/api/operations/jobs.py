"""Jobs: how far the extraction of a stored text has come."""

from recall_server.api import presenters
from recall_server.api.arguments import Arguments
from recall_server.api.operations.operation import Call, Http, Operation
from recall_server.domain.permissions import Scope
from recall_server.services.memory.ingest import Extracted


class OneJob(Arguments):
    job_id: str


async def get(call: Call, given: OneJob) -> Extracted:
    return await call.services.ingest.extracted(call.context, given.job_id)


GET_JOB = Operation(
    "get_job",
    Scope.READ,
    "Get the state of the job of a stored text, its attempts, and the memories that came of it.",
    OneJob,
    get,
    lambda found, _: presenters.job(found),
    ("job_id", "kind", "state", "attempts", "failures", "error_code", "memory_ids"),
    http=(Http("GET", "/v1/jobs/{job_id}"),),
    read_only=True,
)

OPERATIONS = (GET_JOB,)
