"""Consolidation: merge the memories of a topic, take in a text under a policy, or apply a plan."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from pydantic import Field

from recall_server.api import presenters, task_presenters
from recall_server.api.arguments import Arguments, checked_id
from recall_server.api.operations.operation import Call, Http, Mcp, Operation
from recall_server.domain.containers import NONE
from recall_server.domain.episode import Source
from recall_server.domain.errors import Invalid
from recall_server.domain.external_errors import TaskFailed
from recall_server.domain.permissions import Scope
from recall_server.domain.plan import Policy
from recall_server.domain.task import Expiry, Mode, Request, Task
from recall_server.domain.text.cleaning import clean_label
from recall_server.services.memory.ingest import LABEL_CHARS_MAX

ACCEPTED = 202
DEFAULT_TOPIC = "general"
# Below every deadline of a call: a larger task goes on behind the reply.
WAIT_S = 20.0


class ConsolidateMemories(Arguments):
    """A merge, as the tool offers it."""

    topic: str
    container: str = ""
    similarity_threshold: float = Field(0.85, ge=0, le=1)
    dry_run: bool = Field(default=False, description="show the plan only")

    def request(self, client: str | None) -> Request:
        return Request(
            Mode.MERGE,
            self.topic,
            similarity_threshold=self.similarity_threshold,
            dry_run=self.dry_run,
            source=Source(client=client),
            container=self.container,
        )


class Consolidation(Arguments):
    """A merge, a text to take in, or a plan to apply: all that a task can be asked for."""

    # An empty text that was meant to be taken in must not turn into a merge.
    empty_is_given = frozenset({"text"})
    # Other agents read the errors of a task.
    repeats_names = False

    mode: Annotated[Mode | None, Field(strict=False)] = None
    text: str = ""
    topic: str = DEFAULT_TOPIC
    container: str = NONE
    policy: Annotated[Policy | None, Field(strict=False)] = None
    similarity_threshold: float = Field(0.85, ge=0, le=1)
    dry_run: bool = False
    plan_id: str = ""
    expires_in: float | None = None
    on_expiry: Annotated[Expiry, Field(strict=False)] = Expiry.KEEP_EXISTING
    session_id: str = ""
    agent_id: str = ""

    def request(self, client: str | None) -> Request:
        """Raises `Invalid` where the mode and the arguments do not fit."""
        has_text = "text" in self.model_fields_set
        if self.mode in (Mode.MERGE, Mode.APPLY) and not self.text:
            has_text = False
        given = Mode.APPLY if self.plan_id else Mode.INGEST if has_text else Mode.MERGE
        mode = self.mode or given
        if mode is not given:
            raise Invalid("mode ingest takes a text, merge a topic only, and apply a plan_id only.")
        return Request(
            mode=mode,
            topic=self.topic,
            text=self.text,
            policy=self.policy,
            similarity_threshold=self.similarity_threshold,
            dry_run=self.dry_run,
            plan_id=checked_id(self.plan_id, "plan_id"),
            expires_in_s=self.expires_in,
            on_expiry=self.on_expiry,
            source=Source(
                _label(self.session_id, "session_id"), _label(self.agent_id, "agent_id"), client
            ),
            container=self.container,
        )


def _label(text: str, name: str) -> str | None:
    return clean_label(text, name, chars_max=LABEL_CHARS_MAX) if text else None


def consolidation(given: Mapping[str, Any], client: str | None) -> Request:
    """The request in a JSON object. Raises `Invalid`, naming each fault; never repeats values."""
    return Consolidation.parse(dict(given), "consolidate_memories").request(client)


async def consolidate(call: Call, given: ConsolidateMemories | Consolidation) -> Task:
    """The task, as it is once it has ended or asks something, or after `WAIT_S` seconds."""
    services = call.services
    task = await services.consolidate.start(call.context, given.request(call.client))
    with suppress(TimeoutError):  # it goes on: the reply has its id
        async with asyncio.timeout(WAIT_S):
            task = await services.tasks.wait_until_idle(
                call.namespace, task, access_scope=call.access_scope
            )
    if task.status.failure is not None:
        raise TaskFailed(task.status.failure.message)
    return task


CONSOLIDATE_MEMORIES = Operation(
    "consolidate_memories",
    Scope.CONSOLIDATE,
    "Merge similar memories of a topic, take in a text under a policy, or apply a plan.",
    Consolidation,
    consolidate,
    lambda task, _: task_presenters.consolidation(task),
    ("task_id", "status"),
    http=(Http("POST", "/v1/consolidations", ACCEPTED),),
    mcp=Mcp(
        "Consolidate memories",
        "Merge similar memories of a topic into one each; the originals stay in its history.",
        ConsolidateMemories,
        lambda task, _: presenters.merged(task),
        returns=("groups_found", "memories_created", "deleted_ids"),
        destructive=True,
        idempotent=True,
    ),
)

OPERATIONS = (CONSOLIDATE_MEMORIES,)
