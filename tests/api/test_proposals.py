"""Search finds nothing of a proposal until somebody accepts it."""

import asyncio
from typing import Any

import httpx2

from recall_server.domain.permissions import AccessScope, Rights, Scope
from recall_server.services.auth import TokenRequest
from tests.support.server import Running

Json = dict[str, Any]
ONLY_PROPOSES = TokenRequest(Rights(frozenset({Scope.READ, Scope.PROPOSE})))


async def submit(http: httpx2.AsyncClient, text: str = "", **given: Any) -> Json:
    answer = await http.post("/v1/memories:submit", json={"text": text, **given})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def waiting(http: httpx2.AsyncClient) -> list[Json]:
    answer = await http.get("/v1/reviews", params={"kind": "proposal"})
    assert answer.status_code == 200, answer.text
    found: list[Json] = answer.json()["reviews"]
    return found


async def answer(http: httpx2.AsyncClient, review_id: str, choice: str, **given: Any) -> Json:
    done = await http.post(f"/v1/reviews/{review_id}", json={"choice": choice, **given})
    assert done.status_code == 200, done.text
    found: Json = done.json()
    return found


async def active(http: httpx2.AsyncClient) -> list[str]:
    return [one["text"] for one in (await http.get("/v1/memories")).json()["memories"]]


async def hits(http: httpx2.AsyncClient, query: str) -> list[str]:
    found = (await http.post("/v1/search", json={"query": query})).json()
    return [one["text"] for one in found["results"]]


def review_of(report: Json) -> str:
    assert report["outcome"] == "proposed", report
    (change,) = report["changes"]
    review_id: str = change["review_id"]
    return review_id


async def test_what_is_proposed_is_found_nowhere_until_it_is_accepted(running: Running) -> None:
    async with running.http(await running.token()) as http:
        await submit(http, "Ana lives in Lisbon.")
        report = await submit(http, "Ana lives in Porto.", review=True)
        (review,) = await waiting(http)
        before = await active(http), await hits(http, "Porto"), await hits(http, "Where is Ana?")
        texts = (await http.get("/v1/texts")).json()["texts"]
        done = await answer(http, review["id"], "accept")
        after = await active(http), await hits(http, "Porto")
        again = await http.post(f"/v1/reviews/{review['id']}", json={"choice": "reject"})
        left = await waiting(http)

    assert review_of(report) == review["id"]
    assert review["choices"] == ["accept", "edit", "reject"]
    assert review["about"]["proposes"] == "remember"
    assert review["about"]["new"][0]["text"] == "Ana lives in Porto."
    assert before == (["Ana lives in Lisbon."], before[1], before[2])
    assert "Porto" not in str(before)
    assert "Porto" not in str(texts)
    assert done["kind"] == "proposal"
    # The proposal was reconciled as any text is: the later claim superseded the older one.
    assert after[0] == ["Ana lives in Porto."]
    assert after[1][0] == "Ana lives in Porto."
    assert (again.status_code, again.json()["code"]) == (409, "NOT_WAITING")
    assert left == []


async def test_what_is_rejected_stays_hidden_and_cannot_be_restored(running: Running) -> None:
    async with running.http(await running.token()) as http:
        await submit(http, "Ana lives in Porto.", review=True)
        (review,) = await waiting(http)
        memory_id = review["about"]["new"][0]["memory_id"]
        early = await http.post(f"/v1/memories/{memory_id}/restore", json={})
        await answer(http, review["id"], "reject")
        late = await http.post(f"/v1/memories/{memory_id}/restore", json={})
        found = await active(http), await hits(http, "Porto"), await waiting(http)
        # The rejected statement can still be stored as a text.
        said = await submit(http, "Ana lives in Porto.")

    assert early.json()["code"] == late.json()["code"] == "NOT_RESTORABLE"
    assert found == ([], [], [])
    assert said["outcome"] == "added"


async def test_an_edit_takes_other_words_which_are_those_of_whoever_edits(
    running: Running,
) -> None:
    async with running.http(await running.token()) as http:
        await submit(http, "Ana lives in Porto.", topic="home", review=True)
        (review,) = await waiting(http)
        path = f"/v1/reviews/{review['id']}"
        empty = await http.post(path, json={"choice": "edit"})
        unclear = await http.post(path, json={"choice": "accept", "text": "Ana lives in Faro."})
        wrong = await http.post(path, json={"choice": "keep_new"})
        await answer(http, review["id"], "edit", text="Ana lives in Faro.")
        (kept,) = (await http.get("/v1/memories")).json()["memories"]

    assert empty.json()["code"] == "INVALID_ARGUMENT"
    assert unclear.json()["code"] == wrong.json()["code"] == "ANSWER_UNCLEAR"
    assert (kept["text"], kept["topic"]) == ("Ana lives in Faro.", "home")


async def test_to_forget_the_same_memory_is_proposed_once(running: Running) -> None:
    """The control: after an answer it can be proposed again."""
    async with (
        running.http(await running.token()) as http,
        running.http(await running.token("alice", ONLY_PROPOSES)) as proposing,
    ):
        await submit(http, "Ana plays the piano.")
        (memory,) = (await http.get("/v1/memories")).json()["memories"]
        wanted: Json = {"intent": "forget", "memory_id": memory["id"]}
        reports = [await submit(proposing, **wanted) for _ in range(3)]
        reports.append(await submit(http, **wanted, review=True))
        before = await waiting(http)
        await answer(http, before[0]["id"], "reject")
        again = await submit(proposing, **wanted)
        after = await waiting(http)

    assert {review_of(one) for one in reports} == {one["id"] for one in before}
    assert len(before) == len(after) == 1
    assert [one["id"] for one in after] == [review_of(again)]
    assert before[0]["id"] != after[0]["id"]


async def test_a_correction_and_a_forgetting_wait_too(running: Running) -> None:
    async with running.http(await running.token()) as http:
        await submit(http, "The meeting with Bea is in room 5.")
        await submit(http, "Ana plays the piano.")
        right = await submit(http, "Correction: the meeting with Bea is in room 7.", review=True)
        gone = await submit(http, "Forget that Ana plays the piano.", review=True)
        before = sorted(await active(http))
        kinds = {one["id"]: one for one in await waiting(http)}
        await answer(http, review_of(right), "accept")
        await answer(http, review_of(gone), "accept")
        after = await active(http)

    assert before == ["Ana plays the piano.", "The meeting with Bea is in room 5."]
    assert kinds[review_of(right)]["about"]["targets"][0]["text"].endswith("room 5.")
    assert kinds[review_of(gone)]["choices"] == ["accept", "reject"]
    assert after == ["The meeting with Bea is in room 7."]


async def test_a_change_by_hand_may_be_proposed_by_who_may_not_make_it(running: Running) -> None:
    admin = TokenRequest(Rights(frozenset({Scope.ADMIN})))
    async with (
        running.http(await running.token(wanted=ONLY_PROPOSES)) as agent,
        running.http(await running.token(wanted=admin)) as person,
    ):
        first = await submit(person, "The door code is blue.", type="fact")
        path = f"/v1/memories/{first['changes'][0]['memory_id']}"
        report = (await agent.patch(path, json={"text": "The door code is red."})).json()
        before = await active(person)
        await answer(person, review_of(report), "accept")
        after = await active(person)

    assert (before, after) == (["The door code is blue."], ["The door code is red."])


async def test_a_token_that_may_only_propose_changes_nothing_itself(running: Running) -> None:
    async with (
        running.http(await running.token()) as http,
        running.http(await running.token(wanted=ONLY_PROPOSES)) as agent,
    ):
        await submit(http, "Ana plays the piano.")
        said = await submit(agent, "Ana lives in Porto.")
        posted = await agent.post("/v1/proposals", json={"text": "Ana skis."})
        gone = await submit(agent, "Forget that Ana plays the piano.")
        stored = await agent.post("/v1/memories", json={"text": "Ana sings."})
        seen = await agent.get("/v1/reviews")
        answered = await agent.post(f"/v1/reviews/{review_of(said)}", json={"choice": "accept"})
        body = await http.get("/v1/audit?operation=propose_change")
        now = await active(http)
        proposed = await waiting(http)

    assert now == ["Ana plays the piano."]
    assert posted.json()["outcome"] == gone["outcome"] == "proposed"
    for refused in (stored, seen, answered):
        assert refused.json()["code"] == "INSUFFICIENT_SCOPE"
    assert len(body.json()["records"]) == 3
    assert len({one["about"]["proposed_by"] for one in proposed}) == 1


async def test_whoever_answers_needs_the_scope_of_the_change_and_sees_all_of_it(
    running: Running,
) -> None:
    reviewer = Rights(frozenset({Scope.READ, Scope.CONSOLIDATE}))
    limited = Rights(
        frozenset({Scope.READ, Scope.CONSOLIDATE, Scope.WRITE}),
        AccessScope(topics=frozenset({"work"})),
    )
    async with (
        running.http(await running.token()) as http,
        running.http(await running.token(wanted=TokenRequest(reviewer))) as sees,
        running.http(await running.token(wanted=TokenRequest(limited))) as other,
        running.http(await running.token("bob")) as bob,
    ):
        report = await submit(http, "Ana lives in Porto.", topic="home", review=True)
        path = f"/v1/reviews/{review_of(report)}"
        refused = await sees.post(path, json={"choice": "accept"})
        unseen = [await one.post(path, json={"choice": "accept"}) for one in (other, bob)]
        never = await bob.post(f"/v1/reviews/prop_{'0' * 26}", json={"choice": "accept"})
        lists = [await waiting(one) for one in (sees, other, bob)]
        await answer(http, review_of(report), "accept")

    assert refused.json()["code"] == "INSUFFICIENT_SCOPE"
    for one in unseen:
        assert (one.status_code, one.json()["detail"]) == (404, never.json()["detail"])
    assert [len(one) for one in lists] == [1, 0, 0]


async def test_of_several_answers_at_the_same_time_one_is_taken(running: Running) -> None:
    async with running.http(await running.token()) as http:
        report = await submit(http, "Ana lives in Porto.", review=True)
        path = f"/v1/reviews/{review_of(report)}"
        given = [
            {"choice": "accept"},
            {"choice": "reject"},
            {"choice": "edit", "text": "Ana lives in Faro."},
        ]
        answers = await asyncio.gather(*(http.post(path, json=one) for one in given))

    assert sorted(one.status_code for one in answers) == [200, 409, 409]


async def test_an_accepted_proposal_is_taken_back_and_waits_again(running: Running) -> None:
    async with running.http(await running.token()) as http:
        await submit(http, "Ana lives in Lisbon.")
        report = await submit(http, "Ana lives in Porto.", review=True)
        (before,) = await waiting(http)
        done = await answer(http, before["id"], "accept")
        undone = await http.post(f"/v1/changes/{done['change_id']}/undo", json={})
        back = await active(http), await hits(http, "Porto")
        (again,) = await waiting(http)
        taken = await http.post(f"/v1/changes/{report['change_id']}/undo", json={})
        gone = await waiting(http)

    assert undone.status_code == taken.status_code == 200, taken.text
    assert back[0] == ["Ana lives in Lisbon."]
    assert "Ana lives in Porto." not in back[1]
    assert (again["id"], gone) == (before["id"], [])


async def test_a_proposal_ends_where_its_target_is_gone_and_with_an_erasure(
    running: Running,
) -> None:
    async with running.http(await running.token()) as http:
        first = await submit(http, "The meeting with Bea is in room 5.")
        report = await submit(http, "Correction: the meeting with Bea is in room 7.", review=True)
        await submit(http, "Zoe lives in Porto.", review=True)
        await http.delete(f"/v1/memories/{first['changes'][0]['memory_id']}")
        late = await http.post(f"/v1/reviews/{review_of(report)}", json={"choice": "accept"})
        (zoe,) = await waiting(http)
        erased = await http.post("/v1/erasure", json={"subject": "Zoe"})
        left = await waiting(http)
        known = await http.post(f"/v1/reviews/{zoe['id']}", json={"choice": "accept"})

    assert (late.status_code, late.json()["code"]) == (409, "NOT_WAITING")
    assert erased.status_code == 200, erased.text
    assert left == []
    assert known.status_code == 404


async def test_a_dry_run_of_a_proposal_shows_what_would_be_without_a_review(
    running: Running,
) -> None:
    async with running.http(await running.token()) as http:
        await submit(http, "Ana lives in Lisbon.")
        shown = await submit(http, "Ana lives in Porto.", review=True, dry_run=True)
        assert await waiting(http) == []

    assert shown["outcome"] == "superseded"
