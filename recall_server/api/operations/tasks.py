"""Consolidation: merge the memories of a topic, take in a text under a policy, or apply a plan; and
its tasks, for clients that start, watch or answer one.

The methods of A2A are in `api/a2a`; their names and scopes are here.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

from pydantic import AliasChoices, Field

from recall_server.api import presenters
from recall_server.api.operations.intake import Message, Origin, moment_given, source_of
from recall_server.api.operations.operation import (
    Arguments,
    Call,
    Http,
    Json,
    Mcp,
    Operation,
    checked_id,
    operation,
)
from recall_server.domain.episode import Source
from recall_server.domain.errors import Invalid, TaskFailed
from recall_server.domain.ids import NONE
from recall_server.domain.permissions import Scope
from recall_server.domain.plan import Policy
from recall_server.domain.task import Expiry, Mode, Request, Task
from recall_server.storage.tables.tasks import PushConfig

ACCEPTED = 202
DEFAULT_TOPIC = "general"
# Below every deadline of a call: a larger task goes on after the reply.
WAIT_S = 20.0


_OF_TEXT = {"occurred_at", "expires_at", "tags", "metadata", "source", "trace_id"}


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
    """The request of a task: a merge, a text to take in, or a plan to apply."""

    # An empty text must be refused, and must not mean a merge.
    empty_is_given = frozenset({"text"})
    # Errors of a task repeat no names, since other agents read them.
    repeats_names = False

    mode: Annotated[Mode | None, Field(strict=False)] = None
    text: str = ""
    messages: list[Message] = Field([])
    topic: str = DEFAULT_TOPIC
    container: str = NONE
    policy: Annotated[Policy | None, Field(strict=False)] = None
    similarity_threshold: float = Field(0.85, ge=0, le=1)
    dry_run: bool = False
    plan_id: str = ""
    # It was called expires_in.
    expires_in_s: float | None = Field(
        None, validation_alias=AliasChoices("expires_in_s", "expires_in")
    )
    on_expiry: Annotated[Expiry, Field(strict=False)] = Expiry.KEEP_EXISTING
    session_id: str = ""
    agent_id: str = ""
    # The labels of the text, as in store_memory.
    occurred_at: str = ""
    expires_at: str = ""
    tags: list[str] = Field([])
    metadata: dict[str, Any] = Field({})
    source: Origin | None = None
    trace_id: str = ""

    def request(self, client: str | None) -> Request:
        """Return the request. Raises `Invalid` if the mode and the arguments do not fit."""
        has_text = "text" in self.model_fields_set or bool(self.messages)
        if self.text and self.messages:
            raise Invalid("Send one of text and messages.")
        if self.mode in (Mode.MERGE, Mode.APPLY) and not (self.text or self.messages):
            has_text = False
        given = Mode.APPLY if self.plan_id else Mode.INGEST if has_text else Mode.MERGE
        mode = self.mode or given
        if mode is not given:
            raise Invalid(
                "mode ingest takes a text or messages, merge a topic only, apply a plan_id only."
            )
        if mode is not Mode.INGEST and self.model_fields_set & _OF_TEXT:
            raise Invalid(f"{', '.join(sorted(_OF_TEXT))} are of a text. Send one with them.")
        return Request(
            mode=mode,
            topic=self.topic,
            text=self.text,
            utterances=tuple(one.utterance() for one in self.messages),
            policy=self.policy,
            similarity_threshold=self.similarity_threshold,
            dry_run=self.dry_run,
            plan_id=checked_id(self.plan_id, "plan_id"),
            expires_in_s=self.expires_in_s,
            on_expiry=self.on_expiry,
            source=source_of(self, client).checked(),
            container=self.container,
            occurred_at=moment_given(self.occurred_at, "occurred_at"),
            text_expires_at=moment_given(self.expires_at, "expires_at"),
        )


def consolidation(given: Mapping[str, Any], client: str | None) -> Request:
    """Return the request in a JSON object. Raises `Invalid`, which names each fault and never
    repeats values.
    """
    return Consolidation.parse(dict(given), "consolidate_memories").request(client)


class CreateTask(Arguments):
    skill: str
    input: dict[str, Any]


class OneTask(Arguments):
    task_id: str


class ResumeTask(OneTask):
    repeats_names = False

    resolution: str | list[Any] | None = None
    resolutions: str | list[Any] | None = None


def _plain(task: Task, _: Any) -> Json:
    return presenters.plain(task)


def _a2a(
    name: str,
    summary: str,
    *methods: str,
    scope: Scope | None = Scope.CONSOLIDATE,
    read_only: bool = False,
) -> Operation:
    """An operation that only A2A offers. Reading a task needs the scope too: a task shows texts and
    memories, and a caller that can neither start nor answer one has no use for it.
    """
    return Operation(name, scope, summary, a2a=methods, read_only=read_only)


@operation(
    Scope.CONSOLIDATE,
    arguments=Consolidation,
    present=lambda task, _: presenters.consolidation(task),
    returns=("task_id", "status"),
    http=(Http("POST", "/v1/consolidations", ACCEPTED),),
    mcp=Mcp(
        "Merge similar memories of a topic into one each; the originals stay in its history.",
        ConsolidateMemories,
        lambda task, _: presenters.merged(task),
        returns=("groups_found", "memories_created", "deleted_ids"),
        destructive=True,
        idempotent=True,
    ),
)
async def consolidate_memories(call: Call, given: ConsolidateMemories | Consolidation) -> Task:
    """Merge similar memories of a topic, take in a text under a policy, or apply a plan."""
    # Return the task when it has ended or asks something, or after `WAIT_S` seconds.
    services = call.services
    task = await services.consolidate.start(call.context, given.request(call.client))
    with suppress(TimeoutError):  # the task goes on, and the reply has its id
        async with asyncio.timeout(WAIT_S):
            task = await services.tasks.wait_until_idle(call.context, task)
    if task.status.failure is not None:
        raise TaskFailed(task.status.failure.message)
    return task


# The skill of the agent card is the operation of its tasks.
SKILL = consolidate_memories.name
# It lists reviews, or answers one, with a message and without a task.
REVIEW_SKILL = "review_memories"


@operation(
    Scope.CONSOLIDATE,
    present=_plain,
    returns=("id", "status"),
    http=(
        Http("POST", "/a2a", ACCEPTED, besides={200: "The answer to a request of A2A's JSON-RPC."}),
    ),
)
async def create_task(call: Call, given: CreateTask) -> Task:
    """Start a task, without waiting for it."""
    if given.skill != SKILL:
        raise Invalid(f"Send {{'skill': '{SKILL}', 'input': {{'text': …, 'topic': …}}}}.")
    return await call.services.consolidate.start(call.context, consolidation(given.input, "a2a"))


@operation(
    Scope.CONSOLIDATE,
    present=lambda task, _: presenters.consolidation(task),
    returns=("task_id", "status"),
    http=(
        Http("GET", "/v1/consolidations/{task_id}"),
        Http("GET", "/a2a/{task_id}", present=_plain, returns=("id", "status")),
    ),
    a2a=("GetTask",),
    read_only=True,
)
async def get_task(call: Call, given: OneTask) -> Task:
    """Get a task: its state, its questions, and its result."""
    task = await call.services.tasks.get(call.context, checked_id(given.task_id, "id"))
    call.context.entry.ids.append(task.id)
    return task


@operation(
    Scope.CONSOLIDATE,
    present=_plain,
    returns=("id", "status"),
    http=(Http("POST", "/a2a/{task_id}/resume"),),
)
async def resume_task(call: Call, given: ResumeTask) -> Task:
    """Answer what a task asks: one resolution for all, or resolutions one by one."""
    # One `resolution` for all questions, or `resolutions` one by one.
    answer = given.resolution if given.resolutions is None else given.resolutions
    if answer is None:
        raise Invalid("Send 'resolution' with a choice, or 'resolutions' with a list.")
    return await call.services.tasks.answer(call.context, checked_id(given.task_id, "id"), answer)


SEND_MESSAGE = _a2a(
    "send_message", "Start a task, or answer one.", "SendMessage", "SendStreamingMessage"
)
LIST_TASKS = _a2a(
    "list_tasks", "List tasks, the most recently changed first.", "ListTasks", read_only=True
)
CANCEL_TASK = _a2a("cancel_task", "Cancel a task.", "CancelTask")
SUBSCRIBE_TO_TASK = _a2a("subscribe_to_task", "Watch a task.", "SubscribeToTask", read_only=True)
CREATE_PUSH_CONFIG = _a2a(
    "create_push_config",
    "Have the events of a task sent to an address.",
    "CreateTaskPushNotificationConfig",
)
GET_PUSH_CONFIG = _a2a(
    "get_push_config", "Get a push configuration.", "GetTaskPushNotificationConfig", read_only=True
)


@operation(
    Scope.CONSOLIDATE,
    present=lambda found, _: {"push_configs": [presenters.push_config(one) for one in found]},
    returns=("push_configs",),
    http=(Http("GET", "/v1/consolidations/{task_id}/push_configs"),),
    a2a=("ListTaskPushNotificationConfigs",),
    read_only=True,
)
async def list_push_configs(call: Call, given: OneTask) -> Sequence[PushConfig]:
    # There is never more than one page of them.
    """List the push configurations of a task, and which token set each."""
    return (await call.services.push.page(call.context, checked_id(given.task_id, "id"))).configs


DELETE_PUSH_CONFIG = _a2a(
    "delete_push_config", "Delete a push configuration.", "DeleteTaskPushNotificationConfig"
)
GET_EXTENDED_CARD = _a2a(
    "get_extended_card",
    "Get the agent card with the skills that the token may use.",
    "GetExtendedAgentCard",
    scope=None,
    read_only=True,
)

OPERATIONS = (
    create_task,
    get_task,
    resume_task,
    SEND_MESSAGE,
    LIST_TASKS,
    CANCEL_TASK,
    SUBSCRIBE_TO_TASK,
    CREATE_PUSH_CONFIG,
    GET_PUSH_CONFIG,
    list_push_configs,
    DELETE_PUSH_CONFIG,
    GET_EXTENDED_CARD,
)
