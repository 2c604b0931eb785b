"""A recheck compares the active memories with each other. It asks about contradictions, lists
repetitions, and decides nothing.
"""

from typing import Any

import httpx2
import pytest

from recall_server.domain.context import Context
from recall_server.domain.permissions import AccessScope, Rights, Scope
from recall_server.domain.plan import Policy
from recall_server.services.auth import TokenRequest
from recall_server.services.tasks import recheck
from tests.support.conversation import ALICE
from tests.support.server import Running

Json = dict[str, Any]


def of_topic(topic: str) -> TokenRequest:
    scopes = frozenset({Scope.READ, Scope.WRITE, Scope.CONSOLIDATE})
    return TokenRequest(Rights(scopes, AccessScope(topics=frozenset({topic}))))


async def submit(http: httpx2.AsyncClient, text: str, **given: Any) -> str:
    answer = await http.post("/v1/memories:submit", json={"text": text, **given})
    assert answer.status_code == 200, answer.text
    memory_id: str = answer.json()["changes"][0]["memory_id"]
    return memory_id


async def again(running: Running, http: httpx2.AsyncClient) -> str:
    answer = await http.post("/v1/recheck", json={})
    assert answer.status_code == 202, answer.text
    await running.extract()
    job_id: str = answer.json()["job_id"]
    return job_id


async def states(http: httpx2.AsyncClient) -> dict[str, str]:
    found = (await http.get("/v1/memories")).json()["memories"]
    return {one["text"]: one["status"] for one in found}


async def disputes(http: httpx2.AsyncClient) -> list[Json]:
    found: list[Json] = (await http.get("/v1/reviews?kind=dispute")).json()["reviews"]
    return found


async def test_the_job_of_a_recheck_is_told_until_its_last_page_is_done(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recheck, "PAGE_MEMORIES", 2)
    async with (
        running.http(await running.token()) as http,
        running.http(await running.token("bob")) as bob,
        running.http(await running.token(wanted=of_topic("general"))) as limited,
    ):
        for place in ("Lisbon", "Porto", "Rome"):
            await submit(http, f"Ana likes {place}.")
        job_id = (await http.post("/v1/recheck", json={})).json()["job_id"]
        queued = (await http.get(f"/v1/jobs/{job_id}")).json()
        foreign = [(await one.get(f"/v1/jobs/{job_id}")).status_code for one in (bob, limited)]
        await running.extract()
        done = (await http.get(f"/v1/jobs/{job_id}")).json()

    assert (queued["kind"], queued["state"], queued["finished_at"]) == ("recheck", "queued", None)
    assert (done["job_id"], done["state"], done["attempts"]) == (job_id, "complete", 2)
    assert done["finished_at"]
    assert done["memory_ids"] == []
    assert foreign == [404, 404]


async def test_a_contradiction_that_nobody_was_asked_about_opens_one_dispute(
    running: Running,
) -> None:
    async with (
        running.http(await running.token()) as http,
        running.http(await running.token(wanted=of_topic("home"))) as home,
        running.http(await running.token(wanted=of_topic("work"))) as work,
    ):
        # Neither token sees what the other has stored.
        await submit(home, "Ana lives in Lisbon.", topic="home")
        await submit(work, "Ana lives in Porto.", topic="work")
        await submit(http, "Ana likes tea.")
        before = await states(http)
        job_id = await again(running, http)
        opened, disputed = await disputes(http), await states(http)
        await again(running, http)
        twice = await disputes(http)
        undone = await http.post(f"/v1/changes/{job_id}/undo", json={})
        back, none = await states(http), await disputes(http)
        await again(running, http)
        (review,) = await disputes(http)
        await http.post(f"/v1/reviews/{review['id']}", json={"choice": "keep_both"})
        await again(running, http)
        left, decided = await disputes(http), await states(http)

    assert set(before.values()) == {"active"}
    assert len(opened) == 1
    assert sorted(disputed.values()) == ["active", "disputed", "disputed"]
    assert [one["id"] for one in twice] == [opened[0]["id"]]
    assert undone.status_code == 200, undone.text
    assert (back, none) == (before, [])
    # A decided question is not asked again.
    assert (left, decided) == ([], before)


async def test_a_text_that_denies_another_opens_a_dispute(running: Running) -> None:
    async with running.http(await running.token()) as http:
        for day, text in (
            ("2025-01-01", "The nightly build runs on a push to main."),
            ("2025-01-02", "The nightly build never runs on a push to main."),
            ("2025-01-03", "The weekly build runs on a push to main."),
        ):
            await submit(http, text, type="fact", occurred_at=day)
        await again(running, http)
        (review,) = await disputes(http)
        await again(running, http)
        once = await disputes(http)

    assert review["about"]["existing"][0]["text"] == "The nightly build runs on a push to main."
    assert "never" in review["about"]["new"]["text"]
    assert [one["id"] for one in once] == [review["id"]]


async def test_what_nearly_repeats_is_stated_as_a_duplicate_and_stays(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recheck, "PAGE_MEMORIES", 1)
    one = "The quarterly report of the harbour office is due on Friday."
    async with running.http(await running.token()) as http:
        first = await submit(http, one, type="fact")
        second = await submit(http, one.replace("harbour office", "harbor offices"), type="fact")
        other = await submit(http, one.replace("Friday", "no Friday"), type="fact")
        job_id = await again(running, http)
        after = await states(http)
        shown = (await http.get(f"/v1/memories/{first}")).json()["relations"]
        unrelated = (await http.get(f"/v1/memories/{other}")).json()["relations"]
        audit = (await http.get("/v1/audit?operation=recheck")).json()["records"]

    assert len(after) == 3
    assert {first, second} == {shown[0]["from_id"], shown[0]["to_id"]}
    assert [edge["relation"] for edge in shown] == ["duplicates"]
    assert unrelated == []
    assert sum(one["counts"]["memories"] for one in audit) == 3
    assert job_id


async def test_a_limited_token_begins_no_recheck(running: Running) -> None:
    async with running.http(await running.token(wanted=of_topic("home"))) as home:
        answer = await home.post("/v1/recheck", json={})

    assert (answer.status_code, answer.json()["code"]) == (403, "OUT_OF_REACH")


BUILDS = (
    "The nightly build of the harbour office is enabled on the main server.",
    "The nightly build of the harbour office is disabled on the main server.",
    "The weekly report of the garden team is due on Friday at noon.",
    "The weekly report of the whole garden team is due on Friday at noon sharp.",
)


async def merged(running: Running, http: httpx2.AsyncClient, **given: Any) -> Json:
    asked = {"skill": "consolidate_memories", "input": {"topic": "ci", **given}}
    answer = await http.post("/a2a", json=asked)
    assert answer.status_code == 202, answer.text
    await running.extract()
    found: Json = (await http.get(f"/v1/consolidations/{answer.json()['id']}")).json()
    return found


@pytest.mark.parametrize("policy", [Policy.ASK, None])
async def test_a_merge_leaves_a_contradiction_apart_and_asks_about_it_if_the_policy_says_so(
    running: Running, policy: Policy | None
) -> None:
    tasks = running.application.services.tasks
    async with running.http(await running.token()) as http:
        for day, text in enumerate(BUILDS, 1):
            said = f"2025-01-0{day}"
            await submit(http, text, type="fact", topic="ci", occurred_at=said)
        other = ("The lift is enabled on Sundays.", "The lift is disabled on Sundays.")
        for text in other:
            await submit(http, text, type="fact", topic="house")
        entry = running.application.services.audit.begin(ALICE, "set_policy", "cli", None)
        await tasks.set_policy(Context(entry), policy)
        shown = await merged(running, http, similarity_threshold=0.7, dry_run=True)
        previewed = await disputes(http)
        await merged(running, http, similarity_threshold=0.7)
        opened, after = await disputes(http), await states(http)

    assert len(shown["memories"]) == 1, shown
    assert previewed == []
    # The two reports are one now, the two builds are not.
    kept = "disputed" if policy is Policy.ASK else "active"
    assert [after[text] for text in BUILDS[:2]] == [kept, kept]
    assert len(after) == 5
    # Another topic is left alone.
    assert {after[text] for text in other} == {"active"}
    assert len(opened) == (1 if policy is Policy.ASK else 0)
