"""Containers are parts of a namespace, and a token can be limited to some of them."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import Rights, Scope
from recall_server.services.auth import TokenRequest
from tests.support.a2a_bindings import HOOK, Wire, message
from tests.support.a2a_clients import at_work
from tests.support.limited_tokens import Json, code, data, limited, told
from tests.support.server import Running
from tests.support.transfer import records, taken_in

RED, BLUE = "projects/red", "chat:Blue-7"
LISBON, PORTO = "Ann: I live in Lisbon.", "Ann: I live in Porto."
HERON, OTTER, SWAN = (f"Bea: I prefer the {one}." for one in ("heron", "otter", "swan"))
IN_RED = limited(containers=frozenset({RED}))
IN_BOTH = limited(containers=frozenset({RED, BLUE}))
LOOSE = limited(containers=frozenset({""}))
MODES = ("recall", "keyword", "vector", "hybrid")


async def found(http: httpx2.AsyncClient, query: str, **given: Any) -> list[Json]:
    answer = await data(http, "search_memories", query=query, limit=50, **given)
    hits: list[Json] = answer["results"]
    return hits


async def listed(http: httpx2.AsyncClient, **given: Any) -> list[Json]:
    page = await data(http, "inspect_memories", limit=50, **given)
    assert page["total"] == len(page["memories"])
    memories: list[Json] = page["memories"]
    return memories


def rooms(memories: list[Json]) -> set[str | None]:
    return {one["container"] for one in memories}


@pytest.fixture
async def ann(running: Running) -> AsyncIterator[httpx2.AsyncClient]:
    """Fill Alice's namespace: memories and a turn in two containers, and in none."""
    async with running.http(await running.token("alice")) as http:
        for text, room in (
            (f"{HERON}\nBea: The quay is long.", RED),
            (f"{OTTER}\nBea: The tower is tall.", BLUE),
            (f"{SWAN}\nBea: The path is wide.", ""),
        ):
            await data(http, "store_memory", text=text, container=room, session_id="s")
        await running.extract()
        yield http


@asynccontextmanager
async def as_(running: Running, wanted: TokenRequest) -> AsyncIterator[httpx2.AsyncClient]:
    async with running.http(await running.token("alice", wanted)) as http:
        yield http


# --- reading ---


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        (IN_RED, "heron quay"),
        (IN_BOTH, "heron otter quay tower"),
        (LOOSE, "path swan"),
        (limited(containers=frozenset({"", RED})), "heron path quay swan"),
        (limited(containers=frozenset({"projects"})), ""),
        (limited(containers=frozenset({RED.upper()})), ""),
        (limited(containers=frozenset({RED}), agent_id="planner"), ""),
        (limited(), "heron otter path quay swan tower"),
    ],
)
async def test_reading_shows_its_containers_only(
    running: Running, ann: httpx2.AsyncClient, wanted: TokenRequest, seen: str
) -> None:
    """Names must be equal. The rule holds in every mode of search, with neighbours and reasons, in
    lists, in counts and in histories. The last case is the positive control.
    """
    everything = await listed(ann)
    words = set(seen.split())
    async with as_(running, wanted) as http:
        for mode in MODES:
            query = "Bea heron otter swan quay tower path"
            for given in ({}, {"neighbours": 5, "explain": True}):
                hits = await found(http, query, mode=mode, **given)
                shown = set(re.findall(r"heron|otter|swan|quay|tower|path", str(hits)))
                assert shown == words, mode
        memories = await listed(http)
        assert set(re.findall(r"heron|otter|swan", str(memories))) == words & {
            *("heron", "otter", "swan"),
        }
        assert (await data(http, "get_memory_stats"))["total"] == len(memories)
        for memory in everything:
            answer = await told(http, "inspect_memories", memory_id=memory["id"])
            if memory in memories:
                assert answer["data"]["total"] == 1
            else:
                assert answer["code"] == "MEMORY_NOT_FOUND"


async def test_a_search_and_a_list_may_be_of_one_container(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    """A search in a container of somebody else finds nothing."""
    for mode in MODES:
        hits = await found(ann, "Bea heron otter swan quay tower", container=RED, mode=mode)
        assert {hit["container"] for hit in hits} == {RED}
        assert {hit["type"] for hit in hits} == {"preference", "episode"}
    assert rooms(await listed(ann, container=BLUE)) == {BLUE}
    assert rooms(await listed(ann)) == {RED, BLUE, None}
    assert await listed(ann, container="nowhere") == []
    assert await code(ann, "search_memories", query="x", container="no room") == "INVALID_ARGUMENT"
    assert await code(ann, "inspect_memories", container="*") == "INVALID_ARGUMENT"
    async with as_(running, IN_RED) as http:
        assert await found(http, "Bea otter tower", container=BLUE) == []
        assert await listed(http, container=BLUE) == []
        assert rooms(await listed(http, container=RED)) == {RED}


# --- writing ---


async def test_what_is_written_goes_into_a_container_of_the_token(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    async with as_(running, IN_RED) as http:
        await data(http, "store_memory", text="Cid: I prefer the elm.")
        await data(http, "store_memory", text="Cid: I prefer the oak.", container=RED)
        refused = await told(http, "store_memory", text="Cid: I ski.", container=BLUE)
    async with as_(running, IN_BOTH) as http:
        unnamed = await told(http, "store_memory", text="Cid: I ski.")
        await data(http, "store_memory", text="Cid: I prefer the ash.", container=BLUE)
    async with as_(running, LOOSE) as http:
        await data(http, "store_memory", text="Cid: I prefer the yew.")
        assert await code(http, "store_memory", text="Cid: I ski.", container=RED) == "OUT_OF_REACH"
    wrong = await told(ann, "store_memory", text="Cid: I ski.", container="a room")
    await running.extract()

    assert (refused["code"], unnamed["code"], wrong["code"]) == (
        *("OUT_OF_REACH", "OUT_OF_REACH", "INVALID_ARGUMENT"),
    )
    assert repr(RED) in refused["message"]
    assert BLUE not in refused["message"]
    assert {(repr(RED) in unnamed["message"]), (repr(BLUE) in unnamed["message"])} == {True}
    trees = {one["value"]: one["container"] for one in await listed(ann) if "Cid" in one["text"]}
    assert trees == {"the elm": RED, "the oak": RED, "the ash": BLUE, "the yew": None}


async def test_what_is_said_in_one_room_changes_nothing_in_another(running: Running) -> None:
    """Neither a correction nor a repetition has an effect in another container, for any token. In
    the same container both have.
    """
    async with as_(running, limited()) as http:
        for room in (RED, BLUE, ""):
            await data(http, "store_memory", text=LISBON, container=room)
        await running.extract()
        lisbon = await listed(http)
        assert rooms(lisbon) == {RED, BLUE, None}
        assert len(lisbon) == 3
        corrected = "Ann: I no longer live in Lisbon. I live in Porto."
        await data(http, "store_memory", text=corrected, container=RED)
        await running.extract()
        lives = {
            (one["container"], one["value"]) for one in await listed(http) if not one["negated"]
        }

    assert lives == {(RED, "Porto"), (BLUE, "Lisbon"), (None, "Lisbon")}


async def test_a_repetition_is_known_behind_many_of_other_containers(running: Running) -> None:
    """More memories of other containers say the same than a repetition is compared with."""
    async with as_(running, limited()) as http:
        for number in range(12):
            await data(http, "store_memory", text="We decided to use Postgres for the store.",
                       container=f"room-{number}")  # fmt: skip
        await running.extract()
        before = await listed(http)
        for number in range(12):
            await data(http, "store_memory", text="We decided to use Postgres for the store.",
                       container=f"room-{number}", session_id="again")  # fmt: skip
        await running.extract()
        assert {one["id"] for one in await listed(http)} == {one["id"] for one in before}
    assert len(rooms(before)) == len(before) == 12


async def test_an_idempotency_key_stands_for_one_container(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    given = {"text": "Dan: I ski.", "idempotency_key": "k"}
    first = await data(ann, "store_memory", container=RED, **given)
    again = await data(ann, "store_memory", container=RED, **given)

    assert (first["queued"], again["cached"]) == (True, True)
    assert await code(ann, "store_memory", container=BLUE, **given) == "IDEMPOTENCY_CONFLICT"


async def test_nothing_is_forgotten_restored_or_erased_elsewhere(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    scopes = frozenset({Scope.ADMIN})
    memories = {one["container"]: one["id"] for one in await listed(ann)}
    admin = TokenRequest(Rights(scopes, IN_RED.rights.access_scope))
    async with as_(running, admin) as http:
        for room, memory_id in memories.items():
            answer = await told(http, "delete_memory", memory_id=memory_id)
            assert (room == RED) == (answer["status"] == "ok")
        await data(ann, "delete_memory", memory_id=memories[BLUE])
        restored = {
            room: (await http.post(f"/v1/memories/{memories[room]}/restore")).status_code
            for room in (RED, BLUE)
        }
        whole = [
            (await http.get("/v1/export")).status_code,
            (await http.get("/v1/audit")).status_code,
            (await http.get("/v1/quarantine")).status_code,
            (await http.post("/v1/erasure", json={"memory_id": memories[RED]})).status_code,
        ]

    assert restored == {RED: 200, BLUE: 404}
    assert whole == [403] * 4
    assert rooms(await listed(ann)) == {RED, None}


# --- tasks ---


async def test_tasks_and_questions_of_other_rooms_are_not_there(running: Running) -> None:
    """A2A and the plain routes hide them, by id and in lists."""
    async with (
        as_(running, limited()) as ann,
        as_(running, IN_RED) as http,
        as_(running, IN_BOTH) as both,
        at_work(running),
    ):
        all_, own = Wire(ann), Wire(http)
        tasks = {}
        for room in (RED, BLUE, ""):
            first = {"data": {"text": LISBON, "container": room}}
            assert (await all_.task(first, now=False))["status"]["state"].endswith("COMPLETED")
            asked = {"data": {"text": PORTO, "container": room}}
            tasks[room] = await all_.task(asked, now=False)
            assert tasks[room]["status"]["state"].endswith("INPUT_REQUIRED")

        assert (await all_.result("ListTasks"))["totalSize"] == 6
        listed_ = await own.result("ListTasks")
        assert listed_["totalSize"] == len(listed_["tasks"]) == 2
        assert (await Wire(both).result("ListTasks"))["totalSize"] == 4
        for room in (BLUE, ""):
            for operation in ("GetTask", "CancelTask", "SubscribeToTask"):
                assert await own.fault(operation, id=tasks[room]["id"]) == "TASK_NOT_FOUND"
            answer = message({"text": "keep_new"}, taskId=tasks[room]["id"])
            assert await own.fault("SendMessage", message=answer) == "TASK_NOT_FOUND"
            assert (await http.get(f"/a2a/{tasks[room]['id']}")).status_code == 404
            hook = {"taskId": tasks[room]["id"], "url": HOOK}
            fault = await own.fault("CreateTaskPushNotificationConfig", **hook)
            assert fault == "TASK_NOT_FOUND"
        # A limited token may set a webhook for another's task in its own container.
        hook = {"taskId": tasks[RED]["id"], "url": HOOK}
        assert (await own.result("CreateTaskPushNotificationConfig", **hook))["url"] == HOOK

        questions = (await ann.get("/v1/conflicts")).json()["conflicts"]
        mine = (await http.get("/v1/conflicts")).json()["conflicts"]
        assert (len(questions), len(mine)) == (3, 1)
        for question in questions:
            body = {"id": question["id"], "choice": "keep_new"}
            status = (await http.post("/v1/conflicts", json=body)).status_code
            assert status == (200 if question["id"] == mine[0]["id"] else 404)


async def test_a_task_is_started_within_the_containers_of_its_token(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    async with as_(running, IN_RED) as http, as_(running, IN_BOTH) as both, at_work(running):
        made = await Wire(http).task({"data": {"text": "Eve: I prefer tea."}}, now=False)
        assert made["status"]["state"].endswith("COMPLETED")
        for given in ({"container": BLUE}, {"container": ""}, {"container": "no room"}):
            body = {"skill": "consolidate_memories", "input": {"text": "Eve: I ski.", **given}}
            answer = await both.post("/a2a", json=body)
            expected = {BLUE: 202, "": 403, "no room": 400}[given["container"]]
            assert answer.status_code == expected, answer.text
        body = {
            "skill": "consolidate_memories",
            "input": {"text": "Eve: I ski.", "container": BLUE},
        }
        assert (await http.post("/a2a", json=body)).status_code == 403
        plan = await Wire(ann).task(
            {"data": {"text": "Eve: I prefer milk.", "container": BLUE, "dry_run": True}}, now=False
        )
        applied = {"data": {"plan_id": plan["id"]}}
        assert await Wire(http).fault("SendMessage", message=message(applied))
        done = await Wire(both).task(applied, now=False)
        assert done["status"]["state"].endswith("COMPLETED")

    drinks = {one["value"]: one["container"] for one in await listed(ann) if "Eve" in one["text"]}
    assert drinks["tea"] == RED
    assert drinks["milk"] == BLUE


async def test_a_merge_stays_within_each_container(running: Running) -> None:
    """The merged memory is in the container of its parts."""
    async with (
        as_(running, limited()) as ann,
        as_(running, IN_RED) as http,
        as_(running, IN_BOTH) as both,
        at_work(running),
    ):
        for room in (RED, BLUE, ""):
            for text in ("Gus: I prefer the black tea.", "Gus: I prefer the black coffee."):
                await data(ann, "store_memory", text=text, container=room)
        while (await data(ann, "get_memory_stats"))["pending_extractions"]:
            pass
        before = await listed(ann)
        given = {"topic": "general", "similarity_threshold": 0.0}
        narrow = await data(http, "consolidate_memories", **given)
        after = await listed(ann)
        blue = await data(ann, "consolidate_memories", container=BLUE, **given)
        assert await code(both, "consolidate_memories", **given) == "OUT_OF_REACH"
        wide = await data(ann, "consolidate_memories", **given)

    assert (len(before), len(after)) == (6, 5)
    assert [one["groups_found"] for one in (narrow, blue, wide)] == [1, 1, 1]
    assert {one["container"] for one in blue["created"]} == {BLUE}
    assert {one["container"] for one in narrow["created"]} == {RED}
    assert {one["container"] for one in wide["created"]} == {None}


# --- tokens ---


async def test_a_child_is_limited_to_containers_of_its_parent_and_whoami_tells_it(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    """The limit holds for children kept in a table and for signed ones."""
    scopes = frozenset({Scope.READ, Scope.WRITE, Scope.TOKENS})
    parent = TokenRequest(Rights(scopes, IN_BOTH.rights.access_scope))
    async with as_(running, parent) as http:
        assert (await data(http, "whoami"))["containers"] == sorted((RED, BLUE))
        for path in ("/v1/tokens", "/v1/tokens/children"):
            made = (await http.post(path, json={"containers": [RED]})).json()
            same = (await http.post(path, json={})).json()
            wider = await http.post(path, json={"containers": [RED, "green"]})
            loose = await http.post(path, json={"containers": [""]})
            wrong = await http.post(path, json={"containers": ["a room"]})
            assert same["containers"] == sorted((RED, BLUE))
            assert (wider.status_code, wider.json()["code"]) == (403, "WOULD_WIDEN")
            assert loose.json()["code"] == "WOULD_WIDEN"
            assert wrong.json()["code"] == "INVALID_ARGUMENT"
            async with running.http(made["token"]) as child:
                told_ = (await child.get("/v1/whoami")).json()
                assert told_["containers"] == made["containers"] == [RED]
                assert rooms(await listed(child)) == {RED}
                assert {hit["container"] for hit in await found(child, "Bea")} == {RED}
                assert await code(child, "store_memory", text="x", container=BLUE) == "OUT_OF_REACH"
    assert (await ann.get("/v1/whoami")).json()["containers"] is None


# --- the other protocols ---


async def test_a_container_is_made_by_being_named(running: Running) -> None:
    """The answer says once that the container is new."""
    async with as_(running, limited()) as http:
        given = {"text": "Hal: I prefer the pike.", "container": RED, "idempotency_key": "one"}
        answers = [
            await http.post("/v1/process", json=given),
            await http.post("/v1/process", json=given),
            await http.post("/v1/process", json={"text": "Hal: I prefer the carp.",
                                                 "container": RED}),
            await http.post("/v1/process", json={"text": "Hal: I prefer the eel."}),
        ]  # fmt: skip
        wrong = await http.post("/v1/process", json={"text": "x", "container": "a room"})
        await running.extract()
        searched = await http.post("/v1/search", json={"query": "Hal", "containers": [RED]})
        loose = await http.post("/v1/search", json={"query": "Hal", "containers": [""]})
        both = await http.post("/v1/search", json={"query": "Hal", "containers": ["", RED]})
        bad = await http.post("/v1/search", json={"query": "Hal", "containers": ["a room"]})

    told_ = [answer.json() for answer in answers]
    assert {answer.status_code for answer in answers} == {202}
    assert [one["created_containers"] for one in told_] == [[RED], [], [], []]
    assert [one["container"] for one in told_] == [RED, RED, RED, None]
    assert [one["cached"] for one in told_] == [False, True, False, False]
    assert told_[0]["job_id"] == told_[1]["job_id"]
    assert all(one["accepted"] and not one["created_user"] for one in told_)
    assert all(re.fullmatch(r"2026-03-01T12:00:\d\dZ", one["accepted_at"]) for one in told_)
    assert (wrong.status_code, bad.status_code) == (400, 400)
    fish = [set(re.findall("pike|carp|eel", one.text)) for one in (searched, loose, both)]
    assert fish == [{"pike", "carp"}, {"eel"}, {"pike", "carp", "eel"}]


async def test_the_plain_routes_are_held_to_the_containers_of_a_token(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    query = {"query": "Bea heron otter swan quay tower path", "limit": 50}
    async with as_(running, IN_RED) as http:
        stored = (await http.post("/v1/process", json={"text": "Ida: I ski."})).json()
        refused = await http.post("/v1/process", json={"text": "Ida: I ski.", "container": BLUE})
        found_ = await http.post("/v1/search", json={**query, "explain": True, "neighbours": 5})
        other = await http.post("/v1/search", json={**query, "containers": [BLUE, ""]})
        mixed = await http.post("/v1/search", json={**query, "containers": [BLUE, RED]})
    everything = await ann.post("/v1/search", json=query)

    assert stored["container"] == RED
    assert (refused.status_code, refused.json()["code"]) == (403, "OUT_OF_REACH")
    assert other.json()["results"] == []
    for answer in (found_, mixed):
        assert set(re.findall("heron|otter|swan|quay|tower|path", answer.text)) == {"heron", "quay"}
    assert {"heron", "otter", "swan"} < set(re.findall(r"\w+", everything.text))


async def test_an_export_carries_containers_and_erasing_somebody_strikes_their_names(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    """The name of a container may hold the name of a person."""
    await data(ann, "store_memory", text="Bea: I like figs.", container="chats/with-cleo")
    await running.extract()
    before = (await ann.get("/v1/export")).text
    erased = await ann.post("/v1/erasure", json={"subject": "Cleo"})
    after = (await ann.get("/v1/export")).text

    rooms_ = {one["container"] for one in records(before.encode(), "episode", "memory")}
    assert rooms_ == {RED, BLUE, "", "chats/with-cleo"}
    assert erased.status_code == 200, erased.text
    left = records(after.encode(), "episode", "memory")
    assert not [one for one in left if "cleo" in one["container"]]
    assert {RED, BLUE, ""} < {one["container"] for one in left}
    async with running.http(await running.token("bob")):
        await taken_in(running.application, after.encode(), Namespace("bob"))
    async with running.http(await running.token("bob")) as bob:
        assert rooms(await listed(bob)) == {RED, BLUE, None}
        assert {hit["container"] for hit in await found(bob, "heron", container=RED)} == {RED}
