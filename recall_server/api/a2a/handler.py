"""A2A: the SDK's request handler interface over our tasks.

The SDK speaks the bindings (JSON-RPC, REST, v0.3); tasks are rows of ours, worked on by whichever
process claims their job. So nothing is kept in this process between two calls: a task may pause for
weeks, survive a restart, and be watched or answered through another replica.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, timedelta
from typing import TypeVar

from a2a.server.context import ServerCallContext
from a2a.server.events import Event as A2AEvent
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from a2a.types import (
    Task as A2ATask,
)
from a2a.utils.errors import TaskNotCancelableError, UnsupportedOperationError
from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size
from google.protobuf.json_format import MessageToDict

from recall_server.api.a2a import wire
from recall_server.api.a2a.errors import answered, streamed, translated
from recall_server.api.a2a.input import answer_of, checked, request_of
from recall_server.api.a2a.push import PushConfigs, wanted
from recall_server.api.arguments import checked_id
from recall_server.api.caller import Caller
from recall_server.api.middleware.request_validation import UnsupportedMedia
from recall_server.api.operations import tasks
from recall_server.api.operations.consolidation import CONSOLIDATE_MEMORIES
from recall_server.api.operations.operation import Operation
from recall_server.api.perform import Calls
from recall_server.domain.audit import AuditEntry
from recall_server.domain.errors import Invalid, RecallError, TaskEnded, TaskNotFound
from recall_server.domain.task import Message as Said
from recall_server.domain.task import Task
from recall_server.storage.store import Transaction
from recall_server.storage.tables.tasks import Filter

PROTOCOL = "a2a"
PAGE_SIZE = 50
CALLER, BASE, TURN = "recall.caller", "recall.base", "recall.turn"
_STATE_OF = {shown: state for state, shown in wire.STATES.items()}

T = TypeVar("T")


class A2AHandler(RequestHandler):
    """Every method: the caller is in the context, as authentication found out; the tasks of others
    are not found. `card_at` gives the card of this server at an address.
    """

    def __init__(
        self,
        calls: Calls,
        *,
        card_at: Callable[[str], AgentCard],
        wait_s: float,
    ) -> None:
        self._services = calls.services
        self._calls = calls
        self._card_at = card_at
        self._wait = timedelta(seconds=wait_s)
        self._push = PushConfigs(calls.services, self._perform)

    @answered
    async def on_message_send(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> A2ATask:
        caller = _caller(context, params.tenant)
        modes = _modes(params)
        task = await self._perform(context, tasks.SEND_MESSAGE, self._taken(caller, params))
        if not params.configuration.return_immediately:
            context.state[TURN].end()  # a call that waits takes no place of one that works
            try:
                async with asyncio.timeout(self._wait.total_seconds()):
                    task = await self._services.tasks.wait_until_idle(
                        caller.namespace, task, access_scope=caller.access_scope
                    )
            except TimeoutError:  # it goes on; the caller can ask again
                task = await self._services.tasks.get(
                    caller.namespace, task.id, access_scope=caller.access_scope
                )
        return apply_history_length(wire.task(task, modes=modes), params.configuration)

    @streamed
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[A2AEvent]:
        caller = _caller(context, params.tenant)
        modes = _modes(params)
        task = await self._perform(context, tasks.SEND_MESSAGE, self._taken(caller, params))
        yield apply_history_length(wire.task(task, modes=modes), params.configuration)
        if task.status.state.idle:
            return
        async with aclosing(
            self._services.tasks.watch(
                caller.namespace, task.id, task.events, access_scope=caller.access_scope
            )
        ) as events:
            async for event in events:
                yield wire.update(event, modes)
                if event.status and event.status.state.idle:
                    return

    def _taken(
        self, caller: Caller, params: SendMessageRequest
    ) -> Callable[[AuditEntry], Awaitable[Task]]:
        """The message as a new task, or as the answer to what one asks."""
        push = params.configuration.task_push_notification_config

        async def work(entry: AuditEntry) -> Task:
            message = checked(params.message)
            if message.task_id:
                task = await self._services.tasks.get(
                    caller.namespace, message.task_id, access_scope=caller.access_scope
                )
                if message.context_id not in ("", task.context_id):
                    raise Invalid("The contextId is not that of the task. Leave it out.")
                if task.status.state.final:
                    raise TaskEnded
                return await self._services.tasks.answer(
                    caller.context(entry),
                    task.id,
                    answer_of(message),
                    messages=lambda task: (
                        wire.asked_message(task),
                        _said(message, task.id, task.context_id),
                    ),
                )
            also = None
            if push.url:
                request = wanted(push)
                await self._services.push.check(request)

                async def also(tx: Transaction, task: Task) -> None:
                    await self._services.push.add(
                        tx, caller.namespace, task.id, request, after=task.events
                    )

            return await self._services.consolidate.start(
                caller.context(entry),
                request_of(message),
                context_id=message.context_id,
                message=lambda task_id, context_id: _said(message, task_id, context_id),
                also=also,
            )

        return work

    @answered
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> A2ATask:
        validate_history_length(params)
        task = await self._run(context, tasks.GET_TASK, params.id, params.tenant)
        return apply_history_length(wire.task(task), params)

    @answered
    async def on_list_tasks(
        self, params: ListTasksRequest, context: ServerCallContext
    ) -> ListTasksResponse:
        caller = _caller(context, params.tenant)
        validate_history_length(params)
        if params.HasField("page_size"):
            validate_page_size(params.page_size)
        size = params.page_size or PAGE_SIZE
        wanted = Filter(
            context_id=checked_id(params.context_id, "context_id"),
            state=_STATE_OF.get(params.status),
            since=params.status_timestamp_after.ToDatetime(tzinfo=UTC)
            if params.HasField("status_timestamp_after")
            else None,
        )
        if params.status and wanted.state is None:
            return ListTasksResponse(page_size=size)  # a state that no task of ours can be in

        async def work(entry: AuditEntry) -> ListTasksResponse:
            page = await self._services.tasks.page(
                caller.namespace,
                wanted,
                accessor=caller.accessor,
                cursor=params.page_token,
                limit=size,
                access_scope=caller.access_scope,
            )
            entry.counts["tasks"] = len(page.tasks)
            shown = [wire.task(task, artifacts=params.include_artifacts) for task in page.tasks]
            return ListTasksResponse(
                tasks=[apply_history_length(task, params) for task in shown],
                next_page_token=page.next or "",
                page_size=size,
                total_size=page.total,
            )

        return await self._perform(context, tasks.LIST_TASKS, work)

    @answered
    async def on_cancel_task(
        self, params: CancelTaskRequest, context: ServerCallContext
    ) -> A2ATask:
        caller = _caller(context, params.tenant)
        checked_id(params.id, "id")

        async def work(entry: AuditEntry) -> Task:
            return await self._services.tasks.cancel(caller.context(entry), params.id)

        try:
            return wire.task(await self._perform(context, tasks.CANCEL_TASK, work))
        except UnsupportedOperationError as error:
            raise TaskNotCancelableError(error.message, error.data) from None

    @streamed
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[A2AEvent]:
        caller = _caller(context, params.tenant)
        task = await self._run(context, tasks.SUBSCRIBE_TO_TASK, params.id, params.tenant)
        if task.status.state.final:
            raise TaskEnded
        yield wire.task(task)
        # Open while the task waits for an answer: it ends with the task.
        async with aclosing(
            self._services.tasks.watch(
                caller.namespace, task.id, task.events, access_scope=caller.access_scope
            )
        ) as events:
            async for event in events:
                yield wire.update(event)

    async def _run(
        self, context: ServerCallContext, operation: Operation, task_id: str, tenant: str
    ) -> Task:
        caller = _caller(context, tenant)
        checked_id(task_id, "id")

        async def work(entry: AuditEntry) -> Task:
            task = await self._services.tasks.get(
                caller.namespace, task_id, access_scope=caller.access_scope
            )
            entry.ids.append(task.id)
            return task

        return await self._perform(context, operation, work)

    @answered
    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        return await self._push.create(context, _caller(context, params.tenant), params)

    @answered
    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        return await self._push.get(context, _caller(context, params.tenant), params)

    @answered
    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        return await self._push.list(context, _caller(context, params.tenant), params)

    @answered
    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        await self._push.delete(context, _caller(context, params.tenant), params)

    @answered
    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        """The card, with the skills that the token may use."""
        rights = _caller(context, params.tenant).rights
        card = self._card_at(context.state[BASE])
        if CONSOLIDATE_MEMORIES.allowed(rights):
            return card
        shown = AgentCard()
        shown.CopyFrom(card)
        # A signature covers the skills; this card is shown to one caller, not published.
        del shown.skills[:], shown.signatures[:]
        return shown

    async def _perform(
        self,
        context: ServerCallContext,
        operation: Operation,
        work: Callable[[AuditEntry], Awaitable[T]],
    ) -> T:
        caller = _caller(context)
        try:
            return await self._calls.perform(caller, PROTOCOL, operation, work)
        except RecallError as error:
            raise translated(error) from None


def _caller(context: ServerCallContext, tenant: str = "") -> Caller:
    """The caller. The SDK puts the `tenant` of a path into the context; that of a body stands in
    the parameters.
    """
    caller = context.state[CALLER]
    assert isinstance(caller, Caller)
    check_tenant(caller, context.tenant)
    check_tenant(caller, tenant)
    return caller


def check_tenant(caller: Caller, tenant: str) -> None:
    """A `tenant` in a request is routing, never authority: under another, nothing is found."""
    if tenant not in ("", caller.namespace):
        raise translated(TaskNotFound())


def _modes(params: SendMessageRequest) -> list[str]:
    validate_history_length(params.configuration)
    modes = list(params.configuration.accepted_output_modes)
    if not wire.producible(modes):
        raise UnsupportedMedia("Results are application/json and text/plain. Accept one of them.")
    return modes


def _said(message: Message, task_id: str, context_id: str) -> Said:
    kept = Message()
    kept.CopyFrom(message)
    kept.task_id, kept.context_id = task_id, context_id
    return Said(message.message_id, MessageToDict(kept))
