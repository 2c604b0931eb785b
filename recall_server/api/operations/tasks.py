"""Tasks: a consolidation, for clients that start, watch or answer it.

The methods of A2A are in `api/a2a`; their names and scopes stand here.
"""

from typing import Any

from recall_server.api import task_presenters
from recall_server.api.arguments import Arguments, checked_id
from recall_server.api.operations.consolidation import (
    ACCEPTED,
    CONSOLIDATE_MEMORIES,
    consolidation,
)
from recall_server.api.operations.operation import Call, Http, Json, Operation
from recall_server.domain.errors import Invalid
from recall_server.domain.permissions import Scope
from recall_server.domain.task import Task

# The skill of the agent card is the operation that its tasks are.
SKILL = CONSOLIDATE_MEMORIES.name


class CreateTask(Arguments):
    skill: str
    input: dict[str, Any]


class OneTask(Arguments):
    task_id: str


class ResumeTask(OneTask):
    repeats_names = False

    resolution: str | list[Any] | None = None
    resolutions: str | list[Any] | None = None


async def create(call: Call, given: CreateTask) -> Task:
    if given.skill != SKILL:
        raise Invalid(f"Send {{'skill': '{SKILL}', 'input': {{'text': …, 'topic': …}}}}.")
    return await call.services.consolidate.start(call.context, consolidation(given.input, "a2a"))


async def get(call: Call, given: OneTask) -> Task:
    task = await call.services.tasks.get(
        call.namespace, checked_id(given.task_id, "id"), access_scope=call.access_scope
    )
    call.entry.ids.append(task.id)
    return task


async def resume(call: Call, given: ResumeTask) -> Task:
    """One `resolution` for all that is asked, or `resolutions` one by one."""
    answer = given.resolution if given.resolutions is None else given.resolutions
    if answer is None:
        raise Invalid("Send 'resolution' with a choice, or 'resolutions' with a list.")
    return await call.services.tasks.answer(call.context, checked_id(given.task_id, "id"), answer)


def _plain(task: Task, _: Any) -> Json:
    return task_presenters.plain(task)


def _a2a(
    name: str,
    summary: str,
    *methods: str,
    scope: Scope | None = Scope.CONSOLIDATE,
    read_only: bool = False,
) -> Operation:
    """An operation that A2A alone offers. Reading a task needs the scope too: it shows texts and
    memories, and who can neither start nor answer one has no use for it.
    """
    return Operation(name, scope, summary, a2a=methods, read_only=read_only)


CREATE_TASK = Operation(
    "create_task",
    Scope.CONSOLIDATE,
    "Start a task, without waiting for it.",
    CreateTask,
    create,
    _plain,
    ("id", "status"),
    http=(Http("POST", "/a2a", ACCEPTED),),
)
GET_TASK = Operation(
    "get_task",
    Scope.CONSOLIDATE,
    "Get a task: where it stands, what it asks, and what came of it.",
    OneTask,
    get,
    lambda task, _: task_presenters.consolidation(task),
    ("task_id", "status"),
    http=(
        Http("GET", "/v1/consolidations/{task_id}"),
        Http("GET", "/a2a/{task_id}", present=_plain, returns=("id", "status")),
    ),
    a2a=("GetTask",),
    read_only=True,
)
RESUME_TASK = Operation(
    "resume_task",
    Scope.CONSOLIDATE,
    "Answer what a task asks: one resolution for all, or resolutions one by one.",
    ResumeTask,
    resume,
    _plain,
    ("id", "status"),
    http=(Http("POST", "/a2a/{task_id}/resume"),),
)
SEND_MESSAGE = _a2a(
    "send_message", "Start a task, or answer one.", "SendMessage", "SendStreamingMessage"
)
LIST_TASKS = _a2a("list_tasks", "List tasks, the last changed first.", "ListTasks", read_only=True)
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
LIST_PUSH_CONFIGS = _a2a(
    "list_push_configs",
    "List push configurations.",
    "ListTaskPushNotificationConfigs",
    read_only=True,
)
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
    CREATE_TASK,
    GET_TASK,
    RESUME_TASK,
    SEND_MESSAGE,
    LIST_TASKS,
    CANCEL_TASK,
    SUBSCRIBE_TO_TASK,
    CREATE_PUSH_CONFIG,
    GET_PUSH_CONFIG,
    LIST_PUSH_CONFIGS,
    DELETE_PUSH_CONFIG,
    GET_EXTENDED_CARD,
)
