"""What the A2A standard requires of the operations, on both bindings."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.a2a_bindings import (
    INVALID,
    MEDIA,
    NOT_CANCELABLE,
    NOT_FOUND,
    UNSUPPORTED,
    Json,
    Wire,
    fault,
    message,
    violations,
)
from tests.support.a2a_clients import LISBON, PORTO, at_work
from tests.support.engines import on_sqlite
from tests.support.runtime import Clock
from tests.support.server import Running

pytestmark = on_sqlite

SUBMITTED, WORKING = "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"
ASKS, DONE = "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"
CANCELED = "TASK_STATE_CANCELED"
KEEP_NEW: Json = {"text": "keep_new"}


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
async def wire(running: Running, request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    """Yield a client of Alice's namespace for each binding."""
    async with running.http(await running.token()) as http:
        yield Wire(http, request.param)


def state(task: Json) -> str:
    found: str = task["status"]["state"]
    return found


def kinds(events: list[Json]) -> list[str]:
    return [next(iter(event)) for event in events]


def data(parts: list[Json]) -> Json:
    found: list[Json] = [part["data"] for part in parts if "data" in part]
    assert len(found) == 1
    return found[0]


async def test_a_blocking_call_waits_for_the_end_and_another_does_not(
    running: Running, wire: Wire
) -> None:
    at_once = await wire.task(now=True)  # No worker runs.
    async with at_work(running):
        waited = (await wire.result("SendMessage", message=message({"text": "User: I ski."})))[
            "task"
        ]

    assert state(at_once) == SUBMITTED
    assert state(waited) == DONE


async def test_the_server_chooses_the_id_of_a_task(running: Running, wire: Wire) -> None:
    refused = await wire.fault("SendMessage", message=message(taskId="task_of_mine"))
    made = [await wire.task() for _ in range(2)]

    assert refused == NOT_FOUND
    assert len({task["id"] for task in made}) == 2
    assert (await wire.result("ListTasks"))["totalSize"] == 2


async def test_a_context_is_made_kept_and_inferred(running: Running, wire: Wire) -> None:
    first = await wire.task()
    kept = await wire.task(contextId="a context of mine")
    async with at_work(running):
        paused = await wire.paused()
        answered = await wire.task(KEEP_NEW, now=False, taskId=paused["id"])

    assert first["contextId"]
    assert kept["contextId"] == "a context of mine"
    assert [one["contextId"] for one in kept["history"]] == ["a context of mine"]
    assert (answered["id"], answered["contextId"]) == (paused["id"], paused["contextId"])
    assert {one["contextId"] for one in answered["history"]} == {paused["contextId"]}


async def test_a_message_with_another_context_than_its_task_is_refused(
    running: Running, wire: Wire
) -> None:
    async with at_work(running):
        paused = await wire.paused()
        wrong = message(KEEP_NEW, taskId=paused["id"], contextId="another")
        refused = await wire.fault("SendMessage", message=wrong)
        untouched = await wire.result("GetTask", id=paused["id"])
        right = message(KEEP_NEW, taskId=paused["id"], contextId=paused["contextId"])
        taken = await wire.result("SendMessage", message=right)

    assert refused == INVALID
    assert untouched == paused
    assert state(taken["task"]) == DONE


async def test_a_message_to_an_ended_task_is_refused(running: Running, wire: Wire) -> None:
    async with at_work(running):
        done = await wire.task(now=False)
    told = message(KEEP_NEW, taskId=done["id"])

    assert await wire.fault("SendMessage", message=told) == UNSUPPORTED
    assert await wire.fault("SendStreamingMessage", message=told) == UNSUPPORTED
    assert await wire.result("GetTask", id=done["id"]) == done


async def test_media_that_nobody_reads_are_refused(running: Running, wire: Wire) -> None:
    unread: list[Json] = [
        {"raw": "aGVyb24="},
        {"url": "https://example.com/heron.png"},
        {"text": "heron", "mediaType": "image/png"},
    ]
    for part in unread:
        assert await wire.fault("SendMessage", message=message(part)) == MEDIA, part
    taken = {"text": LISBON, "mediaType": "text/plain"}

    assert state(await wire.task(taken)) == SUBMITTED


async def test_results_come_in_the_media_that_the_client_accepts(
    running: Running, wire: Wire
) -> None:
    async with at_work(running):
        for modes, found in (
            (["text/plain"], {"text"}),
            (["application/json"], {"data"}),
            (["image/png", "text/*"], {"text"}),
            (["*/*"], {"text", "data"}),
            ([], {"text", "data"}),
        ):
            sent = await wire.result(
                "SendMessage", message=message(), configuration={"acceptedOutputModes": modes}
            )
            (artifact,) = sent["task"]["artifacts"]
            parts = {key for part in artifact["parts"] for key in ("text", "data") if key in part}
            assert parts == found, modes
    refused = await wire.fault(
        "SendMessage", message=message(), configuration={"acceptedOutputModes": ["image/png"]}
    )

    assert refused == MEDIA


async def test_no_more_history_is_told_than_was_asked_for(running: Running, wire: Wire) -> None:
    async with at_work(running):
        paused = await wire.paused()
        done = await wire.task(KEEP_NEW, now=False, taskId=paused["id"])

    said = [one["messageId"] for one in done["history"]]
    for length, count in ((None, 3), (0, 0), (1, 1), (2, 2), (99, 3)):
        asked: Json = {} if length is None else {"historyLength": length}
        got = await wire.result("GetTask", id=done["id"], **asked)
        listed = await wire.result("ListTasks", contextId=done["contextId"], **asked)
        for task in (got, listed["tasks"][0]):
            told = [one["messageId"] for one in task.get("history", [])]
            assert told == said[3 - count :], length
    for operation, params in (("GetTask", {"id": done["id"]}), ("ListTasks", {})):
        assert await wire.fault(operation, **params, historyLength=-1) == INVALID
    sent = await wire.result(
        "SendMessage",
        message=message(),
        configuration={"historyLength": 0, "returnImmediately": True},
    )
    assert "history" not in sent["task"]


async def test_the_history_has_what_was_asked_before_what_was_answered(
    running: Running, wire: Wire
) -> None:
    async with at_work(running):
        paused = await wire.paused()
        unclear = await wire.task({"text": "hm"}, now=False, taskId=paused["id"])
        done = await wire.task(KEEP_NEW, now=False, taskId=paused["id"])

    asked = [task["status"]["message"] for task in (paused, unclear)]
    assert "problem" in data(asked[1]["parts"])
    assert [one["role"] for one in done["history"]] == [
        "ROLE_USER",
        "ROLE_AGENT",
        "ROLE_USER",
        "ROLE_AGENT",
        "ROLE_USER",
    ]
    # The questions are in the history once. After that, only the reason for asking again is.
    first, again = done["history"][1::2]
    assert first == asked[0]
    assert again["messageId"] == asked[1]["messageId"]
    assert again["parts"] == [
        {"text": data(asked[1]["parts"])["problem"], "mediaType": "text/plain"}
    ]
    assert [one["parts"] for one in done["history"][::2]] == [
        [{"text": PORTO}],
        [{"text": "hm"}],
        [KEEP_NEW],
    ]


async def test_a_task_is_told_in_the_words_of_the_protocol(
    running: Running, wire: Wire, clock: Clock
) -> None:
    clock.pass_(timedelta(microseconds=123_456))
    async with at_work(running):
        paused = await wire.paused()

    status = paused["status"]
    assert status["timestamp"] == "2026-03-01T12:00:00.123Z"
    assert status["message"]["role"] == "ROLE_AGENT"
    assert (status["message"]["taskId"], status["message"]["contextId"]) == (
        paused["id"],
        paused["contextId"],
    )
    assert len(data(status["message"]["parts"])["contradictions"]) == 1
    assert any("keep_new" in part.get("text", "") for part in status["message"]["parts"])


async def test_missing_fields_are_named_and_unknown_ones_ignored(
    running: Running, wire: Wire
) -> None:
    whole = message()
    for name in ("messageId", "role", "parts"):
        lacking = {key: value for key, value in whole.items() if key != name}
        answer = await wire.answer("SendMessage", message=lacking)
        assert fault(answer) == INVALID
        assert {field.partition(".")[0] for field in violations(answer)} == {"message"}, name
    assert await wire.fault("SendMessage", metadata={}) == INVALID

    assert state(await wire.task(inventedLater={"a": 1})) == SUBMITTED


async def test_a_stream_begins_with_the_task_and_closes_where_it_rests(
    running: Running, wire: Wire
) -> None:
    async with at_work(running):
        await wire.task(now=False)
        async with wire.stream("SendStreamingMessage", message=message({"text": PORTO})) as stream:
            begun = await stream.rest()
        task = begun[0]["task"]
        follow = message(KEEP_NEW, taskId=task["id"])
        async with wire.stream("SendStreamingMessage", message=follow) as stream:
            ended = await stream.rest()
        final = await wire.result("GetTask", id=task["id"])

    assert kinds(begun) == ["task", "statusUpdate", "statusUpdate"]
    assert state(begun[1]["statusUpdate"]) == WORKING
    assert state(begun[-1]["statusUpdate"]) == ASKS
    assert kinds(ended) == ["task", "artifactUpdate", "statusUpdate"]
    assert state(ended[0]["task"]) == WORKING
    assert ended[1]["artifactUpdate"]["artifact"] == final["artifacts"][0]
    assert state(ended[-1]["statusUpdate"]) == state(final) == DONE
    assert {event["contextId"] for one in begun[1:] for event in one.values()} == {
        task["contextId"]
    }


async def test_every_subscriber_hears_the_same_and_one_that_leaves_disturbs_none(
    running: Running, wire: Wire
) -> None:
    task = await wire.task()
    async with (
        wire.stream("SubscribeToTask", id=task["id"]) as first,
        wire.stream("SubscribeToTask", id=task["id"]) as second,
    ):
        begun = [await stream.next() for stream in (first, second)]
        async with wire.stream("SubscribeToTask", id=task["id"]) as third:
            await third.next()
        async with at_work(running):
            heard = [await stream.rest() for stream in (first, second)]

    assert begun == [{"task": task}] * 2
    assert heard[0] == heard[1]
    assert kinds(heard[0]) == ["statusUpdate", "artifactUpdate", "statusUpdate"]
    assert state(heard[0][-1]["statusUpdate"]) == DONE


async def test_a_subscription_stays_through_a_question_and_ends_with_the_task(
    running: Running, wire: Wire
) -> None:
    async with at_work(running):
        paused = await wire.paused()
        async with wire.stream("SubscribeToTask", id=paused["id"]) as stream:
            assert await stream.next() == {"task": paused}
            await wire.task(KEEP_NEW, taskId=paused["id"])
            heard = await stream.rest()

    assert kinds(heard) == ["statusUpdate", "artifactUpdate", "statusUpdate"]
    assert state(heard[-1]["statusUpdate"]) == DONE
    assert await wire.fault("SubscribeToTask", id=paused["id"]) == UNSUPPORTED
    assert await wire.fault("SubscribeToTask", id="task_unheard_of") == NOT_FOUND


async def test_a_task_is_canceled_once_and_remembers_nothing(running: Running, wire: Wire) -> None:
    async with at_work(running):
        await wire.task(now=False)
        paused = await wire.task({"text": PORTO}, now=False)
        canceled = await wire.result("CancelTask", id=paused["id"])
        again = await wire.fault("CancelTask", id=paused["id"])
        asked = await wire.task({"text": PORTO}, now=False)

    assert (state(canceled), again) == (CANCELED, NOT_CANCELABLE)
    assert await wire.result("GetTask", id=paused["id"]) == canceled
    assert await wire.fault("CancelTask", id="task_unheard_of") == NOT_FOUND
    assert state(asked) == ASKS  # The state is as before, since Porto had not been stored.


async def test_tasks_are_listed_newest_change_first_page_by_page(
    running: Running, wire: Wire, clock: Clock
) -> None:
    made = []
    for _ in range(5):
        clock.pass_(timedelta(seconds=1))
        made.append((await wire.task())["id"])
    clock.pass_(timedelta(seconds=1))
    await wire.result("CancelTask", id=made[0])
    expected = [made[0], *reversed(made[1:])]

    found: list[str] = []
    token, pages = "", 0
    while pages == 0 or token:
        page = await wire.result("ListTasks", pageSize=2, pageToken=token)
        assert (page["totalSize"], page["pageSize"]) == (5, 2)
        found += [task["id"] for task in page["tasks"]]
        token, pages = page["nextPageToken"], pages + 1

    assert found == expected
    assert (pages, token) == (3, "")
    whole = await wire.result("ListTasks")
    assert [task["id"] for task in whole["tasks"]] == expected
    assert (whole["pageSize"], whole["nextPageToken"]) == (50, "")


async def test_listed_tasks_can_be_chosen_by_context_state_and_time(
    running: Running, wire: Wire, clock: Clock
) -> None:
    async with at_work(running):
        old = await wire.task(now=False, contextId="first")
    clock.pass_(timedelta(seconds=5))
    new = await wire.task(contextId="second")

    async def ids(**wanted: Any) -> list[str]:
        page = await wire.result("ListTasks", **wanted)
        assert page["totalSize"] == len(page["tasks"])
        assert all("artifacts" not in task for task in page["tasks"])
        return [task["id"] for task in page["tasks"]]

    since = datetime.fromisoformat(new["status"]["timestamp"])
    later = (since + timedelta(seconds=1)).isoformat().replace("+00:00", "Z")
    assert await ids() == [new["id"], old["id"]]
    assert await ids(contextId="first") == [old["id"]]
    assert await ids(contextId="third") == []
    assert await ids(status=DONE) == [old["id"]]
    assert await ids(status="TASK_STATE_REJECTED") == []
    assert await ids(statusTimestampAfter=new["status"]["timestamp"]) == [new["id"]]
    assert await ids(statusTimestampAfter=later) == []
    asked = {"includeArtifacts": True if wire.binding == "JSONRPC" else "true"}
    shown = await wire.result("ListTasks", **asked)
    assert [[one["artifactId"] for one in task["artifacts"]] for task in shown["tasks"]] == [
        [],
        [one["artifactId"] for one in old["artifacts"]],
    ]
