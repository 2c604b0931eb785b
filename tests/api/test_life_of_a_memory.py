"""The life of one memory, as the guide draws it, is the life that a memory has."""

import re
from datetime import UTC, datetime

import httpx2

from tests.support.paths import ROOT
from tests.support.runtime import Clock
from tests.support.server import Running

GUIDE = ROOT / "docs" / "guide" / "time.md"


def march(day: int) -> datetime:
    return datetime(2026, 3, day, 9, tzinfo=UTC)


def drawn() -> str:
    """Return the drawing with single blanks."""
    drawing = GUIDE.read_text("utf-8").partition("## The life of one memory")[2].split("```")[1]
    return re.sub(r" +", " ", drawing)


async def place(http: httpx2.AsyncClient, **past: str) -> str:
    """Return where a search shows Porto, in the words of the drawing."""
    asked = {"query": "Where do I live?", "score_threshold": 0.0, **past}
    found = (await http.post("/v1/search", json=asked)).json()["results"]
    places = [name for one in found for name in ("Porto", "Lisbon") if name in one["text"]]
    if "Porto" not in places:
        return "not at all"
    return "first" if places[0] == "Porto" else f"below {places[0]}"


async def test_the_life_of_a_memory_is_as_the_guide_draws_it(
    running: Running, clock: Clock
) -> None:
    found: dict[str, str] = {}
    async with running.http(await running.token()) as http:

        async def said(text: str, day: int) -> None:
            clock.time = march(day)
            assert (await http.post("/v1/memories", json={"text": text})).status_code == 202
            await running.extract()

        async def shown(day: int) -> None:
            clock.time = march(day)
            found[f"search on {day}"] = await place(http)
            found[f"as_of on {day}"] = await place(http, as_of="2026-03-10")

        await said("User: I live in Porto.", 2)
        (porto,) = (await http.get("/v1/memories")).json()["memories"]
        await shown(12)
        await said("User: I live in Lisbon now.", 20)
        await shown(23)
        one = (await http.get(f"/v1/memories/{porto['id']}")).json()
        clock.time = march(25)
        assert (await http.delete(f"/v1/memories/{porto['id']}")).status_code == 200
        await shown(26)
        for day in (10, 22):
            found[f"known_at={day} March"] = await place(http, known_at=f"2026-03-{day}")
        whole = (await http.get(f"/v1/memories/{porto['id']}/history")).json()["memories"]

    life = drawn()
    assert "2 March 20 March 25 March" in life
    assert (one["valid_from"][:10], one["valid_until"][:10]) == ("2026-03-02", "2026-03-20")
    states = [event["status"] for each in whole for event in each["events"]][:3]
    assert re.search(" .*".join(states[:2]), life)
    assert [found[f"search on {day}"] for day in (12, 23, 26)] == (
        ["first", "below Lisbon", "not at all"]
    )
    assert re.search("first .* below Lisbon .* not at all", life)
    for name in ("known_at=10 March", "known_at=22 March"):
        assert f"{name} {found[name]}\n" in life
    assert [found[f"as_of on {day}"] for day in (12, 23, 26)] == ["first", "first", "not at all"]
    assert "as_of=10 March first, until it is forgotten" in life
