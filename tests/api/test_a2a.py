"""Another agent sends a text, gets a question and answers it, with the SDK's own client."""

import pytest
from a2a.types import TaskState

from tests.support.a2a_clients import (
    BINDINGS,
    COMPLETED,
    INPUT_REQUIRED,
    LISBON,
    PORTO,
    agent,
    asked,
    at_work,
    got,
    result,
    sent,
    streamed,
)
from tests.support.server import Running

pytestmark = pytest.mark.parametrize("binding", BINDINGS)


async def test_a_transcript_comes_back_as_typed_memories(running: Running, binding: str) -> None:
    token = await running.token()
    async with at_work(running), agent(running, token, binding) as client:
        task = await sent(client, LISBON)

        (memory,) = result(task)["memories"]
        assert (memory["type"], memory["attribute"], memory["value"]) == (
            "fact",
            "lives_in",
            "Lisbon",
        )
        assert memory["source"]["quote"] == "I live in Lisbon."
        assert await got(client, task.id) == task


async def test_a_contradiction_waits_for_its_answer(running: Running, binding: str) -> None:
    token = await running.token()
    async with at_work(running), agent(running, token, binding) as client:
        await sent(client, LISBON)
        paused = await sent(client, PORTO)

        (question,) = asked(paused)
        assert question["existing"][0]["value"] == "Lisbon"
        assert question["new"]["value"] == "Porto"

        done = await sent(
            client,
            {"resolutions": [{"id": question["id"], "choice": "keep_new"}]},
            task_id=paused.id,
        )
        assert done.id == paused.id
        outcome = result(done)
        assert [memory["value"] for memory in outcome["memories"]] == ["Porto"]
        assert outcome["superseded"] == [question["existing"][0]["memory_id"]]
        assert outcome["resolutions"][0]["choice"] == "keep_new"


async def test_a_stream_begins_with_the_task_and_ends_with_it(
    running: Running, binding: str
) -> None:
    token = await running.token()
    async with at_work(running), agent(running, token, binding, streaming=True) as client:
        first = await streamed(client, LISBON)

        assert first[0].HasField("task")
        kinds = [one.WhichOneof("payload") for one in first[1:]]
        assert kinds == ["status_update", "artifact_update", "status_update"]
        assert first[1].status_update.status.state == TaskState.TASK_STATE_WORKING
        assert first[-1].status_update.status.state == COMPLETED

        second = await streamed(client, PORTO)
        assert second[-1].status_update.status.state == INPUT_REQUIRED
