"""Hooks of coding agents over HTTP: what they answer, and when the answer is empty."""

import pytest

from recall_server.api.operations.hooks import HEAD, ITEMS_MAX, TOKENS_MAX
from recall_server.domain.permissions import Rights, Scope
from recall_server.domain.search.ranking import text_tokens
from recall_server.services.auth import TokenRequest
from tests.support.server import Json, Running

READ = TokenRequest(Rights(frozenset({Scope.READ})))
PORTO = "Ana: I live in Porto and cycle to work."
HOST = {"hook_event_name": "UserPromptSubmit", "permission_mode": "default", "tool_input": {"a": 1}}


async def sent(running: Running, event: str, token: str | None = None, **body: object) -> Json:
    async with running.http(token or await running.token()) as http:
        answer = await http.post(f"/v1/hooks/{event}", json={**HOST, **body})
    assert answer.status_code == 200, answer.text
    said: Json = answer.json()
    return said


async def stored(running: Running, text: str, container: str = "") -> None:
    async with running.http(await running.token()) as http:
        body = {"text": text, "container": container}
        assert (await http.post("/v1/memories", json=body)).status_code == 202
    await running.extract()


def context(said: Json) -> list[str]:
    text: str = said["hookSpecificOutput"]["additionalContext"]
    head, *lines = text.splitlines()
    assert head == HEAD
    return lines


async def test_a_prompt_is_answered_with_what_is_known_dated_and_with_its_trust(
    running: Running,
) -> None:
    await stored(running, PORTO)
    await stored(running, "assistant: The harbour ferry to Porto leaves at noon.")

    said = await sent(running, "user-prompt-submit", prompt="Where does Ana live?")

    assert said["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
    assert any("(a person): " in line and "Porto" in line for line in context(said))
    assert all(line.startswith("- 20") for line in context(said))


async def test_words_beside_those_that_a_memory_cites_are_shown_too(running: Running) -> None:
    await stored(
        running,
        "Ana: The runbook lives in the wiki under Orders. On-call rotation is every third week.",
    )

    said = await sent(running, "user-prompt-submit", prompt="How often is the on-call rotation?")

    assert any("every third week" in line for line in context(said))


async def test_it_is_silent_where_the_evidence_is_weak(running: Running) -> None:
    await stored(running, PORTO)

    asked = await sent(running, "user-prompt-submit", prompt="What is the tax rate of Peru?")

    assert asked == {}
    assert await sent(running, "user-prompt-submit", prompt=" ") == {}


async def test_it_says_no_more_than_four_items_and_four_hundred_tokens(running: Running) -> None:
    for number in range(8):
        await stored(running, f"Ana: Ferry {number} leaves the harbour at noon. {'Aye. ' * 60}")

    said = await sent(running, "user-prompt-submit", prompt="When does the ferry leave?")

    assert 0 < len(context(said)) <= ITEMS_MAX
    assert text_tokens(said["hookSpecificOutput"]["additionalContext"]) <= TOKENS_MAX


async def test_a_project_sees_its_own_and_what_is_of_none(running: Running) -> None:
    await stored(running, "Ana: The ferry of red leaves at noon.", "red")
    await stored(running, "Ana: The ferry of blue leaves at one.", "blue")
    await stored(running, "Ana: The ferry of all leaves at two.")
    await stored(running, "Ana: I live in Redhill.", "red")
    await stored(running, "Ana: I live in Bluefields.", "blue")

    asked = {"prompt": "When does the ferry leave?", "cwd": "/home/ana/red"}
    found = " ".join(context(await sent(running, "user-prompt-submit", **asked)))
    begun = " ".join(context(await sent(running, "session-start", cwd="C:\\Ana\\blue")))

    assert "of red" in found
    assert "of all" in found
    assert "of blue" not in found
    assert "Bluefields" in begun
    assert "Redhill" not in begun


async def test_what_is_handed_in_is_stored_once_in_the_container_of_the_project(
    running: Running,
) -> None:
    body: Json = {
        "session_id": "s1",
        "cwd": "/home/ana/my project!",
        "messages": [{"role": "user", "content": "I live in Porto.", "at": "2026-03-01T09:00:00Z"}],
        "idempotency_key": "hook:s1:0-100",
    }

    said = [await sent(running, "stop", **body) for _ in range(2)]
    await running.extract()

    assert said == [{}, {}]
    async with running.http(await running.token()) as http:
        found = (await http.post("/v1/search", json={"query": "Porto"})).json()["results"]
    assert {one["container"] for one in found} == {"my-project"}
    assert {one["created_at"][:10] for one in found} != set()
    assert await sent(running, "session-end", session_id="s1") == {}


@pytest.mark.parametrize("event", ["stop", "session-end", "pre-compact"])
async def test_a_token_that_only_reads_hands_nothing_in(running: Running, event: str) -> None:
    token = await running.token(wanted=READ)
    said = [{"role": "user", "content": "I live in Porto."}]

    async with running.http(token) as http:
        answer = await http.post(f"/v1/hooks/{event}", json={"messages": said})

    assert (answer.status_code, answer.json()["code"]) == (403, "INSUFFICIENT_SCOPE")
    assert await sent(running, "user-prompt-submit", token, prompt="Porto?") == {}


async def test_another_tenant_is_told_nothing_and_an_unknown_event_is_refused(
    running: Running,
) -> None:
    await stored(running, PORTO)
    bob = await running.token("bob")

    assert await sent(running, "user-prompt-submit", bob, prompt="Where does Ana live?") == {}
    async with running.http(bob) as http:
        answer = await http.post("/v1/hooks/pre-tool-use", json={})
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_ARGUMENT")


async def test_a_session_begins_with_what_is_always_needed(running: Running) -> None:
    """Memories of the type core come first, those of the project and of no container."""
    async with running.http(await running.token()) as http:
        for text, container in (
            ("Answer in British English.", ""),
            ("Run make check before a commit.", "red"),
            ("Deploy blue on Fridays only.", "blue"),
        ):
            given = {"text": text, "type": "core", "infer": False, "container": container}
            assert (await http.post("/v1/memories", json=given)).status_code == 202
    await running.extract()
    for number in range(6):
        await stored(running, f"Ana: Ferry {number} is red.", "red")

    begun = context(await sent(running, "session-start", cwd="/home/ana/red"))
    nowhere = context(await sent(running, "session-start"))

    assert {line.rpartition(": ")[2] for line in begun[:2]} == {
        "Answer in British English.",
        "Run make check before a commit.",
    }
    assert len(begun) == 2 + ITEMS_MAX
    assert "Ferry" in begun[2]
    assert [line.rpartition(": ")[2] for line in nowhere] == ["Answer in British English."]
