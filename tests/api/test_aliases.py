"""The bodies and names that the clients of other servers use to send texts."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from recall_server.api.mcp import aliases_of
from recall_server.api.operations import OPERATIONS
from recall_server.domain.permissions import Rights, Scope
from recall_server.services.auth import TokenRequest
from tests.support.a2a_clients import at_work
from tests.support.limited_tokens import Json, data, told
from tests.support.mcp_clients import request
from tests.support.server import Running, Serve
from tests.support.transfer import records

TURN: Json = {
    "user_message": "Remember that I prefer pytest over unittest.",
    "assistant_response": "Understood. I'll keep that in mind.",
    "occurred_at": "2026-02-16T10:00:00Z",
    "user_message_id": "msg-u-1",
    "assistant_message_id": "msg-a-1",
}
PROCESS: Json = {
    "user_id": "alice",
    "containers": [{"id": "thread-abc", "type": "thread"}],
    "scope_policy": {"write_user": "auto", "write_global": "auto", "write_container": True},
    "turn": TURN,
    "metadata": {"app": "host", "source": "chat", "model": "m-1", "trace_id": "t-1", "lang": "en"},
}
INGEST: Json = {
    "namespace": "alice",
    "session_id": "demo-session",
    "user_msg": "We decided to use Postgres with pgvector for memory.",
    "ai_msg": "I will remember that.",
}
ADD: Json = {
    "content": "Ann: I live in Lisbon.",
    "name": "a note",
    "source": "editor",
    "source_model": "m-1",
    "source_description": "notes of a meeting",
    "group_id": "default",
    "tags": ["red"],
    "valid_at": "2024-05-08",
    "metadata": {"project": "red"},
}
READING = TokenRequest(Rights(frozenset({Scope.READ})))


@pytest.fixture
async def http(running: Running) -> AsyncIterator[httpx2.AsyncClient]:
    async with running.http(await running.token()) as client:
        yield client


def called(tool: str) -> Json:
    params = {"name": tool, "arguments": ADD}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


async def only_episode(http: httpx2.AsyncClient) -> Json:
    (episode,) = records((await http.get("/v1/export")).content, "episode")
    return dict(episode)


def said(episode: Json) -> list[tuple[str, str]]:
    return [
        (one["speaker"], episode["text"][one["start"] : one["end"]]) for one in episode["turns"]
    ]


async def test_acmf_hands_in_a_turn(running: Running, http: httpx2.AsyncClient) -> None:
    answer = await http.post("/v1/process", json=PROCESS)
    await running.extract()

    assert answer.status_code == 202, answer.text
    found = answer.json()
    assert (found["accepted"], found["created_user"]) == (True, False)
    assert found["created_containers"] == ["thread-abc"]
    episode = await only_episode(http)
    assert said(episode) == [
        ("User", TURN["user_message"]),
        ("Assistant", TURN["assistant_response"]),
    ]
    assert episode["occurred_at"].startswith("2026-02-16T10:00:00")
    assert episode["container"] == "thread-abc"
    assert [episode[name] for name in ("source_app", "source_model", "source_description")] == [
        *("host", "m-1", "chat")
    ]
    assert episode["trace_id"] == "t-1"
    assert episode["metadata"] == {
        "lang": "en",
        "user_message_id": "msg-u-1",
        "assistant_message_id": "msg-a-1",
    }
    [memory] = (await http.get("/v1/memories")).json()["memories"]
    assert "pytest" in memory["text"]


async def test_camillo_hands_in_an_interaction(running: Running, http: httpx2.AsyncClient) -> None:
    answer = await http.post("/ingest", json=INGEST)
    again = await data(http, "record_interaction", user_msg="I prefer tea.")
    await running.extract()

    assert (answer.status_code, again["queued"]) == (202, True)
    found = records((await http.get("/v1/export")).content, "episode")
    second, first = sorted(found, key=lambda one: len(one["text"]))
    assert said(first) == [("User", INGEST["user_msg"]), ("Assistant", INGEST["ai_msg"])]
    assert said(second) == [("User", "I prefer tea.")]
    assert (first["session_id"], first["source"], second["source"]) == (
        *("demo-session", "http", "mcp"),
    )


async def test_engram_adds_an_episode(running: Running, http: httpx2.AsyncClient) -> None:
    stored = await data(http, "add_memory", **ADD)
    await running.extract()

    job = (await http.get(f"/v1/jobs/{stored['job_id']}")).json()
    episode = await only_episode(http)
    names = ("name", "source_app", "source_model", "source_description", "group_id", "tags")
    assert [episode[name] for name in names] == [
        *("a note", "editor", "m-1", "notes of a meeting", "default", ["red"])
    ]
    assert (episode["text"], episode["metadata"]) == (ADD["content"], ADD["metadata"])
    assert episode["occurred_at"].startswith("2024-05-08")
    assert len(job["memory_ids"]) == 1


async def test_an_episode_is_added_without_extraction_where_that_is_asked_for(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await data(http, "add_memory", content="Ann: I live in Lisbon.", infer=False)
    await running.extract()

    assert (await http.get("/v1/memories")).json()["total"] == 0


async def test_two_sides_of_a_turn_are_two_messages_everywhere(http: httpx2.AsyncClient) -> None:
    given = {"user_message": "I prefer tea.", "assistant_response": "Noted."}
    jobs = [
        (await http.post(path, json=given | {"idempotency_key": "k"})).json()["job_id"]
        for path in ("/v1/memories", "/v1/process")
    ]
    over_mcp = await data(http, "store_memory", **given, idempotency_key="k")

    assert {*jobs, over_mcp["job_id"]} == {jobs[0]}
    assert said(await only_episode(http)) == [("User", "I prefer tea."), ("Assistant", "Noted.")]


@pytest.mark.parametrize("owner", ["bob", "nobody", "ALICE", "../alice"])
async def test_nobody_names_another_namespace_and_learns_whether_there_is_one(
    running: Running, http: httpx2.AsyncClient, owner: str
) -> None:
    await running.token("bob")
    answers = [
        await http.post("/v1/process", json=PROCESS | {"user_id": owner}),
        await http.post("/ingest", json=INGEST | {"namespace": owner}),
    ]
    over_mcp = await told(http, "record_interaction", **(INGEST | {"namespace": owner}))

    assert [one.status_code for one in answers] == [403, 403]
    assert {*(one.json()["code"] for one in answers), over_mcp["code"]} == {"NAMESPACE_NOT_ALLOWED"}
    assert answers[1].json()["detail"] == over_mcp["message"]
    assert owner not in over_mcp["message"]
    assert records((await http.get("/v1/export")).content, "episode") == []


@pytest.mark.parametrize(
    ("path", "given", "says"),
    [
        ("/v1/process", PROCESS | {"containers": [{"id": "a"}, {"id": "b"}]}, "once for each"),
        ("/v1/process", PROCESS | {"container": "a"}, "one of container"),
        ("/v1/process", PROCESS | {"scope_policy": {"write_container": False}}, "scope_policy"),
        ("/v1/process", PROCESS | {"text": "x"}, "one of text"),
        ("/v1/process", PROCESS | {"turn": {}}, "nothing to store"),
        ("/v1/process", PROCESS | {"turn": {"said": "x"}}, "turn"),
        ("/v1/process", PROCESS | {"metadata": {"app": 1}}, "app of metadata"),
        ("/ingest", {"namespace": "alice"}, "nothing to store"),
        ("/ingest", INGEST | {"text": "x"}, "not known to POST /ingest"),
        ("/ingest", INGEST | {"session_id": 7}, "session_id"),
    ],
)
async def test_a_body_that_does_not_fit_is_refused_by_its_own_names(
    http: httpx2.AsyncClient, path: str, given: Json, says: str
) -> None:
    answer = await http.post(path, json=given)

    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "INVALID_ARGUMENT"
    assert says in answer.json()["detail"]


async def test_a_tool_of_another_server_is_refused_by_its_own_names(
    http: httpx2.AsyncClient,
) -> None:
    undated = await told(http, "add_memory", **(ADD | {"valid_at": "now"}))
    empty = await told(http, "add_memory", name="x")

    assert {undated["code"], empty["code"]} == {"INVALID_ARGUMENT"}
    assert "valid_at must be" in undated["message"]
    assert "content" in empty["message"]


async def test_an_alias_is_called_and_not_listed(http: httpx2.AsyncClient) -> None:
    listed = await http.post(
        "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    )
    names = {one["name"] for one in listed.json()["result"]["tools"]}
    aliases = {one.name for one in aliases_of(OPERATIONS)}

    assert aliases == {
        *("add_memory", "record_interaction", "recall_memory", "memory_stats"),
        *("conversation_search", "conversation_search_date", "decision_search"),
        "memory_insights",
        *("search", "get_episodes", "update_episode"),
    }
    assert not names & aliases


async def test_an_alias_needs_the_scope_of_its_operation(running: Running) -> None:
    async with running.http(await running.token("alice", READING)) as http:
        answers: list[Any] = [
            (await http.post("/ingest", json=INGEST)).json()["code"],
            (await http.post("/mcp", json=called("add_memory"))).json()["error"]["data"]["code"],
        ]

    assert answers == ["INSUFFICIENT_SCOPE"] * 2


async def test_camillo_recalls_and_counts_by_its_own_names(
    running: Running, http: httpx2.AsyncClient
) -> None:
    for text in ("Ann: I live in Lisbon.", "Ann: We decided to use Postgres. The pier was busy."):
        await http.post("/v1/memories", json={"text": text})
    await running.extract()
    asked: Json = {"namespace": "alice", "query": "Where does Ann live?", "top_k": 1}
    asked |= {"include_hebbian": True, "include_shared": True}

    answer = await http.post("/recall", json=asked)
    assert [one["text"] for one in answer.json()["results"]] == ["Ann lives in Lisbon."]
    assert await data(http, "recall_memory", **asked) == answer.json()
    assert (await data(http, "memory_stats", namespace="alice"))["total"] == 2
    for given in (
        await http.post("/recall", json=asked | {"namespace": "bob"}),
        await http.post("/recall", json=asked | {"namespace": "nobody"}),
    ):
        assert (given.status_code, given.json()["code"]) == (403, "NAMESPACE_NOT_ALLOWED")


async def test_conversations_and_decisions_are_searched_by_their_own_names(
    running: Running, http: httpx2.AsyncClient
) -> None:
    said = "Ann: We decided to use Postgres. The pier was busy."
    await http.post("/v1/memories", json={"text": said})
    await running.extract()

    spoken = (await data(http, "conversation_search", query="Postgres pier"))["results"]
    assert {one["type"] for one in spoken} == {"episode"}
    decided = (await data(http, "decision_search", query="Postgres pier"))["results"]
    assert {one["type"] for one in decided} == {"decision"}
    for given in ({"domain": "Postgres"}, {"topic": "Postgres"}):
        by_words = (await data(http, "decision_search", **given))["results"]
        assert [one["id"] for one in by_words] == [one["id"] for one in decided]
    narrowed = await data(http, "decision_search", query="Postgres", topic="elsewhere")
    assert narrowed["results"] == []


async def test_conversations_are_listed_by_their_dates(
    running: Running, http: httpx2.AsyncClient
) -> None:
    for text, at in (("Ann: I ski.", "2025-02-01"), ("Ann: I row.", "2026-03-01")):
        await http.post("/v1/memories", json={"text": text, "occurred_at": at})

    found = await data(
        http, "conversation_search_date", start_date="2025-01-01", end_date="2025-12-31"
    )

    assert [one["text"] for one in found["texts"]] == ["Ann: I ski."]


async def test_patterns_are_searched_by_their_own_name(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await http.post("/v1/memories", json={"text": "Ann: I live in Lisbon."})
    await running.extract()

    assert (await data(http, "memory_insights", query="Where does Ann live?"))["results"] == []


async def test_a_merge_of_three_memories_is_found_as_a_pattern(
    running: Running, http: httpx2.AsyncClient
) -> None:
    for who, ends in (("Bob", ("", " at work")), ("Ann", ("", " at work", " at home"))):
        for end in ends:
            said = {"text": f"{who}: I prefer green tea{end}.", "topic": who}
            await http.post("/v1/memories", json=said)
    await running.extract()
    async with at_work(running):
        for topic in ("Bob", "Ann"):
            await data(http, "consolidate_memories", topic=topic, similarity_threshold=0.1)

    found = await data(http, "memory_insights", query="Who prefers green tea?")

    assert (await http.get("/v1/memories")).json()["total"] == 2
    assert {one["topic"] for one in found["results"]} == {"Ann"}


async def test_engram_bounds_a_search_by_its_own_names(
    running: Running, http: httpx2.AsyncClient
) -> None:
    for number in range(12):
        await http.post("/v1/memories", json={"text": f"Ann: Ferry {number} leaves at noon."})
    await running.extract()
    ferry: Json = {"query": "When does the ferry leave?", "search_mode": "keyword"}
    ferry["min_similarity"] = 0.0

    ten = await data(http, "search", **ferry)
    two = (await http.post("/api/v1/search", json={**ferry, "max_results": 2})).json()
    none = await data(http, "search", **ferry | {"min_similarity": 1.0})

    assert [len(one["results"]) for one in (ten, two, none)] == [10, 2, 0]


async def test_what_a_client_says_of_a_text_is_read_back(http: httpx2.AsyncClient) -> None:
    await data(http, "add_memory", **ADD)

    [found] = (await data(http, "get_episodes"))["texts"]

    said_of_it = {one: found[one] for one in ("name", "app", "model", "description", "client")}
    assert said_of_it == {
        "name": "a note",
        "app": "editor",
        "model": "m-1",
        "description": "notes of a meeting",
        "client": "mcp",
    }


async def test_a_text_tagged_so_is_stored_without_extraction(
    running: Running, http: httpx2.AsyncClient
) -> None:
    given = {"text": "Ann: I live in Lisbon.", "tags": ["no_derive"]}
    await http.post("/v1/memories", json=given)
    await running.extract()

    assert (await http.get("/v1/memories")).json()["memories"] == []
    asked = {"query": "Where does Ann live?"}
    assert (await http.post("/v1/search", json=asked)).json()["results"][0]["type"] == "episode"


async def accesses(http: httpx2.AsyncClient) -> int:
    [memory] = records((await http.get("/v1/export")).content, "memory")
    return int(memory["access_count"])


async def test_a_search_that_does_not_reinforce_counts_no_access(
    running: Running, http: httpx2.AsyncClient
) -> None:
    """By default a search counts, and Camillo's tool does not."""
    await http.post("/v1/memories", json={"text": "Ann: I live in Lisbon."})
    await running.extract()
    asked: Json = {"query": "Where does Ann live?"}

    counted = []
    for given in (asked | {"reinforce": False}, asked):
        assert (await http.post("/v1/search", json=given)).json()["results"]
        counted.append(await accesses(http))
    assert (await data(http, "recall_memory", **asked))["results"]
    counted.append(await accesses(http))
    assert (await http.post("/recall", json=asked)).json()["results"]
    counted.append(await accesses(http))

    assert counted == [0, 1, 1, 2]


async def test_engram_lists_labels_and_searches_episodes_by_its_own_names(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await data(http, "add_memory", **ADD)
    await data(
        http, "add_memory", content="Bob: I like tea.", source="phone", valid_at="2025-02-01"
    )
    await running.extract()
    everything = (await data(http, "get_episodes"))["texts"]
    by_source = (await data(http, "get_episodes", source="editor", group_id="default"))["texts"]
    by_group = (await data(http, "get_episodes", group_id="default"))["texts"]
    by_time = (await data(http, "get_episodes", start_time="2025-01-01"))["texts"]
    changed = await data(http, "update_episode", episode_id=by_source[0]["id"], tags=["blue"])
    refused = await told(http, "update_episode", episode_id=by_source[0]["id"], content="x")
    found = await data(http, "search", query="Where does Ann live?", search_mode="keyword")
    status = await data(http, "get_status")

    assert len(everything) == 2
    assert [one["text"] for one in by_source] == [ADD["content"]]
    assert by_group == everything
    assert [one["text"] for one in by_time] == ["Bob: I like tea."]
    assert (changed["tags"], changed["text"]) == (["blue"], ADD["content"])
    assert "content" in refused["message"]
    assert found["results"][0]["text"] == "Ann lives in Lisbon."
    assert (status["status"], status["memories"]) == ("ok", 2)


async def test_engrams_routes_are_other_names_of_the_same(
    running: Running, http: httpx2.AsyncClient
) -> None:
    stored = await http.post("/api/v1/episodes", json=ADD)
    await running.extract()
    [one] = (await http.get("/api/v1/episodes", params={"source": "editor"})).json()["texts"]
    changed = await http.patch(f"/api/v1/episodes/{one['id']}", json={"metadata": {"x": 1}})
    found = await http.post("/api/v1/search", json={"query": "Where does Ann live?"})
    status = await http.get("/api/v1/status")
    async with running.http() as nobody:
        health = [(await nobody.get(path)).json() for path in ("/api/health", "/api/v1/health")]
        closed = await nobody.get("/api/v1/status")

    assert stored.status_code == 202
    assert changed.json()["metadata"] == {"x": 1}
    assert found.json()["total"] > 0
    assert status.json()["status"] == "ok"
    assert [one["status"] for one in health] == ["ok", "ok"]
    assert closed.status_code == 401


async def test_agenternals_routes_list_and_search_memories(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await http.post("/v1/memories:submit", json={"text": "Ana lives in Lisbon."})
    listed = await http.get("/api/memory/archival", params={"type": "fact"})
    own = await http.get("/v1/memories", params={"type": "fact"})
    found = await http.get("/api/memory/search", params={"q": "Where does Ana live?", "limit": 1})
    without = await http.get("/api/memory/search")
    other = await http.get("/api/memory/search", params={"q": "Ana", "query": "Bob"})

    assert listed.json() == own.json()
    assert listed.json()["total"] == 1
    assert [one["text"] for one in found.json()["results"]] == ["Ana lives in Lisbon."]
    assert [one.json()["code"] for one in (without, other)] == ["INVALID_ARGUMENT"] * 2
    assert "q: Field required" in without.json()["detail"]
    assert "takes" in other.json()["detail"]
    assert " q," in other.json()["detail"]


async def test_camillo_counts_by_state_too(running: Running, http: httpx2.AsyncClient) -> None:
    await http.post("/v1/memories:submit", json={"text": "Ana lives in Lisbon."})
    await http.post("/v1/memories:submit", json={"text": "Ana lives in Porto."})
    by_alias = await data(http, "memory_stats")
    asked = (await http.get("/v1/stats", params={"by_status": "true"})).json()
    plain = (await http.get("/v1/stats")).json()

    assert by_alias["by_status"] == asked["by_status"] == {"active": 1, "superseded": 1}
    assert "by_status" not in plain


async def test_toolsets_are_listed_only_where_they_are_set(serve: Serve) -> None:
    engram = {"list_texts", "update_text", "get_status", "get_episodes", "update_episode"}
    engram |= {"add_memory", "search"}
    reviews = {"list_reviews", "answer_review", "relate_memories"}
    reviews |= {"list_aliases", "set_aliases", "remove_alias"}
    others = {"recall_memory", "record_interaction", "memory_stats"}
    others |= {"conversation_search", "conversation_search_date", "decision_search"}
    others |= {"memory_insights"}
    listed = []
    for toolsets in ((), ("engram",), ("engram", "reviews"), ("camillo", "agenternal")):
        async with (
            serve(mcp_toolsets=toolsets) as running,
            running.http(await running.token()) as h,
        ):
            headers, body = request("tools/list", {}, modern=True)
            answer = (await h.post("/mcp", headers=headers, json=body)).json()
            listed.append({one["name"] for one in answer["result"]["tools"]})
            called = await data(h, "list_reviews")
            assert called == {"reviews": []}

    plain, with_engram, with_both, with_others = listed
    assert not plain & (engram | reviews)
    assert with_engram == plain | engram
    assert with_both == plain | engram | reviews
    assert with_others == plain | others
