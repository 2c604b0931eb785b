"""A token that is limited to a part of a namespace sees and changes nothing of the rest."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from recall_server.domain.memory import MemoryType
from tests.support.a2a_bindings import Wire, message
from tests.support.a2a_clients import at_work
from tests.support.limited_tokens import code, data, limited
from tests.support.server import Running

WORK, HOME = "work", "home"
LISBON, PORTO = "Ann: I live in Lisbon.", "Ann: I live in Porto."
HERON, OTTER = "Bea: I prefer the heron.", "Bea: I prefer the otter."


AT_WORK = limited(topics=frozenset({WORK}))
AS_PLANNER = limited(agent_id="planner")
PREFERENCES = limited(types=frozenset({MemoryType.PREFERENCE}))


async def _found(http: httpx2.AsyncClient, query: str, **given: Any) -> set[str]:
    return {
        hit["text"]
        for hit in (await data(http, "search_memories", query=query, **given))["results"]
    }


async def _topics(http: httpx2.AsyncClient) -> set[str]:
    page = await data(http, "inspect_memories", limit=50)
    assert page["total"] == len(page["memories"])
    return {memory["topic"] for memory in page["memories"]}


@pytest.fixture
async def ann(running: Running) -> AsyncIterator[httpx2.AsyncClient]:
    """Make Alice's namespace: memories of two topics and two agents."""
    async with running.http(await running.token("alice")) as http:
        for text, topic, agent in (
            (LISBON, HOME, "planner"),
            (HERON, HOME, ""),
            (OTTER.replace("Bea", "Cid"), WORK, "planner"),
            ("Cid: I work at the harbour.", WORK, ""),
        ):
            await data(http, "store_memory", text=text, topic=topic, agent_id=agent)
        await running.extract()
        yield http


async def test_reading_shows_its_topics_only(running: Running, ann: httpx2.AsyncClient) -> None:
    """The token finds only its topics: by words and vectors, in lists, histories and counts."""
    await data(ann, "store_memory", text="Dan: The lighthouse is red.", topic=HOME)
    everything = await data(ann, "get_memory_stats")
    lisbon = (await data(ann, "inspect_memories", topic=HOME))["memories"][0]["id"]
    async with running.http(await running.token("alice", AT_WORK)) as http:
        for mode in ("recall", "keyword", "vector", "hybrid"):
            for query in ("Lisbon heron lighthouse", "harbour otter", "Where does Ann live?"):
                texts = await _found(http, query, mode=mode)
                assert all(text.startswith("Cid") for text in texts), texts
        assert len(await _found(http, "harbour otter")) == 2
        assert await _topics(http) == {WORK}
        assert (await data(http, "inspect_memories", topic=HOME))["total"] == 0
        stats = await data(http, "get_memory_stats")
        hidden = await code(http, "inspect_memories", memory_id=lisbon)
        own = (await data(http, "inspect_memories"))["memories"][0]["id"]
        assert (await data(http, "inspect_memories", memory_id=own))["total"] == 1

    assert (stats["total"], stats["pending_extractions"]) == (2, 0)
    assert (everything["total"], everything["pending_extractions"]) == (4, 1)
    assert hidden == "MEMORY_NOT_FOUND"
    assert await _topics(ann) == {WORK, HOME}


async def test_nothing_is_written_forgotten_or_replaced_elsewhere(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    """Neither a call of the token nor the background work that follows it changes another topic."""
    before = await data(ann, "inspect_memories", topic=HOME)
    async with running.http(await running.token("alice", AT_WORK)) as http:
        assert await code(http, "store_memory", text=PORTO, topic=HOME) == "OUT_OF_REACH"
        assert await code(http, "store_memory", text=PORTO) == "OUT_OF_REACH"
        assert await code(http, "consolidate_memories", topic=HOME) == "OUT_OF_REACH"
        for memory in before["memories"]:
            answer = await code(http, "delete_memory", memory_id=memory["id"])
            assert answer == "MEMORY_NOT_FOUND"
        await data(http, "store_memory", text="Ann: I no longer live in Lisbon. I live in Porto.",
                   topic=WORK)  # fmt: skip
        await running.extract()
        assert "Porto" in str(await _found(http, "Porto"))

    assert await data(ann, "inspect_memories", topic=HOME) == before
    # The positive control: a token without a limit replaces the memory of the other topic.
    await data(ann, "store_memory", text="Ann: I no longer live in Lisbon. I live in Faro.")
    await running.extract()
    assert "Lisbon" not in str(await data(ann, "inspect_memories", topic=HOME))


async def test_an_agents_token_signs_what_it_writes_and_reads_its_own_only(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    async with running.http(await running.token("alice", AS_PLANNER)) as http:
        assert await _found(http, "Lisbon heron harbour otter") == {
            "Ann lives in Lisbon.",
            "Cid prefers the otter.",
        }
        assert (await data(http, "get_memory_stats"))["total"] == 2
        refused = await code(http, "store_memory", text=PORTO, agent_id="painter")
        await data(http, "store_memory", text="Eve: I collect stamps.", topic="fun")
        assert "stamps" in str(await _found(http, "stamps"))
        await running.extract()
        assert "stamps" in str(await _found(http, "stamps"))

    assert refused == "OUT_OF_REACH"
    async with running.http(await running.token("alice", limited(agent_id="painter"))) as other:
        assert await _found(other, "stamps Lisbon heron") == set()


async def test_a_token_for_types_sees_these_and_nothing_that_has_none(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    await data(ann, "store_memory", text="Fay: I prefer the swan.", topic=HOME)
    async with running.http(await running.token("alice", PREFERENCES)) as http:
        page = await data(http, "inspect_memories")
        found = await data(http, "search_memories", query="heron otter swan harbour Lisbon")
        stats = await data(http, "get_memory_stats")
        refused = await code(http, "consolidate_memories", topic=HOME)

    assert {memory["type"] for memory in page["memories"]} == {"preference"}
    assert {hit["type"] for hit in found["results"]} == {"preference"}
    assert stats["total"] == stats["by_type"]["preference"] == page["total"] > 0
    assert (stats["pending_extractions"], refused) == (0, "OUT_OF_REACH")
    assert "swan" in str(await data(ann, "search_memories", query="swan"))


async def test_tasks_and_questions_of_other_topics_are_not_there(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    """Both bindings and the plain routes hide them, and a task that shows two topics is hidden
    too.
    """
    async with running.http(await running.token("alice", AT_WORK)) as http, at_work(running):
        all_, own = Wire(ann), Wire(http)
        home = await all_.task({"data": {"text": PORTO, "topic": HOME}}, now=False)
        mixed = await all_.task({"data": {"text": PORTO, "topic": WORK}}, now=False)
        mine = await own.task({"data": {"text": PORTO, "topic": WORK}}, now=False)
        states = [one["status"]["state"].removeprefix("TASK_STATE_") for one in (home, mixed, mine)]
        assert states == ["INPUT_REQUIRED", "INPUT_REQUIRED", "COMPLETED"]

        assert (await all_.result("ListTasks"))["totalSize"] == 3
        listed = await own.result("ListTasks")
        assert [task["id"] for task in listed["tasks"]] == [mine["id"]]
        assert listed["totalSize"] == 1
        assert (await http.get(f"/a2a/{mine['id']}")).status_code == 200
        for task in (home, mixed):
            for operation in ("GetTask", "CancelTask", "SubscribeToTask"):
                assert await own.fault(operation, id=task["id"]) == "TASK_NOT_FOUND"
            answer = message({"text": "keep_new"}, taskId=task["id"])
            assert await own.fault("SendMessage", message=answer) == "TASK_NOT_FOUND"
            assert (await http.get(f"/a2a/{task['id']}")).status_code == 404

        questions = (await ann.get("/v1/conflicts")).json()["conflicts"]
        assert len(questions) == 2
        assert (await http.get("/v1/conflicts")).json() == {"conflicts": []}
        for question in questions:
            body = {"id": question["id"], "choice": "keep_new"}
            assert (await http.post("/v1/conflicts", json=body)).status_code == 404
        body = {"id": questions[0]["id"], "choice": "keep_new"}
        assert (await ann.post("/v1/conflicts", json=body)).status_code == 200


async def test_a_merge_stays_within_what_its_token_reaches(running: Running) -> None:
    async with (
        running.http(await running.token("alice")) as ann,
        running.http(await running.token("alice", AS_PLANNER)) as http,
        at_work(running),
    ):
        for text, agent in (
            ("Gus: I prefer the black tea.", "planner"),
            ("Gus: I prefer the black coffee.", "painter"),
        ):
            await data(ann, "store_memory", text=text, topic=WORK, agent_id=agent)
        while (await data(ann, "get_memory_stats"))["pending_extractions"]:
            pass
        given = {"topic": WORK, "similarity_threshold": 0.0, "dry_run": True}
        narrow = await data(http, "consolidate_memories", **given)
        wide = await data(ann, "consolidate_memories", **given)

    assert (narrow["groups_found"], wide["groups_found"]) == (0, 1)
