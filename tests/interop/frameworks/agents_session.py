"""The session of the OpenAI Agents SDK on SQLite and ours get the same calls and give the same
answers, and its runner continues a conversation.
"""

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Session, SQLiteSession, Usage
from agents.run import RunConfig
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from recall_client import AsyncRecallClient
from recall_client.openai_agents import RecallSession

ITEMS: list[Any] = [
    {"role": "user", "content": "I live in Lisbon.\n\nSince March: "},
    {"id": "m1", "type": "message", "role": "assistant", "status": "completed",
     "content": [{"type": "output_text", "text": "Noted.", "annotations": []}]},
    {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}", "id": "fc"},
    {"type": "function_call_output", "call_id": "c", "output": "17 °C"},
    {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
]  # fmt: skip


async def both_agree(client: AsyncRecallClient) -> None:
    ours, theirs = RecallSession("same", client), SQLiteSession("same", ":memory:")
    assert isinstance(ours, Session)
    for session in (ours, theirs):
        await session.add_items(copy.deepcopy(ITEMS[:2]))
        await session.add_items([])
        await session.add_items(copy.deepcopy(ITEMS[2:]))
    for limit in (None, 1, 3, 99):
        assert await ours.get_items(limit) == await theirs.get_items(limit), limit
    for _ in range(2):
        assert await ours.pop_item() == await theirs.pop_item()
    assert await ours.get_items() == await theirs.get_items()
    for session in (ours, theirs):
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None


class Counting(Model):
    """A model that answers with the number of items that it got."""

    async def get_response(self, *given: Any, **named: Any) -> ModelResponse:
        items: Any = named["input"] if "input" in named else given[1]
        count = 1 if isinstance(items, str) else len(items)
        text = ResponseOutputText(text=f"{count} items", type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id="msg", content=[text], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def a_runner_goes_on(client: AsyncRecallClient) -> None:
    agent = Agent(name="counter", model=Counting())
    config = RunConfig(tracing_disabled=True)
    first = await Runner.run(
        agent, "I live in Rome.", session=RecallSession("run", client), run_config=config
    )
    # This is another object, as in another process.
    session = RecallSession("run", client)
    second = await Runner.run(agent, "And you?", session=session, run_config=config)
    assert (first.final_output, second.final_output) == ("1 items", "3 items")
    assert len(await session.get_items()) == 4
    texts = (await client.list_texts(session_id="run")).texts
    for text in texts:
        await client.wait_for_job(text.job_id)
    found = await client.inspect_memories()
    assert [one.value for one in found.memories] == ["Rome"], found


async def main() -> None:
    async with AsyncRecallClient.from_env() as client:
        await both_agree(client)
        print("ok openai-agents: every method as the session on SQLite")
        await a_runner_goes_on(client)
        print("ok openai-agents: a runner goes on, and memories are made of what was said")


if __name__ == "__main__":
    asyncio.run(main())
