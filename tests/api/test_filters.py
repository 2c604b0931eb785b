"""Filters of searches and lists: metadata, time, topic and type."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from recall_server.domain.memory import MemoryType
from tests.support.limited_tokens import Json, limited, told
from tests.support.runtime import Clock
from tests.support.server import Running

# Each text has its topic, its metadata and the time when it was said.
TEXTS: tuple[tuple[str, str, Json, str], ...] = (
    ("heron", "birds", {"project": "red", "lines": 3, "done": True}, "2021-05-08"),
    ("otter", "river", {"project": "red", "lines": 3.5, "done": None}, "2022-05-08"),
    ("stork", "birds", {"project": ["red"], "lines": "3", "more": {"a": 1}}, "2023-05-08"),
    ("quail", "birds", {}, "2024-05-08T10:00:00Z"),
)
FILTERS: tuple[tuple[Json, set[str]], ...] = (
    ({"metadata": {"project": "red"}}, {"heron", "otter"}),
    ({"metadata": {"project": "Red"}}, set()),
    ({"metadata": {"lines": 3}}, {"heron"}),
    ({"metadata": {"lines": 3.0}}, {"heron"}),
    ({"metadata": {"lines": "3"}}, {"stork"}),
    ({"metadata": {"done": True}}, {"heron"}),
    ({"metadata": {"done": 1}}, set()),
    ({"metadata": {"done": None}}, {"otter"}),
    ({"metadata": {"project": "red", "lines": 3.5}}, {"otter"}),
    ({"metadata": {'it\'s "odd"': "x"}}, set()),
    ({"said_after": "2022-05-08"}, {"otter", "stork", "quail"}),
    ({"said_before": "2022-05-08"}, {"heron"}),
    ({"said_after": "2022-05-08", "said_before": "2024-05-08T10:00:00Z"}, {"otter", "stork"}),
    ({"said_after": "2024-05-08T11:59:00+02:00"}, {"quail"}),
    ({"said_after": "9999-12-31"}, set()),
    ({"said_before": "0001-01-01"}, set()),
    ({"topic": "birds"}, {"heron", "stork", "quail"}),
    ({"topic": "birds", "said_before": "2022-01-01", "metadata": {"project": "red"}}, {"heron"}),
)


@pytest.fixture
async def ann(running: Running) -> AsyncIterator[httpx2.AsyncClient]:
    """Store texts. Each becomes a memory and a turn that no memory cites."""
    async with running.http(await running.token()) as http:
        for word, topic, metadata, said in TEXTS:
            given: Json = {"text": f"Ann: I prefer the {word}.\nAnn: The {word} is tall?"}
            given |= {"topic": topic, "metadata": metadata, "occurred_at": said}
            stored = await http.post("/v1/memories", json=given)
            assert stored.status_code == 202, stored.text
        await running.extract()
        yield http


async def search(http: httpx2.AsyncClient, **given: Any) -> list[Json]:
    query = " ".join(word for word, *_ in TEXTS)
    answer = await http.post("/v1/search", json={"query": query, "limit": 50, **given})
    assert answer.status_code == 200, answer.text
    found: list[Json] = answer.json()["results"]
    return found


def words(texts: list[str]) -> set[str]:
    return {word for word, *_ in TEXTS for text in texts if word in text}


async def test_a_search_finds_memories_and_passages_that_pass_all_filters(
    ann: httpx2.AsyncClient,
) -> None:
    for given, expected in FILTERS:
        found = await search(ann, **given)
        for kind in (True, False):
            texts = [one["text"] for one in found if (one["type"] == "episode") is kind]
            assert words(texts) == expected, (given, kind)


async def test_a_search_and_a_list_go_by_the_app_the_group_and_the_expiry_of_a_text(
    running: Running,
) -> None:
    stored: tuple[tuple[str, Json], ...] = (
        ("heron", {"source": {"app": "mail"}, "expires_at": "2999-01-01"}),
        ("otter", {"source": {"app": "chat"}, "expires_at": "2999-03-01T12:00:00Z"}),
        ("stork", {}),
    )
    filters: tuple[tuple[Json, set[str]], ...] = (
        ({"app": "mail"}, {"heron"}),
        ({"app": "Mail"}, set()),
        ({"app": "' OR 1=1"}, set()),
        ({"group_id": "team"}, {"quail"}),
        ({"group_id": "team", "app": "engram"}, {"quail"}),
        ({"group_id": "team", "app": "mail"}, set()),
        ({"expires_after": "2999-03-01"}, {"otter"}),
        ({"expires_before": "2999-03-01"}, {"heron"}),
        ({"expires_before": "2999-03-01T12:00:00Z"}, {"heron"}),
        ({"expires_after": "0001-01-01"}, {"heron", "otter"}),
    )
    async with running.http(await running.token()) as http:
        for word, labels in stored:
            text = {"text": f"Ann: I prefer the {word}.\nAnn: The {word} is tall?", **labels}
            assert (await http.post("/v1/memories", json=text)).status_code == 202
        episode = {
            "content": "Ann: I prefer the quail.\nAnn: The quail is tall?",
            "source": "engram",
            "group_id": "team",
        }
        assert (await http.post("/api/v1/episodes", json=episode)).status_code in (200, 202)
        await running.extract()

        for given, expected in filters:
            found = await search(http, **given)
            for kind in (True, False):
                texts = [one["text"] for one in found if (one["type"] == "episode") is kind]
                assert words(texts) == expected, (given, kind)
            page = (await http.get("/v1/memories", params=given)).json()
            assert words([one["text"] for one in page["memories"]]) == expected, given
            assert page["total"] == len(expected), given
            listed = (await http.get("/v1/texts", params=given)).json()["texts"]
            assert words([one["text"] for one in listed]) == expected, given
        engram = {"query": "heron quail", "source": "engram", "limit": 50}
        by_source = (await http.post("/api/v1/search", json=engram)).json()["results"]
        assert words([one["text"] for one in by_source]) == {"quail"}


async def test_a_filter_finds_a_text_by_its_new_labels_at_once(running: Running) -> None:
    async with running.http(await running.token()) as http:
        text: Json = {"text": "Ann: I prefer the heron.\nAnn: The heron is tall?", "tags": ["a"]}
        await http.post("/v1/memories", json=text)
        await running.extract()
        assert words([one["text"] for one in await search(http, tags=["a"])]) == {"heron"}
        assert await search(http, tags=["b"]) == []
        assert await search(http, expires_after="2999-01-01") == []

        [found] = (await http.get("/v1/texts")).json()["texts"]
        new: Json = {"tags": ["b"], "expires_at": "2999-01-01"}
        changed = await http.patch(f"/v1/texts/{found['id']}", json=new)
        assert changed.status_code == 200, changed.text

        for given in ({"tags": ["b"]}, {"expires_after": "2999-01-01"}):
            hits = await search(http, **given)
            assert len(hits) >= 2, given
        assert await search(http, tags=["a"]) == []


async def test_a_filter_finds_what_expires_as_before_an_undo(running: Running) -> None:
    """The control: before the undo it expires at no such moment."""
    async with running.http(await running.token()) as http:
        for expires in ("2999-01-01", "2999-05-01"):
            text: Json = {"text": "Ann: I prefer the heron.", "expires_at": expires}
            await http.post("/v1/memories", json=text)
            await running.extract()
        [memory] = (await http.get("/v1/memories")).json()["memories"]
        until: Json = {"expires_before": "2999-02-01", "type": "preference"}
        assert await search(http, **until) == []

        change = (await http.get("/v1/changes")).json()["changes"][0]["id"]
        undone = await http.post(f"/v1/changes/{change}/undo", json={})
        assert undone.status_code == 200, undone.text

        assert [one["id"] for one in await search(http, **until)] == [memory["id"]]


async def test_a_list_has_the_memories_that_pass_all_filters(ann: httpx2.AsyncClient) -> None:
    for given, expected in FILTERS:
        page = (await told(ann, "inspect_memories", **given))["data"]
        assert words([one["text"] for one in page["memories"]]) == expected, given
        assert page["total"] == len(page["memories"]) == len(expected), given


async def test_a_query_has_metadata_as_json(ann: httpx2.AsyncClient) -> None:
    given = {"metadata": '{"project": "red", "lines": 3}', "said_before": "2022-01-01"}
    page = (await ann.get("/v1/memories", params=given)).json()

    assert words([one["text"] for one in page["memories"]]) == {"heron"}


async def test_a_search_for_a_type_finds_memories_only(ann: httpx2.AsyncClient) -> None:
    preferences = await search(ann, type="preference")

    assert {one["type"] for one in preferences} == {"preference"}
    assert words([one["text"] for one in preferences]) == {word for word, *_ in TEXTS}
    assert await search(ann, type="decision") == []


async def test_a_layer_holds_memories_of_its_kind_and_the_first_one_passages(
    ann: httpx2.AsyncClient,
) -> None:
    noted = {"text": "We saw the heron, the otter and a quail.", "infer": False, "type": "episodic"}
    await ann.post("/v1/memories", json=noted)

    semantic = await search(ann, layer="semantic")
    episodic = await search(ann, layer="episodic")

    assert {one["type"] for one in semantic} == {"preference"}
    assert {one["type"] for one in episodic} >= {"episode"}
    assert {one["type"] for one in episodic} <= {"episode", "episodic"}
    assert await search(ann, layer="schema") == []
    listed = (await ann.get("/v1/memories", params={"layer": "semantic"})).json()
    assert {one["layer"] for one in listed["memories"]} == {"semantic"}


async def test_a_type_is_taken_by_the_names_that_other_memory_systems_have_for_it(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    kept = {"semantic": "fact", "procedural": "procedure", "identity": "profile", "core": "core"}
    for given in kept:
        text = {"text": f"Of the kind {given}.", "infer": False, "type": given}
        answer = await ann.post("/v1/memories", json=text)
        assert answer.status_code == 202, answer.text
    await running.extract()

    for given, type_ in kept.items():
        found = await search(ann, query=f"kind {given}", type=given)
        assert [one["type"] for one in found][:1] == [type_]
    counts = (await ann.get("/v1/stats")).json()["by_type"]
    assert counts == {
        "preference": len(TEXTS), "fact": 1, "decision": 0, "procedure": 1, "profile": 1, "core": 1
    }  # fmt: skip


async def test_a_token_for_a_type_sees_nothing_of_the_types_beside_it(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    for type_ in ("fact", "profile"):
        text = {"text": f"The stork has a {type_}.", "infer": False, "type": type_}
        await ann.post("/v1/memories", json=text)
    await running.extract()

    token = await running.token("alice", limited(types=frozenset({MemoryType.FACT})))
    async with running.http(token) as http:
        assert [one["type"] for one in await search(http, query="stork")] == ["fact"]


async def test_a_filter_goes_by_when_a_turn_was_said(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    said = [
        {"role": "user", "content": "I prefer the heron by day.", "at": "2019-02-03"},
        {"role": "user", "content": "I prefer the heron by night.", "at": "2020-02-03"},
    ]
    await ann.post("/v1/memories", json={"messages": said})
    await running.extract()

    found = await search(ann, said_before="2020-01-01")
    assert found
    assert all("by day" in one["text"] for one in found)


async def test_a_filter_never_widens_what_a_token_may_see(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    token = await running.token("alice", limited(topics=frozenset({"river"})))
    async with running.http(token) as http:
        assert await search(http, topic="birds") == []
        assert words([one["text"] for one in await search(http, topic="river")]) == {"otter"}


async def test_a_new_text_is_found_by_a_filter_that_was_used_before(
    running: Running, ann: httpx2.AsyncClient
) -> None:
    before = await search(ann, metadata={"project": "red"})
    given = {"text": "Ann: I prefer the stork.", "metadata": {"project": "red"}}
    await ann.post("/v1/memories", json=given)
    await running.extract()

    assert len(await search(ann, metadata={"project": "red"})) == len(before) + 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"metadata": {"a": [1]}}, "texts, numbers"),
        ({"metadata": {"a": {}}}, "texts, numbers"),
        ({"metadata": {"a": "b" * 4_097}}, "4096 bytes"),
        ({"metadata": "{"}, "metadata"),
        ({"metadata": '{"a": NaN}'}, ""),
        ({"metadata": "[" * 10_000}, "metadata"),
        ({"said_after": "yesterday"}, "said_after must be"),
        ({"said_before": "2024-05-08T10:00:00"}, "zone"),
        ({"said_after": "2024-05-08", "said_before": "2024-05-07"}, "said_after lies behind"),
        ({"valid_after": "9999-12-31", "valid_before": "0001-01-01"}, "valid_after lies behind"),
        ({"recorded_after": "soon"}, "recorded_after must be"),
        ({"valid_before": "2024-05-08T10:00:00"}, "zone"),
        ({"type": "wish"}, "type"),
    ],
)
async def test_a_filter_that_nothing_can_pass_is_refused_alike_on_every_protocol(
    running: Running, given: Json, says: str
) -> None:
    async with running.http(await running.token()) as http:
        over_http = (await http.post("/v1/search", json={"query": "x", **given})).json()
        over_mcp = await told(http, "search_memories", query="x", **given)
        listed = await told(http, "inspect_memories", **given)

    if says:
        assert [over_mcp["code"], listed["code"]] == ["INVALID_ARGUMENT"] * 2
        assert over_http["detail"] == over_mcp["message"] == listed["message"]
        assert says in over_mcp["message"]
    else:
        assert over_http["results"] == []


async def test_what_is_found_and_listed_is_limited_by_when_it_was_recorded_and_began_to_be_true(
    running: Running, clock: Clock
) -> None:
    """The lower bound is included and the upper one is not. A passage is true from the time when it
    was said.
    """
    async with running.http(await running.token()) as http:
        for text in ("Ann: I moved to Porto last year.", "Ann: I prefer figs."):
            clock.pass_(timedelta(days=2))
            await http.post("/v1/memories", json={"text": text})
            await running.extract()
        between = f"{clock() - timedelta(days=1):%Y-%m-%d}"
        limits: tuple[tuple[Json, set[str]], ...] = (
            ({"recorded_after": between}, {"figs"}),
            ({"recorded_before": between}, {"Porto"}),
            ({"valid_before": "2025-01-01"}, set()),
            ({"valid_before": "2025-02-01"}, {"Porto"}),
            ({"valid_after": "2025-02-01"}, {"figs"}),
            ({"valid_after": "2025-01-01", "recorded_before": between}, {"Porto"}),
            ({"recorded_after": between, "recorded_before": between}, set()),
        )
        for given, wanted in limits:
            listed = (await http.get("/v1/memories", params=given)).json()
            assert {one for one in ("Porto", "figs") if one in str(listed)} == wanted, given
            assert listed["total"] == len(wanted), given
            asked = {"query": "Ann Porto figs", "limit": 50, **given}
            found = (await http.post("/v1/search", json=asked)).json()["results"]
            memories = [one["text"] for one in found if one["type"] != "episode"]
            assert {one for one in ("Porto", "figs") if one in str(memories)} == wanted, given
