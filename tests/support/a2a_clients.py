"""The SDK's own A2A client with a token, and the messages that tests send with it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.helpers import get_data_parts, new_data_part, new_text_part
from a2a.types import (
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
)

from recall_server.bootstrap import working
from tests.support.server import WITHIN_S, Running

Json = dict[str, Any]

BINDINGS = ("JSONRPC", "HTTP+JSON")
COMPLETED = TaskState.TASK_STATE_COMPLETED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED

LISBON = "User: I live in Lisbon."
PORTO = "User: I live in Porto."


class Reachable(Protocol):
    """A server, in this process or another."""

    @property
    def address(self) -> str: ...


@asynccontextmanager
async def agent(
    at: Reachable, token: str, binding: str = "JSONRPC", *, streaming: bool = False
) -> AsyncIterator[Client]:
    """Yield a client that has read the card, over one binding."""
    async with httpx.AsyncClient(
        headers={"Authorization": f"Bearer {token}"},
        timeout=WITHIN_S,
        verify=False,
        trust_env=False,
    ) as http:
        card = await A2ACardResolver(http, at.address).get_agent_card()
        config = ClientConfig(
            httpx_client=http, streaming=streaming, supported_protocol_bindings=[binding]
        )
        client = ClientFactory(config).create(card)
        yield client


@asynccontextmanager
async def at_work(running: Running) -> AsyncIterator[None]:
    """Run the worker of the application during the test."""
    async with working(running.application):
        yield


def said(*parts: str | Json, task_id: str = "", **given: Any) -> SendMessageRequest:
    """Return a message of texts and data."""
    made: list[Part] = [
        new_text_part(part) if isinstance(part, str) else new_data_part(part) for part in parts
    ]
    configuration = SendMessageConfiguration(**given.pop("configuration", {}))
    return SendMessageRequest(
        message=Message(
            message_id=uuid4().hex, role=Role.ROLE_USER, parts=made, task_id=task_id, **given
        ),
        configuration=configuration,
    )


async def sent(client: Client, *parts: str | Json, task_id: str = "", **given: Any) -> Task:
    """Return the task of the answer to a message."""
    answers = [
        answer async for answer in client.send_message(said(*parts, task_id=task_id, **given))
    ]
    assert answers[-1].HasField("task"), answers
    return answers[-1].task


async def streamed(
    client: Client, *parts: str | Json, task_id: str = "", **given: Any
) -> list[StreamResponse]:
    return [one async for one in client.send_message(said(*parts, task_id=task_id, **given))]


async def got(client: Client, task_id: str, **given: Any) -> Task:
    return await client.get_task(GetTaskRequest(id=task_id, **given))


def asked(task: Task) -> list[Json]:
    """Return the questions of a paused task."""
    assert task.status.state == INPUT_REQUIRED, task
    (data,) = get_data_parts(task.status.message.parts)
    questions: list[Json] = data["contradictions"]
    return questions


def result(task: Task) -> Json:
    """Return the result of a completed task."""
    assert task.status.state == COMPLETED, task
    (found,) = task.artifacts
    (data,) = get_data_parts(found.parts)
    assert isinstance(data, dict)
    return data
