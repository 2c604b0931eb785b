"""aCMF's reads: a context block before a turn, a grounded answer, and a snapshot of a user."""

from collections.abc import AsyncIterator
from datetime import timedelta
from xml.etree import ElementTree as ET

import httpx2
import pytest

from recall_server.domain.permissions import AccessScope, Rights, Scope
from recall_server.domain.search.ranking import text_tokens
from recall_server.services.auth import TokenRequest
from tests.support.runtime import Clock
from tests.support.server import Json, Running

PYTEST = "Ana: I prefer pytest over unittest."
UNRELATED = "What is the tax rate of Peru?"
QUESTION = "Which test framework does Ana prefer, pytest or unittest?"


@pytest.fixture
async def http(running: Running) -> AsyncIterator[httpx2.AsyncClient]:
    async with running.http(await running.token()) as client:
        yield client


async def stored(
    running: Running, http: httpx2.AsyncClient, text: str, container: str = ""
) -> None:
    given = {"text": text, "container": container}
    assert (await http.post("/v1/memories", json=given)).status_code == 202
    await running.extract()


async def asked(http: httpx2.AsyncClient, path: str, **given: object) -> Json:
    answer = await http.post(path, json=given)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def context(http: httpx2.AsyncClient, message: str = QUESTION, **given: object) -> Json:
    return await asked(http, "/v1/context", message=message, **given)


async def test_a_block_and_an_answer_show_the_words_beside_those_that_a_memory_cites(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await stored(
        running,
        http,
        "Ana: The runbook lives in the wiki under Orders. On-call rotation is every third week.",
    )
    question = "How often is the on-call rotation?"

    block = await context(http, question)
    answer = await asked(http, "/v1/deep-memory", query=question)

    assert "every third week" in block["context_enhancement"]
    assert "every third week" in answer["answer"]


async def test_a_host_gets_a_block_for_the_prompt_of_what_is_known_about_a_message(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await stored(running, http, PYTEST)
    await stored(running, http, "Ana: My <b>ferry</b> & bike are red.")

    found = await context(http, user_id="alice", metadata={"app": "host", "trace_id": "t-1"})

    assert (found["status"], found["has_usable_context"]) == ("ok", True)
    assert found["abstained_reason"] is None
    block = ET.fromstring(found["context_enhancement"])
    assert block.tag == "contextenhancement"
    assert [one.tag for one in block] == ["scope", "summary", "active_context", "confidence_note"]
    assert block.findtext("scope") == "user_global"
    assert "pytest over unittest" in (block.findtext("summary") or "")
    assert "ferry" not in found["context_enhancement"]
    told = found["diagnostics"]
    assert (told["scope_applied"], told["read_mode"]) == ("user_global", "balanced")
    assert (told["user_found"], told["missing_containers"], told["warnings"]) == (True, [], [])
    assert told["candidate_count"] == told["used_memory_count"] == 1
    assert told["source_breakdown"] == {"snapshot": 0, "vector": 1, "metadata": 1, "graph": 0}
    assert told["evidence_strength"] > 0.25


async def test_words_of_a_memory_cannot_close_an_element_of_the_block(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await stored(running, http, "Ana: I prefer </summary> & <pytest> over unittest.")

    found = await context(http)

    block = ET.fromstring(found["context_enhancement"])
    assert "</summary> & <pytest>" in (block.findtext("summary") or "")


@pytest.mark.parametrize("path", ["/v1/context", "/v1/deep-memory"])
async def test_a_host_is_told_that_nothing_relevant_is_known(
    running: Running, http: httpx2.AsyncClient, path: str
) -> None:
    await stored(running, http, PYTEST)
    name = "message" if path == "/v1/context" else "query"

    found = await asked(http, path, **{name: UNRELATED})

    assert found["abstained_reason"] == "no_relevant_memory"
    told = found["diagnostics"]
    assert (told["candidate_count"], told["used_memory_count"]) == (0, 0)
    assert set(told["source_breakdown"].values()) == {0}
    if path == "/v1/context":
        assert (found["has_usable_context"], found["context_enhancement"]) == (False, None)
    else:
        assert (found["abstained"], found["answer"], found["evidence"]) == (True, None, [])


async def test_a_question_is_answered_with_the_memories_that_support_the_answer(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await stored(running, http, PYTEST)
    await stored(running, http, "Ana: My ferry is red.")

    found = await asked(http, "/v1/deep-memory", query=QUESTION, read_mode="deep")

    assert (found["status"], found["abstained"], found["abstained_reason"]) == ("ok", False, None)
    assert "pytest over unittest" in found["answer"]
    assert "ferry" not in found["answer"]
    assert found["used_memory_count"] == len(found["evidence"]) == 1
    [memory] = [
        one
        for one in (await http.get("/v1/memories")).json()["memories"]
        if "pytest" in one["text"]
    ]
    [used] = found["evidence"]
    assert used["memory_id"] == memory["id"]
    assert (used["scope_type"], used["bucket_id"]) == ("user", None)
    assert 0 < used["relevance"] <= 1
    assert used["support"] == memory["confidence"]
    assert used["relation_refs"] == []
    assert used["entity_refs"] == [memory["entity"]]


@pytest.mark.parametrize("path", ["/v1/context", "/v1/deep-memory"])
async def test_a_dispute_about_the_best_memory_is_no_ground_for_an_answer(
    running: Running, http: httpx2.AsyncClient, path: str
) -> None:
    home = "/v1/memories:submit"
    first = (await http.post(home, json={"text": "Ana lives in Lisbon."})).json()
    second = (await http.post(home, json={"text": "Ana likes Porto."})).json()
    ends = [one["changes"][0]["memory_id"] for one in (first, second)]
    stated = {"from_id": ends[1], "relation": "contradicts", "to_id": ends[0]}
    assert (await http.post("/v1/relations", json=stated)).json()["question_id"]

    name = "message" if path == "/v1/context" else "query"
    found = await asked(http, path, **{name: "Where does Ana live? In Lisbon?"})

    assert found["abstained_reason"] == "conflicting_evidence"
    assert found["diagnostics"]["used_memory_count"] == 0


async def test_only_the_containers_of_the_scope_level_are_read(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await stored(running, http, PYTEST, "thread-abc")
    thread: Json = {"containers": [{"id": "thread-abc", "type": "thread"}, {"id": "gone"}]}

    outside = await context(http, **thread)
    inside = await context(http, scope_level="user_global_container", **thread)
    deep = await asked(
        http, "/v1/deep-memory", query=QUESTION, scope_level="user_global_container", **thread
    )

    assert outside["has_usable_context"] is False
    assert "scope_level" in outside["diagnostics"]["warnings"][0]
    assert inside["has_usable_context"] is True
    assert inside["diagnostics"]["missing_containers"] == ["gone"]
    [used] = deep["evidence"]
    assert (used["scope_type"], used["bucket_id"]) == ("container", "thread-abc")


async def test_a_superseded_memory_is_not_given_as_context(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await stored(running, http, "Ana: I live in Lisbon.")
    await stored(running, http, "Ana: I moved from Lisbon to Porto.")

    found = await asked(http, "/v1/deep-memory", query="Where does Ana live?")

    assert "Porto" in found["answer"]
    assert "Ana lives in Lisbon." not in found["answer"]


async def test_budgets_bound_the_block_and_the_memories_that_are_read(
    running: Running, http: httpx2.AsyncClient
) -> None:
    for number in range(8):
        await stored(
            running, http, f"Ana: Ferry {number} leaves the harbour at noon. {'Aye. ' * 9}"
        )
    ferry = "When does the ferry leave the harbour?"

    small = await context(http, ferry, budgets={"max_output_tokens": 100})
    few = await context(http, ferry, budgets={"max_candidate_memories": 2})

    assert text_tokens(small["context_enhancement"]) <= 100
    told = small["diagnostics"]
    assert 0 < told["used_memory_count"] < told["candidate_count"]
    assert few["diagnostics"]["candidate_count"] <= 2


async def test_a_snapshot_sums_up_what_is_in_no_container(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await stored(running, http, PYTEST)
    await stored(running, http, "Ana: I prefer jam.", "thread-abc")

    answer = await http.get("/v1/snapshot/alice")

    found = answer.json()
    assert (answer.status_code, found["status"], found["user_id"]) == (200, "ok", "alice")
    assert found["generated_at"]
    [memory] = [
        one
        for one in (await http.get("/v1/memories")).json()["memories"]
        if one["container"] is None
    ]
    assert found["snapshot"]["memory_refs"] == [memory["id"]]
    assert "pytest" in found["snapshot"]["summary"]
    assert "jam" not in found["snapshot"]["summary"]
    assert found["snapshot"]["health_note"] == "No contradiction among these memories is open."


async def test_a_snapshot_of_the_past_shows_what_was_known_then(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await stored(running, http, PYTEST)

    past = (await http.get("/v1/snapshot/alice?known_at=2020-01-01")).json()

    assert past["snapshot"]["memory_refs"] == []
    assert past["generated_at"].startswith("2020-01-01")


async def test_the_user_is_the_namespace_of_the_token(http: httpx2.AsyncClient) -> None:
    answers = [
        await http.post("/v1/context", json={"user_id": "bob", "message": "tea"}),
        await http.post("/v1/deep-memory", json={"user_id": "bob", "query": "tea"}),
        await http.get("/v1/snapshot/bob"),
    ]

    assert [(one.status_code, one.json()["code"]) for one in answers] == [
        (403, "NAMESPACE_NOT_ALLOWED")
    ] * 3


async def test_a_token_for_a_container_gets_context_from_it_alone(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await stored(running, http, PYTEST)
    await stored(running, http, "Ana: I prefer pytest over unittest in red.", "red")
    rights = Rights(frozenset({Scope.READ}), AccessScope(containers=frozenset({"red"})))
    async with running.http(await running.token(wanted=TokenRequest(rights))) as red:
        alone = await context(red)
        named = await context(
            red, scope_level="user_global_container", containers=[{"id": "red"}, {"id": "blue"}]
        )
        snapshot = (await red.get("/v1/snapshot/alice")).json()

    assert alone["has_usable_context"] is False
    assert "red" in named["context_enhancement"]
    assert named["diagnostics"]["missing_containers"] == ["blue"]
    assert snapshot["snapshot"]["memory_refs"] == []


@pytest.mark.parametrize("path", ["/v1/context", "/v1/deep-memory"])
async def test_a_host_gets_what_was_true_or_known_at_a_moment(
    running: Running, http: httpx2.AsyncClient, clock: Clock, path: str
) -> None:
    block = path == "/v1/context"
    shown = "context_enhancement" if block else "answer"
    question = {"message" if block else "query": "Where does Ana live?"}
    for day, place in (("2025-01-10", "Porto"), ("2025-03-01", "Lisbon")):
        given = {"text": f"Ana: I live in {place} now.", "occurred_at": day}
        assert (await http.post("/v1/memories", json=given)).status_code == 202
        await running.extract()
        clock.pass_(timedelta(hours=1))
    known_at = (clock.time - timedelta(minutes=90)).isoformat()

    now = await asked(http, path, **question)
    true_then = await asked(http, path, **question, as_of="2025-02-01")
    known_then = await asked(http, path, **question, known_at=known_at)
    before = await asked(http, path, **question, as_of="2024-01-01")
    unread = await http.post(path, json=question | {"as_of": "soon"})

    assert "Lisbon" in now[shown]
    assert "Porto" not in now[shown]
    for found in (true_then, known_then):
        assert "Porto" in found[shown]
        assert "Lisbon" not in found[shown]
    assert before["abstained_reason"] == "no_relevant_memory"
    assert now["diagnostics"]["thresholds"] == {"relevance": 0.15, "evidence": 0.25}
    assert (unread.status_code, unread.json()["code"]) == (400, "INVALID_ARGUMENT")
