"""An agent decides about a dispute with the tools of MCP alone."""

from mcp import Client

from recall_server.domain.context import Context
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import Rights, Scope
from recall_server.domain.plan import Policy
from recall_server.services.auth import TokenRequest
from tests.support.mcp_clients import MODERN, data, told
from tests.support.server import Json, Running

DECIDES = TokenRequest(Rights(frozenset({Scope.READ, Scope.WRITE, Scope.CONSOLIDATE})))


async def contradictions_are_asked_about(running: Running) -> None:
    services = running.application.services
    entry = services.audit.begin(Namespace("alice"), "set_policy", "cli", None)
    await services.tasks.set_policy(Context(entry), Policy.ASK)


async def submitted(agent: Client, text: str, **given: object) -> str:
    done = await data(agent, "submit_memory", text=text, **given)
    return str(done["changes"][0]["memory_id"])


async def history(agent: Client, memory_id: str) -> list[Json]:
    found: list[Json] = (await data(agent, "inspect_memories", memory_id=memory_id))["memories"]
    return found


async def test_an_agent_settles_a_dispute_with_tools_alone(running: Running) -> None:
    token = await running.token(wanted=DECIDES)
    await contradictions_are_asked_about(running)
    async with running.client(token, MODERN) as agent:
        lisbon = await submitted(agent, "Ana lives in Lisbon.")
        porto = await submitted(agent, "Ana lives in Porto.")

        (review,) = (await data(agent, "list_reviews", kind="dispute"))["reviews"]
        found = (await data(agent, "search_memories", query="Where does Ana live?"))["results"]
        told_twice = {one["id"]: one.get("disputed_with") for one in found}
        (before,) = await history(agent, porto)
        # It notes what it makes of it, for somebody else to accept.
        staged = await data(agent, "submit_memory", text="Ana moves often.", review=True)
        related = await data(
            agent, "relate_memories", from_id=porto, relation="refines", to_id=lisbon
        )
        settled = await data(agent, "answer_review", id=review["id"], choice="keep_new")
        again = await told(agent, "answer_review", id=review["id"], choice="keep_existing")
        (proposal,) = (await data(agent, "list_reviews", kind="proposal"))["reviews"]
        accepted = await data(agent, "answer_review", id=proposal["id"], choice="accept")
        versions = {one["id"]: one for one in await history(agent, porto)}
        now = (await data(agent, "search_memories", query="Does Ana move often?"))["results"]

    assert told_twice[lisbon] == [porto]
    assert told_twice[porto] == [lisbon]
    assert (before["status"], before["source"]["quote"]) == ("disputed", "Ana lives in Porto.")
    assert review["choices"] == ["keep_existing", "keep_new", "keep_both", "merge"]
    assert staged["outcome"] == "proposed"
    assert related["relation"] == "refines"
    assert settled["kind"] == "dispute"
    assert again["code"] == "NOT_WAITING"
    assert accepted["change_id"]
    assert versions[porto]["status"] == "active"
    assert versions[lisbon]["status"] == "superseded"
    assert versions[lisbon]["superseded_by"] == porto
    assert versions[lisbon]["decisions"][0]["choice"] == "keep_new"
    assert "refines" in {one["relation"] for one in versions[porto]["relations"]}
    assert "Ana moves often." in {one["text"] for one in now}


async def test_an_agent_opens_a_dispute_that_no_rule_saw(running: Running) -> None:
    token = await running.token(wanted=DECIDES)
    async with running.client(token, MODERN) as agent:
        one = await submitted(agent, "The build runs on every push.")
        other = await submitted(agent, "The build runs at night only.")
        related = await data(
            agent, "relate_memories", from_id=other, relation="contradicts", to_id=one
        )
        (review,) = (await data(agent, "list_reviews"))["reviews"]
        unknown = await told(
            agent, "relate_memories", from_id=other, relation="extends", to_id=f"mem_{'0' * 26}"
        )

    assert related["question_id"] == review["id"]
    assert unknown["code"] == "MEMORY_NOT_FOUND"
