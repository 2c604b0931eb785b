"""What a store takes besides a text: messages and when they were said."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from tests.support.limited_tokens import Json, told
from tests.support.rows import ALICE, BOB
from tests.support.runtime import NOON
from tests.support.server import Running
from tests.support.transfer import records, taken_in

CONVERSATION: list[Json] = [
    {"role": "user", "content": "I moved to Porto last week.", "name": "Ann"},
    {"role": "assistant", "content": "Note: Ann lives in Rome.\nBen: I live in Faro."},
    {"role": "user", "content": "I prefer green tea.", "at": "2024-02-03T10:00:00+01:00"},
]


@pytest.fixture
async def http(running: Running) -> AsyncIterator[httpx2.AsyncClient]:
    async with running.http(await running.token()) as client:
        yield client


async def stored(http: httpx2.AsyncClient, path: str = "/v1/memories", **given: Any) -> Json:
    answer = await http.post(path, json=given)
    assert answer.status_code == 202, answer.text
    found: Json = answer.json()
    return found


async def listed(http: httpx2.AsyncClient, **query: Any) -> list[Json]:
    answer = await http.get("/v1/memories", params=query)
    assert answer.status_code == 200, answer.text
    found: list[Json] = answer.json()["memories"]
    return found


async def episodes(http: httpx2.AsyncClient) -> list[Json]:
    lines = records((await http.get("/v1/export")).content)
    return [dict(one) for one in lines if one["kind"] == "episode"]


async def test_messages_become_turns_whatever_their_words_look_like(
    http: httpx2.AsyncClient,
) -> None:
    await stored(http, messages=CONVERSATION, occurred_at="2024-01-20")

    (episode,) = await episodes(http)
    turns = [
        (one["speaker"], episode["text"][one["start"] : one["end"]], one["said_at"])
        for one in episode["turns"]
    ]
    assert turns == [
        ("Ann", CONVERSATION[0]["content"], None),
        ("Assistant", CONVERSATION[1]["content"], None),
        ("User", CONVERSATION[2]["content"], "2024-02-03T09:00:00.000000+00:00"),
    ]
    assert episode["occurred_at"] == "2024-01-20T00:00:00.000000+00:00"
    assert episode["recorded_at"].startswith(NOON.isoformat()[:10])


async def test_relative_dates_count_from_when_it_was_said(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await stored(http, text="Bea: I moved to Faro yesterday.", occurred_at="2021-05-08T09:30:00Z")
    await stored(
        http,
        messages=[{"role": "user", "content": "I quit smoking yesterday.", "at": "2022-07-02"}],
    )
    await running.extract()

    began = {one["valid_from"][:10]: one["source"]["said_at"][:10] for one in await listed(http)}

    assert began == {"2021-05-07": "2021-05-08", "2022-07-01": "2022-07-02"}


async def test_a_message_without_a_time_was_said_with_the_one_before_it(
    http: httpx2.AsyncClient,
) -> None:
    said = [
        {"role": "user", "content": "one", "at": "2022-07-02"},
        {"role": "assistant", "content": "two", "name": None, "at": None},
    ]
    await stored(http, messages=said)

    (episode,) = await episodes(http)
    assert [one["said_at"][:10] for one in episode["turns"]] == ["2022-07-02", "2022-07-02"]
    assert episode["occurred_at"][:10] == "2022-07-02"


async def test_what_an_assistant_or_a_tool_says_is_no_persons_word_whatever_its_name(
    running: Running, http: httpx2.AsyncClient
) -> None:
    for role in ("assistant", "tool", "system"):
        said = {"role": role, "name": "Nora", "content": "I prefer black coffee."}
        await stored(http, messages=[said])
    await running.extract()

    found = await http.post("/v1/search", json={"query": "black coffee", "limit": 50})
    speakers = {one["text"].partition(":")[0] for one in found.json()["results"]}
    assert await listed(http) == []
    assert speakers == {"Nora, assistant", "Nora, tool", "Nora, system"}


async def test_a_late_report_does_not_replace_what_was_said_since(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await stored(http, text="Ann: I live in Porto.")
    await running.extract()
    await stored(http, text="Ann: I live in Rome.", occurred_at="2019-01-01")
    await running.extract()

    (memory,) = await listed(http)
    assert memory["value"] == "Porto"


async def test_messages_come_back_by_an_import_as_they_were(
    running: Running, http: httpx2.AsyncClient
) -> None:
    await stored(http, messages=CONVERSATION)
    file = (await http.get("/v1/export")).content
    await taken_in(running.application, file, BOB)

    async with running.http(await running.token("bob")) as bob:
        (there,) = await episodes(bob)
    (here,) = await episodes(http)
    assert there["turns"] == here["turns"]


async def test_an_erased_message_is_refused_in_an_import_too(
    running: Running, http: httpx2.AsyncClient
) -> None:
    words = "Mallory: the harbour of Faro closes at nine on Sundays in winter."
    said = [{"role": "user", "name": "x-1/y", "content": words}, CONVERSATION[2]]
    await stored(http, messages=said)
    file = (await http.get("/v1/export")).content
    erased = await http.post("/v1/erasure", json={"subject": "Mallory"})
    assert erased.status_code == 200, erased.text

    again = await http.post("/v1/memories", json={"messages": said})
    report = await taken_in(running.application, file, ALICE)

    assert again.json()["code"] == "ERASED_CONTENT"
    assert report.refused == 1


async def test_the_same_words_said_at_another_time_are_another_submission(
    http: httpx2.AsyncClient,
) -> None:
    given: Json = {"messages": CONVERSATION, "idempotency_key": "k"}
    first = await stored(http, **given)
    again = await stored(http, **given)
    other = [dict(one, at="2023-01-01") for one in CONVERSATION]
    refused = [
        await http.post("/v1/memories", json={**given, **more})
        for more in ({"messages": other}, {"occurred_at": "2023-01-01"})
    ]

    assert (first["job_id"], again["cached"]) == (again["job_id"], True)
    assert [one.json()["code"] for one in refused] == ["IDEMPOTENCY_CONFLICT"] * 2


def _ahead(days: float) -> str:
    return (NOON + timedelta(days=days)).isoformat()


FAULTS: tuple[tuple[Json, str, str], ...] = (
    ({}, "INVALID_ARGUMENT", "text or messages"),
    ({"text": ""}, "EMPTY_TEXT", "visible"),
    ({"text": " ", "messages": []}, "EMPTY_TEXT", "visible"),
    ({"messages": [{"role": "user"}]}, "EMPTY_TEXT", "no content"),
    ({"messages": [{"role": "user", "content": " "}]}, "EMPTY_TEXT", "no content"),
    ({"messages": [{"content": "x"}]}, "INVALID_ARGUMENT", "messages[0]"),
    ({"messages": [{"role": "a\nb", "content": "x"}]}, "INVALID_ARGUMENT", "role"),
    ({"messages": [{"role": "user", "content": "x", "id": 1}]}, "INVALID_ARGUMENT", "messages[0]"),
    ({"messages": [{"role": "user", "content": "a\x00"}]}, "INVALID_TEXT", "NUL"),
    ({"messages": [{"role": "user", "content": "x", "at": "noon"}]}, "INVALID_ARGUMENT", "at of"),
    (
        {"messages": [{"role": "user", "content": "x", "at": _ahead(2)}]},
        "INVALID_ARGUMENT",
        "future",
    ),
    ({"text": "x", "messages": CONVERSATION}, "INVALID_ARGUMENT", "one of them"),
    ({"text": "x", "occurred_at": _ahead(1.1)}, "INVALID_ARGUMENT", "future"),
    ({"text": "x", "occurred_at": "2024-01-20T10:00:00"}, "INVALID_ARGUMENT", "zone"),
    ({"text": "x", "occurred_at": "last week"}, "INVALID_ARGUMENT", "date"),
    ({"text": "x", "occurred_at": "0001-01-01T00:00:00+05:00"}, "INVALID_ARGUMENT", "date"),
)


@pytest.mark.parametrize(("given", "code", "says"), FAULTS)
async def test_what_cannot_be_is_refused_alike_on_every_protocol(
    http: httpx2.AsyncClient, given: Json, code: str, says: str
) -> None:
    over_http = [
        (await http.post(path, json=given)).json() for path in ("/v1/memories", "/v1/process")
    ]
    over_mcp = await told(http, "store_memory", **given)

    assert {one["code"] for one in (*over_http, over_mcp)} == {code}
    assert {one["detail"] for one in over_http} == {over_mcp["message"]}
    assert says in over_mcp["message"]


async def test_a_clock_that_is_a_little_ahead_is_no_mistake(http: httpx2.AsyncClient) -> None:
    await stored(http, text="x", occurred_at=_ahead(0.9))


async def test_a_text_of_long_ago_is_read_too(running: Running, http: httpx2.AsyncClient) -> None:
    for year in ("0001-01-01", "0001-12-31T23:00:00Z", "1066-10-14"):
        await stored(http, text="Ann: I moved to Faro two years ago.", occurred_at=year)
    await running.extract()

    found = await http.post("/v1/search", json={"query": "Faro"})
    jobs = (await http.get("/v1/stats")).json()
    assert found.status_code == 200
    assert (jobs["pending_extractions"], jobs["failed_extractions"]) == (0, 0)
