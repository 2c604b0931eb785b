"""What has expired is shown to who asks for it, below what holds, and marked."""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.engines import on_sqlite
from tests.support.length import only_at_full_length
from tests.support.mcp_clients import MODERN
from tests.support.runtime import Clock
from tests.support.server import Running
from tests.support.stalls import watched

Json = dict[str, Any]
ASKED = {"query": "Where does Ana live?", "include_expired": True}


async def said(running: Running, clock: Clock) -> str:
    """Remember two places, of which one expires, and let it expire. Return a token."""
    token = await running.token()
    async with running.http(token) as http:
        ends = (clock.time + timedelta(days=1)).isoformat()
        for given in (
            {"text": "Ana: I live in Porto now.", "expires_at": ends},
            {"text": "Ana: My sister Eva lives in Faro."},
        ):
            assert (await http.post("/v1/memories", json=given)).status_code == 202
            await running.extract()
    clock.pass_(timedelta(days=2))
    await running.extract()
    return token


def memories(found: Json) -> list[tuple[str, bool]]:
    return [
        (one["text"], one.get("expired", False))
        for one in found["results"]
        if one["type"] != "episode"
    ]


async def test_a_search_shows_what_expired_below_what_holds(running: Running, clock: Clock) -> None:
    token = await said(running, clock)
    async with running.http(token) as http:
        shown = (await http.post("/v1/search", json=ASKED)).json()
        few = (await http.post("/v1/search", json=ASKED | {"limit": 1})).json()
        scored = (await http.post("/v1/search", json=ASKED | {"score_threshold": 0.1})).json()
        without = (await http.post("/v1/search", json=ASKED | {"include_expired": False})).json()
        other = (await http.post("/v1/search", json=ASKED | {"topic": "work"})).json()
        engram = (await http.post("/api/v1/search", json=ASKED)).json()

    porto = ("Ana lives in Porto now.", True)
    assert memories(shown)[-1] == porto
    assert shown["total"] == len(shown["results"])
    assert "expires_at" in shown["results"][-1]
    for answer in (few, scored, without, other):
        assert porto not in memories(answer), answer
    assert memories(engram)[-1] == porto


async def test_a_list_shows_what_expired_last(running: Running, clock: Clock) -> None:
    token = await said(running, clock)
    async with running.http(token) as http:
        asked = {"include_expired": "true"}
        shown = (await http.get("/v1/memories", params=asked)).json()
        one = (await http.get("/v1/memories", params=asked | {"limit": 1})).json()
        without = (await http.get("/v1/memories")).json()

    states = [(one["text"], one["status"]) for one in shown["memories"]]
    assert states[-1] == ("Ana lives in Porto now.", "expired")
    assert {status for _, status in states[:-1]} == {"active"}
    assert (shown["total"], without["total"]) == (len(states), len(states) - 1)
    assert (one["memories"][0]["status"], one["has_more"]) == ("active", True)


async def test_nothing_forgotten_or_erased_is_shown_as_expired(
    running: Running, clock: Clock
) -> None:
    token = await said(running, clock)
    async with running.http(token) as http:
        expired = {"status": "expired"}
        (porto,) = (await http.get("/v1/memories", params=expired)).json()["memories"]
        erased = await http.delete(f"/v1/memories/{porto['id']}?erase=true")
        shown = (await http.post("/v1/search", json=ASKED)).json()
        listed = (await http.get("/v1/memories", params={"include_expired": "true"})).json()

    assert erased.status_code == 200, erased.text
    assert ("Ana lives in Porto now.", True) not in memories(shown)
    assert "expired" not in {one["status"] for one in listed["memories"]}


async def test_a_model_may_ask_for_it_too(running: Running, clock: Clock) -> None:
    token = await said(running, clock)
    async with running.client(token, MODERN) as client:
        found = await client.call_tool("search_memories", ASKED)

    assert "Ana lives in Porto now." in str(found)


def passages(found: Json) -> list[tuple[str, bool]]:
    return [
        (one["text"], one.get("expired", False))
        for one in found["results"]
        if one["type"] == "episode"
    ]


async def test_a_text_that_expired_is_found_below_what_holds(
    running: Running, clock: Clock
) -> None:
    token = await said(running, clock)
    async with running.http(token) as http:
        shown = (await http.post("/v1/search", json=ASKED)).json()
        without = (await http.post("/v1/search", json=ASKED | {"include_expired": False})).json()
        other = (await http.post("/v1/search", json=ASKED | {"topic": "work"})).json()

    porto = ("Ana: I live in Porto now.", True)
    assert porto in passages(shown)
    marks = [one["expired"] for one in shown["results"] if "expired" in one]
    assert marks == sorted(marks)
    assert porto not in passages(without)
    assert porto not in passages(other)


async def test_a_text_is_found_from_its_end_on_though_its_job_has_not_run(
    running: Running, clock: Clock
) -> None:
    async with running.http(await running.token()) as http:
        ends = (clock.time + timedelta(days=1)).isoformat()
        await http.post("/v1/memories", json={"text": "Ana lives in Porto.", "expires_at": ends})
        await running.extract()
        clock.pass_(timedelta(days=2))
        shown = (await http.post("/v1/search", json=ASKED)).json()

    assert passages(shown) == [("Ana lives in Porto.", True)]


async def test_words_that_were_forgotten_before_their_text_expired_stay_hidden(
    running: Running, clock: Clock
) -> None:
    async with running.http(await running.token()) as http:
        ends = (clock.time + timedelta(days=1)).isoformat()
        both = {"text": "Ana lives in Porto. Ana lives with Rui.", "expires_at": ends}
        await http.post("/v1/memories", json=both)
        whole = {"text": "Ana lives on a boat.", "expires_at": ends}
        taken_back = (await http.post("/v1/memories", json=whole)).json()
        await running.extract()
        known = (await http.get("/v1/memories")).json()["memories"]
        rui = next(one["id"] for one in known if "Rui" in one["text"])
        assert (await http.delete(f"/v1/memories/{rui}")).status_code == 200
        undo = f"/v1/changes/{taken_back['job_id']}/undo"
        assert (await http.post(undo, json={})).status_code == 200
        clock.pass_(timedelta(days=2))
        await running.extract()
        shown = (await http.post("/v1/search", json=ASKED)).json()
        narrow = {"query": "Who lives with Rui?", "include_expired": True}
        asked = (await http.post("/v1/search", json=narrow)).json()

    assert "Ana lives in Porto." in str(shown)
    for answer in (shown, asked):
        assert "Rui" not in str(answer["results"])
        assert "boat" not in str(answer["results"])


@only_at_full_length
@pytest.mark.perf
@on_sqlite
async def test_many_long_memories_that_expired_do_not_hold_up_the_others(
    running: Running, clock: Clock
) -> None:
    """Comparing 300 of them with the question held the event loop for 100 ms."""
    async with running.http(await running.token()) as http:
        ends = (clock.time + timedelta(days=1)).isoformat()
        for part in range(3):
            said = [
                {"role": "user", "content": " ".join(f"w{part}x{n}x{i}" for i in range(190))}
                for n in range(100)
            ]
            kept = {"messages": said, "type": "fact", "infer": False, "expires_at": ends}
            assert (await http.post("/v1/memories", json=kept)).status_code == 202
            await running.extract()
        clock.pass_(timedelta(days=2))
        await running.extract()
        asked = {"query": "w1x1x1", "include_expired": True}
        await http.post("/v1/search", json=asked)
        async with watched() as watch:
            shown = (await http.post("/v1/search", json=asked)).json()

    assert [one["expired"] for one in shown["results"] if one["type"] != "episode"] == [True]
    watch.check()
