"""Statements about one attribute may arrive in any order."""

from itertools import permutations
from typing import Any

import httpx2

from tests.support.server import Running

Json = dict[str, Any]
# Each place with the day when it was said, and the next day on which another was.
PLACES = (
    ("Porto", "2025-01-01", "2025-02-01"),
    ("Lisbon", "2025-02-01", "2025-03-01"),
    ("Ghent", "2025-03-01", "2025-04-01"),
    ("Oslo", "2025-04-01", None),
)
ORDERS = list(permutations(PLACES))


async def say(http: httpx2.AsyncClient, place: str, day: str) -> None:
    given = {"text": f"Ana: I live in {place} now.", "occurred_at": day}
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
