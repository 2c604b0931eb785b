"""Open reviews over plain HTTP, and merges over MCP."""

from mcp import Client

from tests.support.a2a_clients import COMPLETED, LISBON, PORTO, agent, at_work, got, sent
from tests.support.conversation import context
from tests.support.mcp_clients import data, told
from tests.support.server import Running, unnamed


async def test_a_conflict_is_listed_and_resolved_by_whoever_holds_a_token(
    running: Running,
) -> None:
    token, foreign = await running.token(), await running.token("mallory")
    async with (
        at_work(running),
        agent(running, token) as client,
        running.http(token) as http,
        running.http(foreign) as other,
    ):
        await sent(client, LISBON)
        task = await sent(client, PORTO)
        (conflict,) = (await http.get("/v1/conflicts")).json()["conflicts"]
        assert conflict["task_id"] == task.id
        assert conflict["existing"][0]["source"]["quote"] == "I live in Lisbon."
        assert (await other.get("/v1/conflicts")).json() == {"conflicts": []}

        answer = {"id": conflict["id"], "choice": "keep_new"}
        refused = await other.post("/v1/conflicts", json=answer)
        unknown = await other.post("/v1/conflicts", json={**answer, "id": "q_unknown"})
        assert refused.status_code == 404
        assert unnamed(refused) == unnamed(unknown)

        taken = await http.post("/v1/conflicts", json=answer)
        assert taken.json() == {"task_id": task.id, "status": "working", "open": 0}
        tasks, alice = running.application.services.tasks, context(running.application)
        await tasks.wait_until_idle(alice, await tasks.get(alice, task.id))
        assert (await got(client, task.id)).status.state == COMPLETED
        assert (await http.get("/v1/conflicts")).json() == {"conflicts": []}


async def test_an_unacceptable_answer_is_refused_with_what_is_allowed(running: Running) -> None:
    token = await running.token()
    async with at_work(running), agent(running, token) as client, running.http(token) as http:
        await sent(client, LISBON)
        await sent(client, PORTO)
        (conflict,) = (await http.get("/v1/conflicts")).json()["conflicts"]
        for body, code in (
            ({"id": conflict["id"], "choice": "keep_none"}, "INVALID_ARGUMENT"),
            ({"id": conflict["id"]}, "INVALID_ARGUMENT"),
            ({"id": conflict["id"], "choice": "keep_new", "who": 1}, "INVALID_ARGUMENT"),
            ({"id": conflict["id"], "choice": "merge"}, "ANSWER_UNCLEAR"),
            ([], "INVALID_ARGUMENT"),
        ):
            refused = await http.post("/v1/conflicts", json=body)
            assert (refused.status_code, refused.json()["code"]) == (400, code), body
        assert len((await http.get("/v1/conflicts")).json()["conflicts"]) == 1


async def test_similar_memories_are_merged_over_mcp(running: Running, client: Client) -> None:
    for text in (
        "User: I like hiking in the mountains.",
        "User: I really like hiking in the mountains near Porto.",
    ):
        await data(client, "store_memory", text=text, topic="sport")
        await running.extract()
    arguments = {"topic": "sport", "similarity_threshold": 0.6}
    async with at_work(running):
        planned = await data(client, "consolidate_memories", **arguments, dry_run=True)
        before = await data(client, "get_memory_stats")
        done = await data(client, "consolidate_memories", **arguments)
        again = await data(client, "consolidate_memories", **arguments)

    assert (planned["groups_found"], planned["memories_created"], planned["dry_run"]) == (
        1,
        1,
        True,
    )
    assert before["total"] == 2
    assert done["memories_consolidated"] == 2
    assert [m["text"] for m in done["created"]] == [m["text"] for m in planned["created"]]
    assert sorted(done["deleted_ids"]) == sorted(planned["deleted_ids"])
    assert again["groups_found"] == 0
    assert (await told(client, "consolidate_memories", topic=""))["code"] == "INVALID_ARGUMENT"
