"""A limited token sees only its access scope: data beyond it changes no answer."""

from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest

from recall_server.api.operations import OPERATIONS
from recall_server.domain.ids import namespace
from recall_server.domain.permissions import AccessScope, Rights, Scope
from recall_server.services.auth import TokenRequest
from tests.support.limited_tokens import Json, data, limited
from tests.support.runtime import Clock
from tests.support.server import Running

SECRET = "secret/merger"
PUBLIC = "public"
IN_PUBLIC = AccessScope(containers=frozenset({PUBLIC}))
READER = limited(containers=frozenset({PUBLIC}))


def manages(access_scope: AccessScope, *scopes: Scope) -> TokenRequest:
    return TokenRequest(Rights(frozenset({Scope.TOKENS, Scope.READ, *scopes}), access_scope))


async def test_a_limited_token_sees_and_ends_only_the_tokens_that_it_could_issue(
    running: Running,
) -> None:
    hidden = (await running.issued("alice", limited(containers=frozenset({SECRET}))))[1]
    wider = (await running.issued("alice", READER))[1]
    own = (await running.issued("alice", manages(IN_PUBLIC)))[1]
    beyond = (hidden.accessor, wider.accessor)
    async with (
        running.http(await running.token("alice", manages(IN_PUBLIC))) as http,
        running.http(await running.token("alice")) as owner,
    ):
        listed = (await http.get("/v1/tokens")).json()["tokens"]
        assert own.accessor in {one["accessor"] for one in listed}
        assert not set(beyond) & {one["accessor"] for one in listed}
        assert (await http.get(f"/v1/tokens/{own.accessor}")).status_code == 200
        for accessor in (*beyond, "acc_never"):
            for method, path in (
                ("GET", f"/v1/tokens/{accessor}"),
                ("DELETE", f"/v1/tokens/{accessor}"),
                ("DELETE", f"/v1/tokens/{accessor}?children_only=true"),
                ("DELETE", f"/v1/tokens/{accessor}/children/somebody"),
                ("POST", f"/v1/tokens/{accessor}/rotate"),
            ):
                answer = await http.request(method, path, json={} if method == "POST" else None)
                assert (answer.status_code, answer.json()["code"]) == (404, "TOKEN_NOT_FOUND")
        assert (await http.delete(f"/v1/tokens/{own.accessor}")).json()["revoked"] == [own.accessor]

        # The positive control: a token without a limit sees and ends them.
        listed = (await owner.get("/v1/tokens")).json()["tokens"]
        assert set(beyond) <= {one["accessor"] for one in listed}
        assert all(one["revoked_at"] is None for one in listed if one["accessor"] in beyond)
        for accessor in beyond:
            assert (await owner.delete(f"/v1/tokens/{accessor}")).status_code == 200


@pytest.mark.parametrize("owner", ["alice", None], ids=["of_a_namespace", "of_all"])
async def test_what_refuses_all_tokens_is_told_to_a_token_without_limits_only(
    running: Running, clock: Clock, owner: str | None
) -> None:
    old = (await running.issued("alice", manages(IN_PUBLIC)))[1].accessor
    clock.pass_(timedelta(minutes=1))
    services = running.application.services
    name = namespace(owner) if owner else None
    entry = services.audit.begin(name, "tokens_not_before", "cli", None) if name else None
    at = await services.access.not_before(name, None, entry=entry)
    told = {}
    for wanted in (manages(IN_PUBLIC), manages(AccessScope())):
        async with running.http(await running.token("alice", wanted)) as http:
            listed = (await http.get("/v1/tokens")).json()["tokens"]
            shown = (await http.get(f"/v1/tokens/{old}")).json()
        by_name = {one["accessor"]: one["not_before"] for one in listed}
        assert by_name.pop(old) == shown["not_before"]
        assert set(by_name.values()) == {None}
        told[wanted.rights.access_scope.everything] = shown["not_before"]

    assert told[False] is None
    assert datetime.fromisoformat(told[True]) == at.replace(microsecond=0)


async def evidence(http: httpx2.AsyncClient, query: str) -> tuple[float, list[str]]:
    answer = await data(http, "search_memories", query=query, mode="keyword", explain=True)
    return answer["evidence"], [hit["text"] for hit in answer["results"]]


async def test_words_and_speakers_beyond_the_scope_do_not_show_in_scores(running: Running) -> None:
    async with (
        running.http(await running.token("alice")) as owner,
        running.http(await running.token("alice", READER)) as http,
    ):
        await data(owner, "store_memory", text="Bob: The plants need water.", container=PUBLIC)
        for number in range(8):
            text = f"Okonkwo: The merger note {number} says zyntrox."
            await data(owner, "store_memory", text=text, container=SECRET)

        for asked in ("water plants {}", "What did {} water?"):
            nowhere, shown = await evidence(http, asked.format("Qwertyuiop"))
            for word in ("Zyntrox", "Okonkwo", "Merger", "Note"):
                assert await evidence(http, asked.format(word)) == (nowhere, shown), (asked, word)
            # The positive control: a token without a limit finds them among its words.
            nowhere, _ = await evidence(owner, asked.format("Qwertyuiop"))
            assert (await evidence(owner, asked.format("Okonkwo")))[0] != nowhere
        # Words within the scope count as before.
        assert (await evidence(http, "Where is Bob's plant?"))[0] > 0.1


async def stored(http: httpx2.AsyncClient, text: str, **given: Any) -> Json:
    answer: Json = (await http.post("/v1/process", json={"text": text, **given})).json()
    return answer


async def test_keys_and_containers_beyond_the_scope_are_as_if_never_used(running: Running) -> None:
    writer = limited(topics=frozenset({PUBLIC}))
    async with (
        running.http(await running.token("alice")) as owner,
        running.http(await running.token("alice", writer)) as http,
        running.http(await running.token("alice", writer)) as same,
    ):
        given: Json = {"idempotency_key": "monday", "topic": PUBLIC}
        await stored(owner, "Bob: The merger is on.", topic=SECRET, idempotency_key="monday",
                     container="m")  # fmt: skip
        own = await stored(http, "Bob: I water plants.", container="m", **given)
        assert own["accepted"]
        assert not own["cached"]
        assert own["created_containers"] == ["m"]
        # A key belongs to an access scope, and to the token without a limit that used it first.
        assert (await stored(same, "Bob: I water plants.", container="m", **given))["cached"]
        assert (await stored(same, "Bob: I ski.", **given))["code"] == "IDEMPOTENCY_CONFLICT"
        again = await stored(owner, "Bob: The merger is on.", topic=SECRET, container="m",
                             idempotency_key="monday")  # fmt: skip
        assert again["cached"]


def keyed(path: str, text: str, container: str) -> Json:
    """Return the body of a route that takes an idempotency key."""
    if "hooks" in path:
        return {
            "session_id": "one",
            "cwd": f"/home/ana/{container}",
            "messages": [{"role": "user", "content": text}],
            "idempotency_key": "monday",
        }
    return {"text": text, "container": container, "idempotency_key": "monday"}


TAKE_KEYS = [
    route.path.replace("{event}", "stop")
    for one in OPERATIONS
    if "idempotency_key" in getattr(one.arguments, "model_fields", {})
    for route in one.http
    if route.path.startswith("/v1/")  # Routes of other products take no key.
]


@pytest.mark.parametrize("path", TAKE_KEYS)
async def test_no_route_tells_of_a_key_beyond_the_scope(running: Running, path: str) -> None:
    """Control: within the scope the key is known, and the answer says so."""
    writer = limited(containers=frozenset({"plants"}))
    async with (
        running.http(await running.token("alice")) as owner,
        running.http(await running.token("alice", writer)) as http,
        running.http(await running.token("alice", writer)) as same,
    ):

        async def send(one: httpx2.AsyncClient, text: str, container: str) -> httpx2.Response:
            return await one.post(path, json=keyed(path, text, container))

        first = await send(owner, "The merger is on.", "deals")
        own = await send(http, "I water plants.", "plants")
        another = await send(same, "I ski in winter.", "plants")
        found = (await http.get("/v1/texts")).json()["texts"]

    assert first.is_success, first.text
    assert own.status_code == first.status_code
    assert another.json()["code"] == "IDEMPOTENCY_CONFLICT"
    assert len(found) == 1


async def test_what_took_the_place_of_a_memory_is_named_within_the_scope_only(
    running: Running,
) -> None:
    work = limited(topics=frozenset({"work"}))
    async with (
        running.http(await running.token("alice")) as owner,
        running.http(await running.token("alice", work)) as http,
    ):
        await data(owner, "store_memory", text="Ann: I live in Lisbon.", topic="work")
        await running.extract()
        (known,) = (await data(http, "inspect_memories"))["memories"]
        text = "Ann: I no longer live in Lisbon. I live in Porto."
        await data(owner, "store_memory", text=text, topic="home")
        await running.extract()

        (shown,) = (await data(http, "inspect_memories", memory_id=known["id"]))["memories"]
        assert (shown["status"], shown["superseded_by"]) == ("superseded", None)
        assert shown["valid_until"] is None
        for query in ("status=superseded", "as_of=2026-02-28", "known_at=2026-03-01"):
            listed = (await http.get(f"/v1/memories?{query}")).json()["memories"]
            assert all(one["superseded_by"] is one["valid_until"] is None for one in listed)
        hits = (await data(http, "search_memories", query="Where does Ann live?"))["results"]
        assert hits
        assert not any({"superseded_by", "valid_until"} & hit.keys() for hit in hits)

        # The positive control: a token without a limit sees it, also if it asks for a topic.
        hits = (await data(owner, "search_memories", query="Lisbon", topic="work"))["results"]
        assert hits
        assert all(hit["superseded_by"] and hit["valid_until"] for hit in hits)
        chain = (await data(owner, "inspect_memories", memory_id=known["id"]))["memories"]
        assert [one["superseded_by"] for one in chain] == [chain[1]["id"], None]
        path = "/v1/memories?status=superseded&topic=work"
        (listed,) = (await owner.get(path)).json()["memories"]
        assert listed["superseded_by"] == chain[1]["id"]


async def test_a_decision_about_a_memory_beyond_the_scope_is_not_shown(running: Running) -> None:
    work = limited(topics=frozenset({"work"}))
    async with (
        running.http(await running.token("alice")) as owner,
        running.http(await running.token("alice", work)) as http,
    ):
        for name, topic, seen in (("Ann", "home", 0), ("Bea", "work", 1)):
            await data(owner, "store_memory", text=f"{name}: I live in Lisbon.", topic="work")
            await running.extract()
            known = (await data(http, "inspect_memories", limit=1))["memories"][0]["id"]
            given = {"text": f"{name}: I live in Porto.", "topic": topic}
            body: Json = {"skill": "consolidate_memories", "input": given}
            task = (await owner.post("/a2a", json=body)).json()
            await running.extract()
            answer = {"resolution": "keep_both"}
            assert (await owner.post(f"/a2a/{task['id']}/resume", json=answer)).status_code < 300
            await running.extract()

            for caller, count in ((http, seen), (owner, 1)):
                chain = (await caller.get(f"/v1/memories/{known}/history")).json()["memories"]
                (shown,) = [one for one in chain if one["id"] == known]
                assert len(shown["decisions"]) == count, (name, topic)


@pytest.mark.parametrize("what", ["memory", "subject", "container", "namespace"])
async def test_what_was_erased_beyond_the_scope_is_taken_like_anything_else(
    running: Running, what: str
) -> None:
    """A text and a task can store it. What was erased within the scope is refused."""
    said = "Ann: I like Zorblattville."
    wanted = {"topics": frozenset({PUBLIC}), "agent_id": "planner"}
    own: Json = {"topic": PUBLIC, "agent_id": "planner"}
    async with running.http(await running.token("alice")) as owner:
        for given in (
            {"topic": SECRET, "container": "x", "agent_id": "planner"},
            {"topic": PUBLIC, "container": "x", "agent_id": "painter"},
        ):
            await data(owner, "store_memory", text=said, **given)
        mine = "Ann: I like Little Rock."
        await data(owner, "store_memory", text=mine, container="x", **own)
        await running.extract()
        memories = (await data(owner, "inspect_memories"))["memories"]
        asked: list[Json] = [{"memory_id": one["id"]} for one in memories]
        if what == "namespace":
            asked = [{"namespace": True}]
        elif what != "memory":
            asked = [{"container": "x"} if what == "container" else {"subject": "Ann"}]
        for body in asked:
            if what == "namespace":
                given = {"confirm": "DELETE MY DATA"}
                await data(owner, "delete_namespace_data", **given)
            else:
                assert (await owner.post("/v1/erasure", json=body)).status_code == 200, body
        await running.extract()
    async with (
        running.http(await running.token("alice")) as owner,
        running.http(await running.token("alice", limited(**wanted))) as http,
    ):
        assert (await stored(http, said, **own))["accepted"]
        body = {"skill": "consolidate_memories", "input": {"text": said, "topic": PUBLIC}}
        assert (await http.post("/a2a", json=body)).status_code == 202
        # Within its scope it is refused under any other labels. This is the positive control.
        assert (await stored(http, mine, container="y", **own))["code"] == "ERASED_CONTENT"
        body["input"]["text"] = mine
        assert (await http.post("/a2a", json=body)).json()["code"] == "ERASED_CONTENT"
        assert (await stored(owner, said))["code"] == "ERASED_CONTENT"
