"""The plain routes ignore no part of a request, and every refusal has the same envelope."""

from typing import Any

import pytest

from recall_server.domain.context import Context
from recall_server.domain.ids import namespace
from recall_server.domain.permissions import DEFAULT_SCOPES, Rights, Scope
from recall_server.services.auth import TokenRequest
from tests.support.conversation import drained, remember
from tests.support.engines import on_sqlite
from tests.support.server import Running

pytestmark = on_sqlite

ALICE = namespace("alice")
ADMIN = TokenRequest(Rights(frozenset({Scope.ADMIN})))


async def test_a_dry_run_that_stands_in_the_query_erases_nothing(running: Running) -> None:
    """The control: in the body it is obeyed, and without it the memory is erased."""
    token = await running.token("alice", ADMIN)
    await remember(running.application, "Anna: I live in Lisbon.")
    await drained(running.application)
    async with running.http(token) as http:
        misplaced = await http.post("/v1/erasure?dry_run=true", json={"subject": "Anna"})
        planned = await http.post("/v1/erasure", json={"subject": "Anna", "dry_run": True})
        erased = await http.post("/v1/erasure", json={"subject": "Anna"})

    assert (misplaced.status_code, misplaced.json()["code"]) == (400, "INVALID_ARGUMENT")
    assert "dry_run" in misplaced.json()["detail"]
    assert planned.json()["memory_ids"] == erased.json()["memory_ids"] != []


async def test_who_misspells_whom_they_ask_about_is_not_given_everybody(running: Running) -> None:
    token = await running.token("alice", ADMIN)
    await remember(running.application, "Anna: I live in Lisbon.")
    async with running.http(token) as http:
        misspelt = await http.get("/v1/export", params={"subjct": "Bert"})
        twice = await http.get("/v1/export?subject=Bert&subject=Anna")
        misplaced = await http.request("GET", "/v1/export", json={"subject": "Bert"})
        asked = await http.get("/v1/export", params={"subject": "Anna"})

    for refused in (misspelt, twice, misplaced):
        assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_ARGUMENT")
        assert b"Lisbon" not in refused.content
    assert b"Lisbon" in asked.content


@pytest.mark.parametrize("query", ["children_onyl=true", "children_only=maybe", "children_only="])
async def test_revoking_children_alone_never_ends_their_parent_by_mistake(
    running: Running, query: str
) -> None:
    """The control: in the query, with any word for yes, only the child ends."""
    access = running.application.services.access
    _, parent = await running.issued("alice", ADMIN)
    entry = running.application.services.audit.begin(ALICE, "issue_token", "http", parent.accessor)
    _, child = await access.issue(Context(entry), wanted=TokenRequest(), by=parent.accessor)
    path = f"/v1/tokens/{parent.accessor}"
    async with running.http(await running.token("alice", ADMIN)) as http:
        refused = await http.delete(f"{path}?{query}")
        misplaced = await http.request("DELETE", path, json={"children_only": True})
        assert (await access.find(parent.accessor)).revoked_at is None
        done = await http.delete(f"{path}?children_only=1")

    for answer in (refused, misplaced):
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_ARGUMENT")
    assert done.json()["revoked"] == [child.accessor]
    assert (await access.find(parent.accessor)).revoked_at is None


EMPTY: list[dict[str, Any]] = [
    {"scopes": []},
    {"topics": []},
    {"types": []},
    {"containers": []},
    {"agent_id": ""},
    {"expires_in_s": 0},
]


@pytest.mark.parametrize("path", ["", "/children"])
@pytest.mark.parametrize("body", EMPTY, ids=lambda body: next(iter(body)))
async def test_a_limit_that_comes_to_nothing_is_not_no_limit(
    running: Running, path: str, body: dict[str, Any]
) -> None:
    """The control: null, as `whoami` shows it, means the limit of the token that issues."""
    default = TokenRequest(Rights(DEFAULT_SCOPES))
    token = await running.token("alice", default if path else ADMIN)
    async with running.http(token) as http:
        refused = await http.post(f"/v1/tokens{path}", json=body)
        null = await http.post(f"/v1/tokens{path}", json=dict.fromkeys(body))

    assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_ARGUMENT")
    assert null.status_code == 201, null.text
    assert null.json()["scopes"] == sorted(DEFAULT_SCOPES)


async def test_a_token_for_no_use_at_all_is_not_made(running: Running) -> None:
    async with running.http(await running.token("alice", ADMIN)) as http:
        refused = await http.post("/v1/tokens", json={"uses": 0})
        once = await http.post("/v1/tokens", json={"uses": 1})

    assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_ARGUMENT")
    assert once.json()["uses_left"] == 1


async def test_a_search_in_no_container_at_all_is_not_one_in_all(running: Running) -> None:
    token = await running.token()
    await remember(running.application, "Anna: I live in Lisbon.")
    async with running.http(token) as http:
        refused = await http.post("/v1/search", json={"query": "Lisbon", "containers": []})
        found = await http.post("/v1/search", json={"query": "Lisbon", "containers": [""]})

    assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_ARGUMENT")
    assert found.json()["total"] > 0


@pytest.mark.parametrize("body", ["[]", '"canary"', "null", "5", ""])
async def test_a_body_that_is_no_object_is_told_what_to_send(running: Running, body: str) -> None:
    async with running.http(await running.token()) as http:
        answer = await http.post(
            "/v1/search", content=body, headers={"Content-Type": "application/json"}
        )

    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_ARGUMENT")
    assert "Send a JSON object. It may have " in answer.json()["detail"]
    assert " query, limit, " in answer.json()["detail"]


async def test_a_method_that_a_path_does_not_take_is_answered_like_any_error(
    running: Running,
) -> None:
    async with running.http(await running.token()) as http:
        answers = {
            path: await http.request("PUT", path)
            for path in ("/v1/tokens", "/v1/export", "/health", "/a2a/v1/tasks")
        }

    for path, answer in answers.items():
        assert (answer.status_code, answer.json()["code"]) == (405, "METHOD_NOT_ALLOWED"), path
        assert answer.headers["Allow"] in answer.json()["detail"]
        assert answer.json()["title"] == "This path takes another method."
    assert answers["/v1/tokens"].headers["Allow"] == "GET, HEAD, POST"


async def test_an_outcome_that_is_none_is_told_which_there_are(running: Running) -> None:
    async with running.http(await running.token("alice", ADMIN)) as http:
        refused = await http.get("/v1/audit", params={"outcome": "bad"})
        read = await http.get("/v1/audit", params={"outcome": "error"})

    assert refused.json()["detail"] == "outcome: Input should be 'ok' or 'error'."
    assert [one["outcome"] for one in read.json()["records"]] == ["error"]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (
            "/v1/process",
            {"text": "x", "scope_policy": {"write_user": "never"}},
            "scope_policy.write_user: Input should be 'auto'.",
        ),
        (
            "/v1/context",
            {"message": "x", "budgets": {"max_output_tokens": 5}},
            "budgets.max_output_tokens: Input should be greater than or equal to 100.",
        ),
        (
            "/v1/process",
            {"text": "x", "containers": [{"id": 3}]},
            "containers[0].id: Input should be a valid string.",
        ),
        (
            "/v1/memories",
            {"text": "x", "source": {"canary": 1}},
            "source: A field in it is not known. It takes app, model, description.",
        ),
    ],
)
async def test_a_fault_within_an_argument_is_named_with_its_place(
    running: Running, path: str, body: dict[str, object], said: str
) -> None:
    async with running.http(await running.token("alice", ADMIN)) as http:
        refused = await http.post(path, json=body)

    assert refused.json()["detail"] == said
