"""HTTP, MCP and the Python client can ask what was known and what was true at a moment."""

from datetime import timedelta

import httpx2
import pytest

from recall_client import AsyncRecallClient
from tests.support.limited_tokens import Json, limited, told
from tests.support.runtime import Clock
from tests.support.server import Running

DAY = timedelta(days=1)


async def moved(running: Running, http: httpx2.AsyncClient, clock: Clock) -> str:
    """Store Porto, and two days later Lisbon. Return the moment between them."""
    await http.post("/v1/memories", json={"text": "User: I live in Porto."})
    await running.extract()
    clock.pass_(DAY)
    between = clock().isoformat()
    clock.pass_(DAY)
    await http.post("/v1/memories", json={"text": "User: I live in Lisbon now."})
    await running.extract()
    clock.pass_(DAY)
    return between


async def test_search_list_get_history_and_counts_tell_what_was_known_and_true_then(
    running: Running, clock: Clock
) -> None:
    async with running.http(await running.token()) as http:
        between = await moved(running, http, clock)

        for given in ({"known_at": between}, {"as_of": between}):
            found = (await http.post("/v1/search", json={"query": "home city", **given})).json()
            assert [one.get("superseded_by") for one in found["results"]] == [None]
            assert "Porto" in found["results"][0]["text"]
            listed = (await http.get("/v1/memories", params=given)).json()
            assert ["Porto" in one["text"] for one in listed["memories"]] == [True]
            assert (await http.get("/v1/stats", params=given)).json()["total"] == 1
        states = {"by_status": "true"}
        of_known = (await http.get("/v1/stats", params={"known_at": between, **states})).json()
        of_true = (await http.get("/v1/stats", params={"as_of": between, **states})).json()
        assert of_known["by_status"] == {"active": 1}
        assert of_true["by_status"] == {"superseded": 1}  # as it is known to have been since
        (porto,) = listed["memories"]
        known = {"known_at": between}
        then = (await http.get(f"/v1/memories/{porto['id']}", params=known)).json()
        assert (then["status"], then["valid_until"]) == ("active", None)
        now = (await http.get(f"/v1/memories/{porto['id']}")).json()
        assert now["status"] == "superseded"
        by_status = await http.get("/v1/memories", params={"status": "superseded"})
        assert [one["id"] for one in by_status.json()["memories"]] == [porto["id"]]
        lisbon = await http.get(f"/v1/memories/{now['superseded_by']}", params=known)
        assert (lisbon.status_code, lisbon.json()["code"]) == (404, "MEMORY_NOT_FOUND")


async def test_the_tools_and_the_python_client_tell_the_same_of_the_past(
    running: Running, clock: Clock
) -> None:
    token = await running.token()
    async with running.http(token) as http, AsyncRecallClient(running.address, token) as client:
        between = await moved(running, http, clock)
        givens: tuple[Json, ...] = ({"known_at": between}, {"as_of": between})
        for given in givens:
            found = await told(http, "search_memories", query="home city", **given)
            assert "Porto" in found["data"]["results"][0]["text"]
            assert "Lisbon" not in str(found["data"])
            listed = await told(http, "inspect_memories", **given)
            (porto,) = listed["data"]["memories"]
            assert porto["value"] == "Porto"
            counted = await told(http, "get_memory_stats", **given)
            assert counted["data"]["total"] == 1

            hits = await client.search_memories("home city", **given)
            assert "Porto" in hits.results[0].text
            (same,) = (await client.inspect_memories(**given)).memories
            assert same.id == porto["id"]
            assert (await client.get_memory_stats(**given)).total == 1
        one = await told(http, "inspect_memories", memory_id=porto["id"], known_at=between)
        then = await client.get_memory(porto["id"], known_at=between)
        assert [known["status"] for known in one["data"]["memories"]] == ["active"]
        assert then.status == "active"
        for tool in ("search_memories", "inspect_memories", "get_memory_stats"):
            asked = {"query": "home"} if tool == "search_memories" else {}
            refused = await told(http, tool, known_at="soon", **asked)
            assert refused["code"] == "INVALID_ARGUMENT"
            assert refused["message"].startswith("known_at must be a date")


async def test_a_history_tells_what_became_of_each_version_by_whom_and_why(
    running: Running, clock: Clock
) -> None:
    async with running.http(await running.token()) as http:
        await moved(running, http, clock)
        (lisbon,) = (await http.get("/v1/memories")).json()["memories"]
        found = (await http.get(f"/v1/memories/{lisbon['id']}/history")).json()
        porto = found["memories"][0]
        me = (await http.get("/v1/whoami")).json()["accessor"]

    events = porto["events"]
    assert [(one["event"], one["rule"], one["status"]) for one in events] == [
        ("added", None, "active"),
        ("superseded", "later", "superseded"),
    ]
    assert {(one["by"], one["operation"]) for one in events} == {(me, "extract")}
    assert events[1]["change"] == found["memories"][1]["events"][0]["change"] != events[0]["change"]
    assert porto["source"]["quote"]


async def test_before_anything_was_known_there_is_nothing_and_no_error(
    running: Running, clock: Clock
) -> None:
    async with running.http(await running.token()) as http:
        await moved(running, http, clock)
        early: Json = {"known_at": "1999-01-01"}
        found = await http.post("/v1/search", json={"query": "home", **early})
        assert (found.status_code, found.json()["results"]) == (200, [])
        listed = await http.get("/v1/memories", params=early)
        assert (listed.status_code, listed.json()["total"]) == (200, 0)


@pytest.mark.parametrize("given", ["soon", "2026-03-01T12:00", "2999-01-01"])
@pytest.mark.parametrize("name", ["as_of", "known_at"])
async def test_a_moment_that_cannot_be_read_or_is_to_come_gets_a_code_and_a_sentence(
    running: Running, name: str, given: str
) -> None:
    async with running.http(await running.token()) as http:
        answers = [
            await http.post("/v1/search", json={"query": "home", name: given}),
            await http.get("/v1/memories", params={name: given}),
            await http.get("/v1/stats", params={name: given}),
            await http.get("/v1/memories/mem_1/history", params={name: given}),
        ]

    assert {(one.status_code, one.json()["code"]) for one in answers} == {(400, "INVALID_ARGUMENT")}
    assert all(one.json()["detail"].startswith(name) for one in answers)


async def test_what_was_forgotten_is_listed_by_no_status(running: Running) -> None:
    async with running.http(await running.token()) as http:
        refused = await http.get("/v1/memories", params={"status": "forgotten"})
        assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_ARGUMENT")


async def test_a_limited_token_learns_nothing_of_the_past_beyond_its_part(
    running: Running, clock: Clock
) -> None:
    async with (
        running.http(await running.token()) as whole,
        running.http(await running.token("alice", limited(topics=frozenset({"work"})))) as part,
    ):
        between = await moved(running, whole, clock)
        for given in ({"known_at": between}, {"as_of": between}, {"status": "superseded"}):
            listed = (await part.get("/v1/memories", params=given)).json()
            assert (listed["memories"], listed["total"]) == ([], 0)
            if "status" in given:
                continue
            found = await part.post("/v1/search", json={"query": "where do I live", **given})
            assert found.json()["results"] == []
            assert (await part.get("/v1/stats", params=given)).json()["total"] == 0


async def test_what_contradicts_and_concerns_a_memory_is_told_as_of_then(
    running: Running, clock: Clock
) -> None:
    """An end that was forgotten since took the relation out of the past, and a settled dispute had
    no other side.
    """
    async with running.http(await running.token()) as http:

        async def kept(text: str) -> str:
            said = await http.post("/v1/memories:submit", json={"text": text, "intent": "remember"})
            clock.pass_(DAY)
            return str(said.json()["changes"][0]["memory_id"])

        async def told_at(moment: str | None) -> list[Json]:
            given = {"known_at": moment} if moment else {}
            found = [(await http.get("/v1/memories", params=given)).json()]
            found += [(await http.get(f"/v1/memories/{porto}/history", params=given)).json()]
            asked = {"query": "Where does Zoe live?", **given}
            found += [(await http.post("/v1/search", json=asked)).json()["results"]]
            found += [(await http.post("/v1/context", json={"message": "Zoe", **given})).json()]
            for hit in found[2]:
                del hit["score"]
            return [
                {name: one[name] for name in one if name != "generated_at"}
                if isinstance(one, dict)
                else one
                for one in found
            ]

        porto, rome = await kept("Zoe lives in Porto."), await kept("Zoe owns a house in Rome.")
        fig = await kept("Zoe likes figs.")
        for kind, other in (("contradicts", rome), ("refines", fig)):
            given = {"from_id": porto, "relation": kind, "to_id": other}
            stated = await http.post("/v1/relations", json=given)
            assert stated.status_code == 200, stated.text
        clock.pass_(DAY)
        at, then = clock().isoformat(), await told_at(None)
        clock.pass_(DAY)
        (review,) = (await http.get("/v1/reviews")).json()["reviews"]
        await http.post(f"/v1/reviews/{review['id']}", json={"choice": "keep_both"})
        clock.pass_(DAY)
        await http.delete(f"/v1/memories/{fig}")
        clock.pass_(DAY)

        assert await told_at(at) == then
        assert {"contradicts", "refines"} <= {
            one["relation"] for one in then[1]["memories"][0]["relations"]
        }


async def test_what_has_expired_while_it_was_forgotten_is_counted_as_of_then(
    running: Running, clock: Clock
) -> None:
    async with running.http(await running.token()) as http:
        ends = (clock() + 2 * DAY).isoformat()
        await http.post("/v1/memories", json={"text": "User: I live in Porto.", "expires_at": ends})
        await running.extract()
        (porto,) = (await http.get("/v1/memories")).json()["memories"]
        await http.delete(f"/v1/memories/{porto['id']}")
        clock.pass_(3 * DAY)
        await running.extract()
        states = {"by_status": "true"}
        now = (await http.get("/v1/stats", params=states)).json()
        clock.pass_(DAY)
        at = (clock() - DAY).isoformat()
        then = (await http.get("/v1/stats", params={"known_at": at, **states})).json()

        assert now["by_status"] == then["by_status"] == {"forgotten": 1}
