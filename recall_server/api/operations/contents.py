"""The contents of a namespace: its texts as they were stored, its counts, jobs, export and import;
and the metrics of the process, for an operator's Prometheus.
"""

from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import Field

from recall_server import __version__
from recall_server.api import presenters
from recall_server.api.operations.intake import check_own, moment_given
from recall_server.api.operations.memories import InTime, Selection
from recall_server.api.operations.operation import (
    AGENTERNAL,
    CAMILLO,
    ENGRAM,
    INT64_MAX,
    Arguments,
    Call,
    Download,
    Http,
    Json,
    Mcp,
    NoArguments,
    Operation,
    Plain,
    operation,
)
from recall_server.api.probes import METRICS_PATH
from recall_server.domain.episode import Episode
from recall_server.domain.errors import NotFound
from recall_server.domain.moments import Past
from recall_server.domain.permissions import AccessScope, Scope
from recall_server.domain.task import JobProgress
from recall_server.services import transfer
from recall_server.services.memory.ingest import Extracted
from recall_server.services.memory.texts import TextPage
from recall_server.services.search.recall import Counts
from recall_server.services.transfer import importing

# The `expires_at` of a text that does not expire.
NEVER = "never"


class ListTexts(Selection):
    limit: int = Field(20, ge=1, le=50)
    offset: int = Field(0, ge=0, le=INT64_MAX)
    session_id: str = ""
    topic: str = ""


class GetEpisodes(ListTexts):
    """The arguments that Engram takes: by time range, source or group."""

    start_time: str = ""
    end_time: str = ""
    source: str = ""

    def narrowed(self, scope: AccessScope) -> AccessScope:
        times = {
            "said_after": moment_given(self.start_time, "start_time"),
            "said_before": moment_given(self.end_time, "end_time"),
        }
        return super().narrowed(scope).filtered(app=self.source, times=times)


class ListByDate(ListTexts):
    """The arguments that Agenternal takes."""

    start_date: str = ""
    end_date: str = ""

    def narrowed(self, scope: AccessScope) -> AccessScope:
        times = {
            "said_after": moment_given(self.start_date, "start_date"),
            "said_before": moment_given(self.end_date, "end_date"),
        }
        return super().narrowed(scope).filtered(times=times)


class OneText(Arguments):
    text_id: str


class UpdateText(OneText):
    """The fields to change; all others stay."""

    tags: list[str] | None = None
    metadata: dict[str, Any] | None = None
    expires_at: str = Field("", description=f"ISO date, time with zone, or {NEVER}")


class UpdateEpisode(Arguments):
    """The arguments that Engram takes."""

    episode_id: str
    tags: list[str] | None = None
    metadata: dict[str, Any] | None = None
    expired_at: str = ""


def _page(found: TextPage, _: ListTexts) -> Json:
    return {
        "texts": [presenters.text(one, words) for one, words in found.texts],
        "next_offset": found.next_offset,
    }


@operation(
    Scope.READ,
    present=_page,
    returns=("texts", "next_offset"),
    http=(Http("GET", "/v1/texts"), Http("GET", "/api/v1/episodes", arguments=GetEpisodes)),
    mcp=Mcp(
        toolset=ENGRAM,
        aliases={
            "get_episodes": (GetEpisodes, ENGRAM),
            "conversation_search_date": (ListByDate, AGENTERNAL),
        },
        idempotent=True,
    ),
    cli="recall texts",
    read_only=True,
)
async def list_texts(call: Call, given: ListTexts) -> TextPage:
    """List texts as they were sent, latest first by when they were said."""
    return await call.services.texts.page(
        given.context(call),
        limit=given.limit,
        offset=given.offset,
        session_id=given.session_id,
        topic=given.topic,
    )


@operation(
    Scope.WRITE,
    arguments=UpdateText,
    present=lambda changed, _: presenters.text(*changed),
    returns=("id", "tags", "metadata", "expires_at"),
    http=(
        Http("PATCH", "/v1/texts/{text_id}"),
        Http("PATCH", "/api/v1/episodes/{episode_id}", arguments=UpdateEpisode),
    ),
    mcp=Mcp(toolset=ENGRAM, aliases={"update_episode": (UpdateEpisode, ENGRAM)}, idempotent=True),
)
async def update_text(call: Call, given: UpdateText | UpdateEpisode) -> tuple[Episode, str]:
    """Change the tags, the metadata or the end of a text; its words stay as they are."""
    if isinstance(given, UpdateEpisode):
        given = UpdateText(
            text_id=given.episode_id,
            tags=given.tags,
            metadata=given.metadata,
            expires_at=given.expired_at,
        )
    if given.expires_at:
        # An expired text is no longer found.
        call.caller.rights.require(Scope.FORGET, whole_namespace=False)
    forever = given.expires_at == NEVER
    return await call.services.texts.update(
        call.context,
        given.text_id,
        tags=given.tags,
        metadata=given.metadata,
        expires_at=None if forever else moment_given(given.expires_at, "expires_at"),
        forever=forever,
    )


@operation(
    Scope.FORGET,
    returns=("forgotten",),
    http=(Http("DELETE", "/v1/texts/{text_id}"),),
)
async def forget_text(call: Call, given: OneText) -> Json:
    """Forget a text, and the memories that no other text states; each can be restored."""
    return {"forgotten": await call.services.texts.forget(call.context, given.text_id)}


TEXTS = (list_texts, update_text, forget_text)


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


def _job(found: Extracted | JobProgress, _: OneJob) -> Json:
    if not isinstance(found, Extracted):
        return presenters.job(found) | {"held_turns": 0, "refused": []}
    refused = [
        {"reason": str(one.reason), "type": one.type and str(one.type), "words": words}
        for one, words in found.refused
    ]
    of_text = {"held_turns": found.job.held_turns, "refused": refused}
    return presenters.job(found.job, found.memory_ids) | of_text


@operation(
    Scope.READ,
    present=lambda counts, _: presenters.counts(counts),
    returns=("by_type", "total", "pending_extractions"),
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
async def get_memory_stats(call: Call, given: GetMemoryStats) -> Counts:
    """Count the memories of each type, and the texts that wait for extraction."""
    return await call.services.recall.stats(
        call.context, given.past(call), by_status=given.by_status
    )


@operation(
    Scope.READ,
    present=lambda counts, _: {
        "status": "ok",
        "version": __version__,
        "memories": counts.total,
        "pending_extractions": counts.backlog.pending_extractions,
    },
    returns=("status", "version", "memories", "pending_extractions"),
    http=(Http("GET", "/api/v1/status"),),
    mcp=Mcp("Whether the server is well.", title="Status", toolset=ENGRAM, idempotent=True),
    read_only=True,
)
async def get_status(call: Call, _: NoArguments) -> Counts:
    """Say that the server is well, with the counts of the namespace."""
    return await call.services.recall.stats(call.context)


@operation(
    Scope.READ,
    present=_job,
    returns=(
        *("job_id", "kind", "state", "attempts", "failures", "error_code"),
        *("memory_ids", "held_turns", "refused"),
    ),
    http=(Http("GET", "/v1/jobs/{job_id}"),),
    read_only=True,
)
async def get_job(call: Call, given: OneJob) -> Extracted | JobProgress:
    """Get the state of the job of a stored text, its attempts, the memories that came of it, what
    was proposed and refused, and how many turns are in quarantine; or the state of a recheck.
    """
    try:
        return await call.services.ingest.extracted(call.context, given.job_id)
    except NotFound:
        recheck = await call.services.recheck.progress(call.context, given.job_id)
        if recheck is None:
            raise
        return recheck


# An export includes the audit log and deleted memories: more than reading memories shows.


@operation(
    Scope.ADMIN,
    whole_namespace=True,
    http=(Http("GET", "/v1/export", media_type=LINES),),
    cli="recall export",
)
async def export_namespace(call: Call, given: ExportNamespace) -> Download:
    """Export all that the namespace holds, or all that concerns one subject, as JSON Lines."""
    reader = transfer.Reader()
    pieces = call.services.export.stream(call.context, subject=given.subject, reader=reader)
    # An error must be raised before the answer has begun.
    first = await anext(pieces)
    name = f"{call.caller.namespace}.jsonl"
    return Download(name, LINES, first, pieces, reader)


IMPORT_NAMESPACE = Operation(
    importing.OPERATION, Scope.ADMIN, "Import an export into a namespace.", cli="recall import"
)


@operation(
    Scope.METRICS,
    http=(Http("GET", METRICS_PATH, media_type="text/plain"),),
    read_only=True,
)
async def read_metrics(call: Call, _: NoArguments) -> Plain:
    """The metrics of this process, in the text format of Prometheus. No label names a tenant."""
    tasks = call.services.tasks
    found = await call.services.metrics.exposed(tasks.store, tasks.runtime.now())
    return Plain(CONTENT_TYPE_LATEST, found)
