"""The contents of a namespace: its counts, the jobs of its texts, its export and import; and the
metrics of the process, for an operator's Prometheus.
"""

from prometheus_client import CONTENT_TYPE_LATEST

from recall_server import __version__
from recall_server.api import presenters
from recall_server.api.operations.intake import check_own
from recall_server.api.operations.memories import InTime
from recall_server.api.operations.operation import (
    CAMILLO,
    ENGRAM,
    Arguments,
    Call,
    Download,
    Http,
    Json,
    Mcp,
    NoArguments,
    Operation,
    Plain,
)
from recall_server.api.probes import METRICS_PATH
from recall_server.domain.errors import NotFound
from recall_server.domain.moments import Past
from recall_server.domain.permissions import Scope
from recall_server.domain.task import JobProgress
from recall_server.services import transfer
from recall_server.services.memory.ingest import Extracted
from recall_server.services.transfer import importing


class OneJob(Arguments):
    job_id: str


class ExportNamespace(Arguments):
    # A missing name must not mean everybody.
    empty_is_given = frozenset({"subject"})

    subject: str | None = None


LINES = "application/x-ndjson"


class GetMemoryStats(InTime):
    by_status: bool = False


class MemoryStats(GetMemoryStats):
    """The arguments that Camillo takes; its answer includes the states."""

    namespace: str = ""
    by_status: bool = True

    def past(self, call: Call) -> Past:
        check_own(self.namespace, "namespace", call.caller.namespace)
        return super().past(call)


async def get_job(call: Call, given: OneJob) -> Extracted | JobProgress:
    try:
        return await call.services.ingest.extracted(call.context, given.job_id)
    except NotFound:
        recheck = await call.services.recheck.progress(call.context, given.job_id)
        if recheck is None:
            raise
        return recheck


def _job(found: Extracted | JobProgress, _: OneJob) -> Json:
    if not isinstance(found, Extracted):
        return presenters.job(found) | {"held_turns": 0, "refused": []}
    refused = [
        {"reason": str(one.reason), "type": one.type and str(one.type), "words": words}
        for one, words in found.refused
    ]
    of_text = {"held_turns": found.job.held_turns, "refused": refused}
    return presenters.job(found.job, found.memory_ids) | of_text


async def export(call: Call, given: ExportNamespace) -> Download:
    reader = transfer.Reader()
    pieces = call.services.export.stream(call.context, subject=given.subject, reader=reader)
    # An error must be raised before the answer has begun.
    first = await anext(pieces)
    name = f"{call.caller.namespace}.jsonl"
    return Download(name, LINES, first, pieces, reader)


async def read_metrics(call: Call, _: NoArguments) -> Plain:
    tasks = call.services.tasks
    found = await call.services.metrics.exposed(tasks.store, tasks.runtime.now())
    return Plain(CONTENT_TYPE_LATEST, found)


GET_MEMORY_STATS = Operation(
    "get_memory_stats",
    Scope.READ,
    "Count the memories of each type, and the texts that wait for extraction.",
    GetMemoryStats,
    lambda call, given: call.services.recall.stats(
        call.context, given.past(call), by_status=given.by_status
    ),
    lambda counts, _: presenters.counts(counts),
    ("by_type", "total", "pending_extractions"),
    http=(Http("GET", "/v1/stats"),),
    mcp=Mcp(
        "Memories of each type, and texts that wait for extraction.",
        title="Memory statistics",
        unlisted=frozenset({"as_of", "known_at", "by_status"}),
        aliases={"memory_stats": (MemoryStats, CAMILLO)},
        idempotent=True,
    ),
    read_only=True,
)
GET_STATUS = Operation(
    "get_status",
    Scope.READ,
    "Say that the server is well, with the counts of the namespace.",
    NoArguments,
    lambda call, _: call.services.recall.stats(call.context),
    lambda counts, _: {
        "status": "ok",
        "version": __version__,
        "memories": counts.total,
        "pending_extractions": counts.backlog.pending_extractions,
    },
    ("status", "version", "memories", "pending_extractions"),
    http=(Http("GET", "/api/v1/status"),),
    mcp=Mcp("Whether the server is well.", title="Status", toolset=ENGRAM, idempotent=True),
    read_only=True,
)
GET_JOB = Operation(
    "get_job",
    Scope.READ,
    "Get the state of the job of a stored text, its attempts, the memories that came of it, what "
    "was proposed and refused, and how many turns are in quarantine; or the state of a recheck.",
    OneJob,
    get_job,
    _job,
    (
        *("job_id", "kind", "state", "attempts", "failures", "error_code"),
        *("memory_ids", "held_turns", "refused"),
    ),
    http=(Http("GET", "/v1/jobs/{job_id}"),),
    read_only=True,
)
# An export includes the audit log and deleted memories: more than reading memories shows.
EXPORT_NAMESPACE = Operation(
    transfer.OPERATION,
    Scope.ADMIN,
    "Export all that the namespace holds, or all that concerns one subject, as JSON Lines.",
    ExportNamespace,
    export,
    whole_namespace=True,
    http=(Http("GET", "/v1/export", media_type=LINES),),
    cli="recall export",
)
IMPORT_NAMESPACE = Operation(
    importing.OPERATION, Scope.ADMIN, "Import an export into a namespace.", cli="recall import"
)
READ_METRICS = Operation(
    "read_metrics",
    Scope.METRICS,
    "The metrics of this process, in the text format of Prometheus. No label names a tenant.",
    NoArguments,
    read_metrics,
    http=(Http("GET", METRICS_PATH, media_type="text/plain"),),
    read_only=True,
)
