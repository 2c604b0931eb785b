"""A2A: the SDK's request handler interface over our tasks, and its routes.

The SDK speaks the bindings (JSON-RPC, REST, v0.3); tasks are our rows, and any process that claims
their job works on them. So this process keeps nothing between two calls: a task may pause for
weeks, survive a restart, and be watched or answered through another replica.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, timedelta
from functools import partial
from typing import Any, TypeVar

from a2a.server.context import ServerCallContext
from a2a.server.events import Event as A2AEvent
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes import DefaultServerCallContextBuilder, create_rest_routes
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types import (
    AgentCard,
    AuthenticationInfo,
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
from a2a.types import Task as A2ATask
from a2a.utils.constants import VERSION_HEADER
from a2a.utils.errors import A2AError, TaskNotCancelableError
from a2a.utils.task import validate_history_length, validate_page_size
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, Scope
from starlette.types import Message as HttpMessage

from recall_server.api.a2a import wire
from recall_server.api.a2a.card import JSONRPC_PATH, REST_PATH
from recall_server.api.a2a.errors import (
    answered,
    check_call,
    check_new_enough,
    check_rest,
    rpc_error,
    streamed,
    translated,
    unreadable,
    version_of,
)
from recall_server.api.a2a.wire import answer_of, checked, request_of, with_whole_numbers
from recall_server.api.callers import Streams, turn_of
from recall_server.api.http import Endpoint
from recall_server.api.operations import reviews, tasks
from recall_server.api.operations.operation import (
    CALLER,
    Arguments,
    Caller,
    Calls,
    Operation,
    caller_of,
    checked_id,
)
from recall_server.api.problems import UnsupportedMedia
from recall_server.api.request_validation import RewrittenJson
from recall_server.domain.context import Context
from recall_server.domain.errors import Invalid, Stale, TaskEnded, TaskNotFound
from recall_server.domain.task import Task
from recall_server.services.tasks import refuse_large_answer
from recall_server.services.tasks.push import PushRequest
from recall_server.storage.store import Transaction
from recall_server.storage.tables.tasks import CONFIGS_MAX, Filter, PushConfig


def _requested(config: TaskPushNotificationConfig) -> PushRequest:
    return PushRequest(
        url=config.url,
        id=config.id,
        token=config.token,
        scheme=config.authentication.scheme,
        credentials=config.authentication.credentials,
    )


def _config(config: PushConfig) -> TaskPushNotificationConfig:
    shown = TaskPushNotificationConfig(id=config.id, task_id=config.task_id, url=config.url)
    if config.scheme:
        shown.authentication.CopyFrom(AuthenticationInfo(scheme=config.scheme))
    return shown


PROTOCOL = "a2a"
PAGE_SIZE = 50
BASE, TURN = "recall.base", "recall.turn"
_STATE_OF = {shown: state for state, shown in wire.STATES.items()}

T = TypeVar("T")


class A2AHandler(RequestHandler):
    """The methods of A2A. Authentication has put the caller into the context; the tasks of others
    are not found. `card_for` returns the card of this server at an address.
    """

    def __init__(
        self, calls: Calls, *, card_for: Callable[[str], AgentCard], wait_s: float
    ) -> None:
        self._services = calls.services
        self._calls = calls
        self._card_for = card_for
        self._wait = timedelta(seconds=wait_s)

    @answered
    async def on_message_send(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> A2ATask | Message:
        caller = _caller(context, params.tenant)
        modes = _modes(params)
        if reviewed := await self._reviewed(caller, params, modes):
            return reviewed
        on_behalf, task = await self._calls.perform(
            caller, PROTOCOL, tasks.SEND_MESSAGE, partial(self._take, caller, params)
        )
        if not params.configuration.return_immediately:
            context.state[TURN].end()  # a call that waits takes no slot of one that works
            try:
                async with asyncio.timeout(self._wait.total_seconds()):
                    task = await self._services.tasks.wait_until_idle(on_behalf, task)
            except TimeoutError:  # it goes on; the caller can ask again
                task = await self._services.tasks.get(on_behalf, task.id)
        return await wire.task(task, params.configuration, modes=modes)

    @streamed
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[A2AEvent]:
        caller = _caller(context, params.tenant)
        modes = _modes(params)
        if reviewed := await self._reviewed(caller, params, modes):
            yield reviewed
            return
        on_behalf, task = await self._calls.perform(
            caller, PROTOCOL, tasks.SEND_MESSAGE, partial(self._take, caller, params)
        )
        yield await wire.task(task, params.configuration, modes=modes)
        if task.status.state.idle:
            return
        async with aclosing(self._services.tasks.watch(on_behalf, task.id, task.events)) as events:
            async for event in events:
                yield await asyncio.to_thread(wire.update, event, modes)
                if event.status and event.status.state.idle:
                    return

    async def _reviewed(
        self, caller: Caller, params: SendMessageRequest, modes: Sequence[str]
    ) -> Message | None:
        """The answer to a message of the skill that reviews; None where it is for a task."""
        message = params.message
        given = None if message.task_id else wire.review_of(message)
        if given is None:
            return None

        def read() -> Arguments:
            checked(message)
            return operation.arguments.parse(given, operation.name)

        operation = reviews.answer_review if "id" in given else reviews.list_reviews
        shown = await self._calls.run(
            caller, PROTOCOL, operation, read=read, present=operation.present
        )
        message_id = self._services.ingest.runtime.new_id("msg")
        return wire.reviewed(shown, message, message_id, modes)

    async def _take(
        self, caller: Caller, params: SendMessageRequest, on_behalf: Context
    ) -> tuple[Context, Task]:
        """Take the message as a new task, or as the answer to the questions of a task. The task is
        watched in the same context.
        """
        message, push = checked(params.message), params.configuration.task_push_notification_config
        services = self._services
        if message.task_id:
            task = await services.tasks.get(on_behalf, message.task_id)
            if message.context_id not in ("", task.context_id):
                raise Invalid("The contextId is not that of the task. Leave it out.")
            if task.status.state.final:
                raise TaskEnded
            refuse_large_answer(message.ByteSize(), services.tasks.answer_bytes_max)
            return on_behalf, await services.tasks.answer(
                on_behalf,
                task.id,
                answer_of(message),
                said=wire.said(message, task.id, task.context_id),
                asked=wire.asked_message,
            )
        also = None
        if push.url:
            request = _requested(push)
            await services.push.check(caller.namespace, request)

            async def also(tx: Transaction, task: Task) -> None:
                await services.push.add(tx, on_behalf, task.id, request, after=task.events)

        return on_behalf, await services.consolidate.start(
            on_behalf,
            request_of(message),
            context_id=message.context_id,
            message=partial(wire.said, message),
            also=also,
        )

    @answered
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> A2ATask:
        validate_history_length(params)
        caller = _caller(context, params.tenant)
        _, task = await self._one_task(caller, tasks.get_task, params.id)
        return await wire.task(task, params)

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

        async def work(on_behalf: Context) -> ListTasksResponse:
            page = await self._services.tasks.page(
                on_behalf, wanted, cursor=params.page_token, limit=size
            )
            on_behalf.entry.counts["tasks"] = len(page.tasks)
            return ListTasksResponse(
                tasks=[
                    await wire.task(task, params, artifacts=params.include_artifacts)
                    for task in page.tasks
                ],
                next_page_token=page.next or "",
                page_size=size,
                total_size=page.total,
            )

        return await self._calls.perform(caller, PROTOCOL, tasks.LIST_TASKS, work)

    @answered
    async def on_cancel_task(
        self, params: CancelTaskRequest, context: ServerCallContext
    ) -> A2ATask:
        caller = _caller(context, params.tenant)
        checked_id(params.id, "id")
        try:
            canceled = await self._calls.perform(
                caller,
                PROTOCOL,
                tasks.CANCEL_TASK,
                lambda on_behalf: self._services.tasks.cancel(on_behalf, params.id),
            )
        except Stale as error:
            raise TaskNotCancelableError(error.message, {"code": error.code}) from None
        return await wire.task(canceled)

    @streamed
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[A2AEvent]:
        caller = _caller(context, params.tenant)
        on_behalf, task = await self._one_task(caller, tasks.SUBSCRIBE_TO_TASK, params.id)
        if task.status.state.final:
            raise TaskEnded
        yield await wire.task(task)
        # The stream stays open while the task waits for an answer, and ends with the task.
        async with aclosing(self._services.tasks.watch(on_behalf, task.id, task.events)) as events:
            async for event in events:
                yield await asyncio.to_thread(wire.update, event)

    async def _one_task(
        self, caller: Caller, operation: Operation, task_id: str
    ) -> tuple[Context, Task]:
        checked_id(task_id, "id")

        async def work(on_behalf: Context) -> tuple[Context, Task]:
            task = await self._services.tasks.get(on_behalf, task_id)
            on_behalf.entry.ids.append(task.id)
            return on_behalf, task

        return await self._calls.perform(caller, PROTOCOL, operation, work)

    @answered
    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        made = await self._calls.perform(
            _caller(context, params.tenant),
            PROTOCOL,
            tasks.CREATE_PUSH_CONFIG,
            lambda on_behalf: self._services.push.configure(
                on_behalf, _task_id(params), _requested(params)
            ),
        )
        return _config(made)

    @answered
    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        caller = _caller(context, params.tenant)

        async def work(on_behalf: Context) -> PushConfig:
            push, task_id = self._services.push, _task_id(params)
            if params.id == task_id:  # 0.3 names none: see `_answered_03`
                page = await push.page(on_behalf, task_id, limit=1, cursor="")
                if page.configs:
                    return page.configs[0]
            return await push.get(on_behalf, task_id, params.id)

        return _config(await self._calls.perform(caller, PROTOCOL, tasks.GET_PUSH_CONFIG, work))

    @answered
    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        caller = _caller(context, params.tenant)
        if params.page_size < 0:
            raise Invalid("page_size must not be negative.")
        limit = min(params.page_size or CONFIGS_MAX, CONFIGS_MAX)
        page = await self._calls.perform(
            caller,
            PROTOCOL,
            tasks.list_push_configs,
            lambda on_behalf: self._services.push.page(
                on_behalf, _task_id(params), limit=limit, cursor=params.page_token
            ),
        )
        return ListTaskPushNotificationConfigsResponse(
            configs=[_config(config) for config in page.configs], next_page_token=page.next or ""
        )

    @answered
    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Deleting an unknown configuration is no error (specification 3.1.10: idempotent)."""
        await self._calls.perform(
            _caller(context, params.tenant),
            PROTOCOL,
            tasks.DELETE_PUSH_CONFIG,
            lambda on_behalf: self._services.push.remove(on_behalf, _task_id(params), params.id),
        )

    @answered
    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        """Return the card, with the skills that the token may use."""
        rights = _caller(context, params.tenant).rights
        card = self._card_for(context.state[BASE])
        if tasks.consolidate_memories.allowed(rights):
            return card
        shown = AgentCard()
        shown.CopyFrom(card)
        # A signature covers the skills; this card is shown to one caller, not published.
        del shown.skills[:], shown.signatures[:]
        return shown


def _caller(context: ServerCallContext, tenant: str) -> Caller:
    """Return the caller. The SDK puts the `tenant` of a path into the context; that of a body is in
    the parameters.
    """
    caller = context.state[CALLER]
    assert isinstance(caller, Caller)
    check_tenant(caller, context.tenant)
    check_tenant(caller, tenant)
    return caller


def check_tenant(caller: Caller, tenant: str) -> None:
    """Raise if a request names another tenant: a `tenant` only routes, and grants nothing."""
    if tenant not in ("", caller.namespace):
        raise translated(TaskNotFound())


def _task_id(
    params: TaskPushNotificationConfig
    | GetTaskPushNotificationConfigRequest
    | ListTaskPushNotificationConfigsRequest
    | DeleteTaskPushNotificationConfigRequest,
) -> str:
    return checked_id(params.task_id, "task_id")


def _modes(params: SendMessageRequest) -> list[str]:
    validate_history_length(params.configuration)
    modes = list(params.configuration.accepted_output_modes)
    if not wire.producible(modes):
        raise UnsupportedMedia("Results are application/json and text/plain. Accept one of them.")
    return modes


class CallContext(DefaultServerCallContextBuilder):
    """Puts the caller that authentication admitted into the context of the SDK's handlers."""

    def __init__(self, base: Callable[[Scope], str]) -> None:
        self._base = base

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        caller = caller_of(request.scope)
        context.state[CALLER] = caller
        context.state[TURN] = turn_of(request.scope)
        context.state[BASE] = self._base(request.scope)
        # The SDK knows the header only, and takes any minor version.
        context.state["headers"][VERSION_HEADER.lower()] = version_of(request)
        check_tenant(caller, request.query_params.get("tenant", ""))
        return context


class RestCallContext(CallContext):
    """The same, for requests that were not checked yet."""

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        check_new_enough(version_of(request))
        check_rest(request)
        return context


def routes(
    handler: A2AHandler, create_task: Endpoint, base: Callable[[Scope], str], streams: Streams
) -> list[BaseRoute]:
    """Return the routes of A2A. JSON-RPC and the plain body of `create_task` share a path: the key
    "jsonrpc" tells them apart. `base` is the address by which a request reached the server.
    """
    rpc = JsonRpcDispatcher(handler, context_builder=CallContext(base), enable_v0_3_compat=True)
    rest = create_rest_routes(handler, context_builder=RestCallContext(base))

    async def post(request: Request) -> ASGIApp:
        if "recall.json" not in request.scope:
            return unreadable("The body is empty. Send a JSON-RPC 2.0 request.")
        body = request.scope["recall.json"]
        if isinstance(body, dict) and "skill" in body and "jsonrpc" not in body:
            return create_task
        try:
            check_call(body, version_of(request))
        except A2AError as error:
            return rpc_error(body, error)
        return await _answered_03(rpc, request, body)

    limited = [Middleware(RewrittenJson, with_whole_numbers), Middleware(streams.limiting)]
    return [
        Route(JSONRPC_PATH, post, methods=["POST"], middleware=limited),
        Route(f"{JSONRPC_PATH}/", post, methods=["POST"], middleware=limited),
        Mount(REST_PATH, Router(rest, redirect_slashes=False), middleware=limited),
    ]


_GET_03 = "tasks/pushNotificationConfig/get"
_DELETE_03 = "tasks/pushNotificationConfig/delete"
_CONFIG_ID_03 = "pushNotificationConfigId"


async def _answered_03(rpc: JsonRpcDispatcher, request: Request, body: Any) -> Response:
    """The answer of the SDK, with what clients of A2A 0.3 need: they ask for the push configuration
    of a task without naming one, and take no answer without a result.
    """
    method = body.get("method") if isinstance(body, dict) else None
    params = body.get("params") if method == _GET_03 else None
    if isinstance(params, dict) and params.get(_CONFIG_ID_03) is None and "id" in params:
        named = {**body, "params": {**params, _CONFIG_ID_03: params["id"]}}
        request = Request(request.scope, _receiving(json.dumps(named).encode()))
    response: Response = await rpc.handle_requests(request)
    if method == _DELETE_03:
        said = json.loads(bytes(response.body))
        if not {"result", "error"} & said.keys():
            return JSONResponse({**said, "result": None})
    return response


def _receiving(body: bytes) -> Any:
    async def receive() -> HttpMessage:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
