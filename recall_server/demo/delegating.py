"""The A2A scene: an agent delegates, is asked, another one answers, and the book knows who."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.helpers import get_data_parts, new_data_part, new_text_part
from a2a.types import Message, Part, Role, SendMessageRequest, Task, TaskState

from recall_server.demo.agent import READ_S, Agent
from recall_server.demo.page import Page, cited, fact, shown

Json = dict[str, Any]

# People who are in nobody's conversation, so that the scene is the same for any text.
FIRST = "Nadia: I live in Lisbon. I like fado."
SECOND = "Nadia: I live in Porto."


async def delegate(page: Page, address: str, asker: str, answerer: str, reader: Agent) -> None:
    """Two agents of one namespace, each with a token of its own, and the history read over MCP."""
    page.heading(
        "Delegating",
        "Another agent hands texts over by A2A and gets typed memories back. Where one contradicts "
        "what is known, and no rule may settle it, the task pauses and asks. The answer may come "
        "weeks later, after a restart, from another agent.",
    )
    async with _arriving(address, asker) as client:
        first = await _sent(client, new_text_part(FIRST))
        for memory in _result(first)["memories"]:
            page.line(f"  {memory['type']:<12}{shown(memory['text'], page.width - 14)}")
        paused = await _sent(client, new_data_part({"text": SECOND, "topic": "people"}))
    page.line(f'"{SECOND}" : {TaskState.Name(paused.status.state)}', style="bold")
    if paused.status.state != TaskState.TASK_STATE_INPUT_REQUIRED:
        return
    (asked,) = get_data_parts(paused.status.message.parts)
    resolutions = []
    for question in asked["contradictions"]:
        for title, side in [
            *(("known", s) for s in question["existing"]),
            ("new", question["new"]),
        ]:
            page.line(f"  {title:<6}{shown(side['text'], 40):<42}{cited(side['source'], 50)}")
        page.line(f"  {question['reason']} Recommended: {question['recommended']}.")
        resolutions.append({"id": question["id"], "choice": question["recommended"]})
    async with _arriving(address, answerer) as client:
        done = await _sent(client, new_data_part({"resolutions": resolutions}), paused.id)
    chosen = ", ".join(one["choice"] for one in resolutions)
    page.line(f"Another agent answers {chosen}: {TaskState.Name(done.status.state)}", style="bold")
    for memory in _result(done)["memories"]:
        await _history(page, reader, memory["id"])


async def _history(page: Page, reader: Agent, memory_id: str) -> None:
    told = await reader.call("inspect_memories", memory_id=memory_id)
    for memory in told["memories"]:
        decided = ", ".join(
            f"{one['choice']} by {one['decided_by']}" for one in memory["decisions"]
        )
        page.line(f"  {memory['status']:<12}{fact(memory, 40):<42}{decided}")


@asynccontextmanager
async def _arriving(address: str, token: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(headers=headers, timeout=READ_S, trust_env=False) as http:
        card = await A2ACardResolver(http, address).get_agent_card()
        yield ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)


async def _sent(client: Client, part: Part, task_id: str = "") -> Task:
    message = Message(
        message_id=uuid.uuid4().hex, role=Role.ROLE_USER, parts=[part], task_id=task_id
    )
    answers = [one async for one in client.send_message(SendMessageRequest(message=message))]
    return answers[-1].task


def _result(task: Task) -> Json:
    (found,) = [data for artifact in task.artifacts for data in get_data_parts(artifact.parts)]
    result: Json = found
    return result
