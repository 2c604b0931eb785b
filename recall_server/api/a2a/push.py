"""Push configurations as A2A spells them. A secret goes in and is never shown again."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from a2a.server.context import ServerCallContext
from a2a.types import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig,
)

from recall_server.api.arguments import checked_id
from recall_server.api.caller import Caller
from recall_server.api.operations import tasks
from recall_server.api.operations.operation import Operation
from recall_server.domain.audit import AuditEntry
from recall_server.domain.errors import Invalid
from recall_server.services import Services
from recall_server.services.tasks.push import PushPage, PushRequest
from recall_server.storage.tables.push import CONFIGS_MAX, PushConfig


class Perform(Protocol):
    """Runs an operation of A2A and leaves its record in the audit log."""

    async def __call__(
        self,
        context: ServerCallContext,
        operation: Operation,
        work: Callable[[AuditEntry], Awaitable[Any]],
    ) -> Any: ...


def wanted(config: TaskPushNotificationConfig) -> PushRequest:
    return PushRequest(
        url=config.url,
        id=config.id,
        token=config.token,
        scheme=config.authentication.scheme,
        credentials=config.authentication.credentials,
    )


class PushConfigs:
    """Create, get, list and delete."""

    def __init__(self, services: Services, perform: Perform) -> None:
        self._services = services
        self._perform = perform

    async def create(
        self, context: ServerCallContext, caller: Caller, params: TaskPushNotificationConfig
    ) -> TaskPushNotificationConfig:
        async def work(entry: AuditEntry) -> PushConfig:
            return await self._services.push.configure(
                caller.context(entry), checked_id(params.task_id, "task_id"), wanted(params)
            )

        return _shown(await self._perform(context, tasks.CREATE_PUSH_CONFIG, work))

    async def get(
        self,
        context: ServerCallContext,
        caller: Caller,
        params: GetTaskPushNotificationConfigRequest,
    ) -> TaskPushNotificationConfig:
        async def work(entry: AuditEntry) -> PushConfig:
            return await self._services.push.get(
                caller.context(entry), checked_id(params.task_id, "task_id"), params.id
            )

        return _shown(await self._perform(context, tasks.GET_PUSH_CONFIG, work))

    async def list(
        self,
        context: ServerCallContext,
        caller: Caller,
        params: ListTaskPushNotificationConfigsRequest,
    ) -> ListTaskPushNotificationConfigsResponse:
        if params.page_size < 0:
            raise Invalid("page_size must not be negative.")

        async def work(entry: AuditEntry) -> PushPage:
            return await self._services.push.page(
                caller.context(entry),
                checked_id(params.task_id, "task_id"),
                limit=min(params.page_size or CONFIGS_MAX, CONFIGS_MAX),
                cursor=params.page_token,
            )

        page = await self._perform(context, tasks.LIST_PUSH_CONFIGS, work)
        return ListTaskPushNotificationConfigsResponse(
            configs=[_shown(config) for config in page.configs], next_page_token=page.next or ""
        )

    async def delete(
        self,
        context: ServerCallContext,
        caller: Caller,
        params: DeleteTaskPushNotificationConfigRequest,
    ) -> None:
        """Deleting what is not there is no error (specification 3.1.10: idempotent)."""

        async def work(entry: AuditEntry) -> bool:
            return await self._services.push.remove(
                caller.context(entry), checked_id(params.task_id, "task_id"), params.id
            )

        await self._perform(context, tasks.DELETE_PUSH_CONFIG, work)


def _shown(config: PushConfig) -> TaskPushNotificationConfig:
    shown = TaskPushNotificationConfig(id=config.id, task_id=config.task_id, url=config.url)
    if config.scheme:
        shown.authentication.CopyFrom(AuthenticationInfo(scheme=config.scheme))
    return shown
