"""Memories inherit the tags of their text, and searches and lists filter by tags."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from recall_server.api import operations
from recall_server.domain.episode import TAG_CHARS_MAX, TAGS_MAX
from tests.support.a2a_clients import at_work
from tests.support.limited_tokens import Json, data
from tests.support.rows import BOB
from tests.support.server import Running
from tests.support.transfer import records, taken_in

TEXTS: tuple[tuple[str, list[str]], ...] = (
    ("Ann: I prefer the heron.\nAnn: The quay is long.", ["birds", "red"]),
    ("Ann: I like the otter.\nAnn: The tower is tall.", ["red"]),
    ("Ann: I live in Porto.\nAnn: The path is wide.", []),
)


@pytest.fixture
async def ann(running: Running) -> AsyncIterator[httpx2.AsyncClient]:
    """Store memories and turns with two tags, with one, and with none."""
    async with running.http(await running.token("alice")) as http:
        for text, tags in TEXTS:
            stored = await http.post("/v1/memories", json={"text": text, "tags": tags})
            assert stored.status_code == 202, stored.text
        await running.extract()
        yield http


async def hits(http: httpx2.AsyncClient, *tags: str) -> list[Json]:
    asked = {"query": "heron otter Porto quay tower path", "limit": 50, "tags": tags}
    found: list[Json] = (await http.post("/v1/search", json=asked)).json()["results"]
    return found


async def listed(http: httpx2.AsyncClient, *tags: str) -> tuple[set[str], int]:
    page = (await http.get("/v1/memories", params={"tags": list(tags)})).json()
    return {one["text"] for one in page["memories"]}, page["total"]


async def test_a_search_finds_memories_and_turns_that_have_all_of_its_tags(
    ann: httpx2.AsyncClient,
) -> None:
    everything, red, both = await hits(ann), await hits(ann, "red"), await hits(ann, "red", "birds")

    assert {tuple(one.get("tags", ())) for one in red} == {("red",), ("birds", "red")}
    assert {tuple(one["tags"]) for one in both} == {("birds", "red")}
    assert {one["type"] == "episode" for one in both} == {True, False}
    assert len(everything) > len(red) > len(both)
    assert await hits(ann, "Red") == []


async def test_a_page_lists_the_memories_that_have_all_of_its_tags(ann: httpx2.AsyncClient) -> None:
    every, red, both = (
        await listed(ann),
        await listed(ann, "red"),
        await listed(ann, "red", "birds"),
    )

    assert (every[1], red[1], both[1]) == (3, 2, 1)
    assert [len(texts) for texts, _ in (every, red, both)] == [3, 2, 1]
    assert both[0] < red[0] < every[0]


async def test_mcp_takes_and_shows_tags_too(running: Running) -> None:
    async with running.http(await running.token("alice")) as http:
        await data(http, "store_memory", text="Bea: I prefer tea.", tags=["drinks", "drinks"])
        await running.extract()
        [memory] = (await data(http, "inspect_memories", tags=["drinks"]))["memories"]
        found = await data(http, "search_memories", query="tea", tags=["drinks"])

    assert memory["tags"] == ["drinks"]
    assert [one["tags"] for one in found["results"]] == [["drinks"]]


@pytest.mark.parametrize(
    "tags",
    [
        ["a" * (TAG_CHARS_MAX + 1)],
        [" "],
        ["red\nblue"],
        ["red\x00"],
        [str(number) for number in range(TAGS_MAX + 1)],
    ],
)
@pytest.mark.parametrize("path", ["/v1/memories", "/v1/search"])
async def test_a_tag_that_nothing_can_have_is_refused(
    running: Running, path: str, tags: list[str]
) -> None:
    given: dict[str, Any] = {"text": "x"} if path == "/v1/memories" else {"query": "x"}
    async with running.http(await running.token("alice")) as http:
        refused = await http.post(path, json={**given, "tags": tags})
        control = await http.post(path, json={**given, "tags": ["a" * TAG_CHARS_MAX]})

    assert refused.status_code == 400, refused.text
    assert refused.json()["code"] in {"INVALID_ARGUMENT", "INVALID_TEXT"}
    assert control.status_code in {200, 202}


async def test_the_same_text_with_other_tags_is_another_submission(running: Running) -> None:
    async with running.http(await running.token("alice")) as http:
        given = {"text": "x", "idempotency_key": "k"}
        first = await http.post("/v1/memories", json={**given, "tags": ["red", "blue"]})
        again = await http.post("/v1/memories", json={**given, "tags": ["blue", "red"]})
        other = await http.post("/v1/memories", json={**given, "tags": ["blue"]})

    assert first.json()["job_id"] == again.json()["job_id"]
    assert other.json()["code"] == "IDEMPOTENCY_CONFLICT"


async def test_a_merge_has_the_tags_of_all_that_it_states(running: Running) -> None:
    async with running.http(await running.token("alice")) as http:
        for text, tag in (("I prefer green tea.", "red"), ("I prefer green tea at work.", "blue")):
            await data(http, "store_memory", text=f"Ann: {text}", tags=[tag])
        await running.extract()
        before = (await http.get("/v1/memories")).json()["total"]
        async with at_work(running):
            await data(http, "consolidate_memories", topic="general", similarity_threshold=0.1)
        memories = (await http.get("/v1/memories")).json()["memories"]

    assert before == 2
    assert [one["tags"] for one in memories] == [["blue", "red"]]


async def test_an_export_has_tags_and_an_import_brings_them_back(
    ann: httpx2.AsyncClient, running: Running
) -> None:
    file = (await ann.get("/v1/export")).content
    await taken_in(running.application, file, BOB)

    async with running.http(await running.token("bob")) as bob:
        texts, total = await listed(bob, "red", "birds")

    assert (len(texts), total) == (1, 1)
    kept = [one["tags"] for one in records(file) if one["kind"] == "episode"]
    assert sorted(kept, key=str) == sorted([["birds", "red"], ["red"], None], key=str)


def test_every_operation_that_filters_takes_tags() -> None:
    taking = {one.name for one in operations.OPERATIONS if "tags" in one.arguments.model_fields}

    storing = {"store_memory", "submit_memory", "propose_change", "consolidate_memories"}
    storing |= {"update_text"}
    assert taking == storing | {"inspect_memories", "search_memories", "list_texts"}
