"""Statements about one attribute may arrive in any order."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import permutations
from random import Random
from typing import Any

import httpx2
import pytest

from tests.support.length import at_full_length, has_full_length, on_both_at_full_length
from tests.support.runtime import Clock
from tests.support.server import Running

Json = dict[str, Any]
# Each place with the day when it was said, and the next day on which another was.
PLACES = (
    ("Porto", "2025-01-01", "2025-02-01"),
    ("Lisbon", "2025-02-01", "2025-03-01"),
    ("Ghent", "2025-03-01", "2025-04-01"),
    ("Oslo", "2025-04-01", None),
)
EACH = at_full_length(1, otherwise=3)
"""Of all orders, one of so many."""
ORDERS = list(permutations(PLACES))[::EACH]

# No memory is made of it, so a search shows the whole message too.
RAIN = " It rained all day and the bus was late again."


async def say(http: httpx2.AsyncClient, place: str, day: str, more: str = "") -> None:
    given = {"text": f"Ana: I live in {place} now.{more}", "occurred_at": day}
    answer = await http.post("/v1/memories", json=given)
    assert answer.status_code == 202, answer.text


async def timeline(http: httpx2.AsyncClient, **past: str) -> Json:
    asked = {"entity": "Ana", "attribute": "lives_in", **past}
    answer = await http.get("/v1/timeline", params=asked)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def intervals(found: Json) -> list[tuple[str, str, str | None]]:
    shown = [(one["value"], one["true"]["from"], one["true"]["until"]) for one in found["values"]]
    return [(value, start[:10], end and end[:10]) for value, start, end in shown]


@on_both_at_full_length
@has_full_length
async def test_statements_in_any_order_make_the_same_timeline(running: Running) -> None:
    for number, order in enumerate(ORDERS):
        async with running.http(await running.token(f"ana{number}")) as http:
            for place, day, _ in order:
                await say(http, place, day)
                await running.extract()
            found = await timeline(http)

        assert intervals(found) == list(PLACES), [place for place, *_ in order]
        assert (found["overlaps"], found["gaps"]) == ([], []), [place for place, *_ in order]


async def test_a_late_report_between_two_others_is_undone_exactly(running: Running) -> None:
    async with running.http(await running.token()) as http:
        for place, day in (("Porto", "2025-01-01"), ("Oslo", "2025-04-01")):
            await say(http, place, day)
            await running.extract()
        before = await timeline(http)
        await say(http, "Ghent", "2025-03-01")
        await running.extract()
        between = await timeline(http)
        true_then = {"query": "Where does Ana live?", "as_of": "2025-03-15"}
        hits = (await http.post("/v1/search", json=true_then)).json()["results"]
        change = (await http.get("/v1/changes")).json()["changes"][0]["id"]
        undone = await http.post(f"/v1/changes/{change}/undo", json={})
        after = await timeline(http)

    assert undone.status_code == 200, undone.text
    assert intervals(between) == [
        ("Porto", "2025-01-01", "2025-03-01"),
        ("Ghent", "2025-03-01", "2025-04-01"),
        ("Oslo", "2025-04-01", None),
    ]
    memories = [one["text"] for one in hits if one["type"] != "episode"]
    assert ["Ghent" in one for one in memories] == [True]
    assert after == before


RETURNS = (
    ("Porto", "Lisbon", "Porto"),
    ("Porto", "Porto", "Lisbon", "Porto"),
    ("Porto", "Lisbon", "Porto", "Ghent"),
    ("Porto", "Lisbon", "Lisbon", "Porto"),
)


def dated(places: Sequence[str]) -> list[tuple[str, str]]:
    """Say one place a month."""
    return [(place, f"2025-{month:02}-01") for month, place in enumerate(places, 1)]


def chain(said: Sequence[tuple[str, str]]) -> list[tuple[str, str, str | None]]:
    """Return the intervals that statements in the order of time make."""
    changes = [one for place, one in enumerate(said) if not place or said[place - 1][0] != one[0]]
    ends = [*(day for _, day in changes[1:]), None]
    return [(value, day, end) for (value, day), end in zip(changes, ends, strict=True)]


async def check(running: Running, name: str, said: Sequence[tuple[str, str]]) -> None:
    async with running.http(await running.token(name)) as http:
        for place, day in said:
            await say(http, place, day)
            await running.extract()
        found = await timeline(http)
        asked = {"query": "Where does Ana live?", "limit": 5}
        hits = (await http.post("/v1/search", json=asked)).json()["results"]

    wanted = chain(sorted(said, key=lambda one: one[1]))
    assert intervals(found) == wanted, said
    assert (found["overlaps"], found["gaps"]) == ([], []), said
    memories = [one for one in hits if one["type"] != "episode"]
    now = [one["text"] for one in memories if "superseded_by" not in one]
    assert [wanted[-1][0] in one for one in (memories[0]["text"], *now)] == [True, True], (
        said,
        now,
    )


@has_full_length
@pytest.mark.parametrize("places", RETURNS, ids="-".join)
async def test_a_value_that_returns_makes_the_same_timeline_in_any_order(
    running: Running, places: tuple[str, ...]
) -> None:
    for number, order in enumerate(list(permutations(dated(places)))[::EACH]):
        await check(running, f"back{number}", order)


async def test_a_value_that_returns_within_one_text_has_both_of_its_times(
    running: Running,
) -> None:
    said = (("2024-01-01", "Porto"), ("2024-06-01", "Lisbon"), ("2025-01-01", "Porto"))
    text = "\n".join(f"[{day} 10:00] Ana: I live in {place}." for day, place in said)
    async with running.http(await running.token()) as http:
        answer = await http.post("/v1/memories", json={"text": text})
        assert answer.status_code == 202, answer.text
        await running.extract()
        found = await timeline(http)

    assert intervals(found) == [
        ("Porto", "2024-01-01", "2024-06-01"),
        ("Lisbon", "2024-06-01", "2025-01-01"),
        ("Porto", "2025-01-01", None),
    ]


@on_both_at_full_length
@has_full_length
async def test_any_chain_of_values_makes_the_same_timeline_in_any_order(running: Running) -> None:
    for seed in range(at_full_length(12, otherwise=4)):
        chosen = Random(seed)
        said = dated(chosen.choices(("Porto", "Lisbon", "Ghent"), k=chosen.randint(4, 7)))
        chosen.shuffle(said)
        await check(running, f"any{seed}", said)


async def test_a_claim_that_was_repeated_goes_on_after_a_late_report_and_its_undo(
    running: Running, clock: Clock
) -> None:
    """Porto in January and in March, then the report that it was Lisbon in February."""
    async with running.http(await running.token()) as http:
        for day in ("2025-01-01", "2025-03-01"):
            await say(http, "Porto", day, RAIN)
            await running.extract()
        before = await timeline(http)
        known_at = clock.time.isoformat()
        clock.pass_(timedelta(hours=1))
        await say(http, "Lisbon", "2025-02-01", RAIN)
        await running.extract()
        split = await timeline(http)
        known_then = await timeline(http, known_at=known_at)
        asked = {"query": "It rained and the bus was late", "limit": 9}
        hits = (await http.post("/v1/search", json=asked)).json()["results"]
        change = (await http.get("/v1/changes")).json()["changes"][0]["id"]
        undone = await http.post(f"/v1/changes/{change}/undo", json={})
        after = await timeline(http)
        redone = await http.post(f"/v1/changes/{undone.json()['change_id']}/undo", json={})
        again = await timeline(http)

    assert [one[0] for one in intervals(split)] == ["Porto", "Lisbon", "Porto"]
    assert intervals(known_then) == intervals(before)
    assert after == before
    assert redone.status_code == 200, redone.text
    assert again == split
    ended = {(one["type"], one["valid_from"][:10]): "superseded_by" in one for one in hits}
    assert ended["episode", "2025-03-01"] is False


async def test_a_late_report_that_was_forgotten_returns_to_its_place(running: Running) -> None:
    async with running.http(await running.token()) as http:
        for place, day in (("Porto", "2025-01-01"), ("Porto", "2025-03-01")):
            await say(http, place, day)
            await running.extract()
        await say(http, "Lisbon", "2025-02-01")
        await running.extract()
        before = await timeline(http)
        lisbon = next(one["id"] for one in before["values"] if one["value"] == "Lisbon")
        gone = await http.delete(f"/v1/memories/{lisbon}")
        without = await timeline(http)
        back = await http.post(f"/v1/memories/{lisbon}/restore")
        after = await timeline(http)

    assert (gone.status_code, back.status_code) == (200, 200), (gone.text, back.text)
    assert [one[0] for one in intervals(without)] == ["Porto", "Porto"]
    assert intervals(after) == intervals(before)


async def test_one_text_that_tells_a_past_in_order_is_put_before_what_holds(
    running: Running,
) -> None:
    """The turns of one text are planned together, before any of them is stored."""
    told = dated(("Porto", "Lisbon", "Ghent", "Bern"))
    text = "\n".join(f"[{day}] Ana: I live in {place} now." for place, day in told)
    async with running.http(await running.token()) as http:
        await say(http, "Oslo", "2025-06-01")
        await running.extract()
        answer = await http.post("/v1/memories", json={"text": text})
        assert answer.status_code == 202, answer.text
        await running.extract()
        found = await timeline(http)

    assert intervals(found) == chain([*told, ("Oslo", "2025-06-01")])
