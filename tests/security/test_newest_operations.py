"""Attacks on the operations that were added last, through one real server. Each has a control."""

from typing import Any

import httpx2
import pytest
from cryptography.fernet import Fernet

from recall_server.domain.permissions import AccessScope, Rights, Scope
from recall_server.services.auth import TokenRequest
from tests.support.conversation import drained
from tests.support.server import Serve

# Forms of private addresses, and addresses with credentials.
INSIDE = (
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[2002:7f00:1::]/",
    "https://[fe80::1%25eth0]/",
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0177.0.0.1/",
    "https://127.0.0.1./",
    "https://user:secret@1.1.1.1/",
    "https://1.1.1.1@127.0.0.1/",
    "https://169.254.169.254/latest/meta-data/",
    "http://1.1.1.1/",
    "https://１２７.0.0.1/",
    "ftp://1.1.1.1/",
    "file:///etc/passwd",
    "https://1.1.1.1\\@127.0.0.1/",
)
AHEAD = "2099-01-01T00:00:00Z"
# Folders that name no container in the caller's scope.
FOLDERS = ("/srv/secret", "/srv/secret/", "C:\\srv\\secret", "../secret", "/srv//secret/.")


async def test_no_webhook_is_registered_for_an_address_inside(serve: Serve) -> None:
    async with (
        serve(worker_jobs=0, secret_key=(Fernet.generate_key().decode(),)) as running,
        running.http(await running.token()) as http,
    ):
        answers = [await http.post("/v1/webhooks", json={"url": url}) for url in INSIDE]
        control = await http.post("/v1/webhooks", json={"url": "https://1.1.1.1/hook"})
    taken = [url for url, one in zip(INSIDE, answers, strict=True) if one.status_code != 400]
    assert taken == []
    assert control.status_code in {200, 201}, control.text


async def test_a_limited_token_learns_nothing_beyond_its_scope_from_the_newest_operations(
    serve: Serve,
) -> None:
    """It asks for proposals, reviews, relations and changes, and calls hooks with any form of
    `cwd`. The control: the token of the whole namespace sees all of it.
    """
    async with serve(worker_jobs=0) as running:
        limits = AccessScope(containers=frozenset({"open"}))
        scopes = {Scope.READ, Scope.WRITE, Scope.FORGET, Scope.CONSOLIDATE, Scope.PROPOSE}
        wanted = TokenRequest(Rights(frozenset(scopes), limits))
        async with (
            running.http(await running.token()) as whole,
            running.http(await running.token(wanted=wanted)) as limited,
        ):
            for container in ("secret", "open"):
                body = {"text": f"User: I keep zebras in {container}.", "container": container}
                assert (await whole.post("/v1/memories", json=body)).status_code == 202
            await drained(running.application)
            proposed = {"text": "The zebras are striped.", "container": "secret"}
            answer = await whole.post("/v1/proposals", json=proposed | {"intent": "remember"})
            assert answer.status_code < 300, answer.text
            seen, beyond = (
                [await _everything(one) for one in (whole, limited)],
                (await whole.get("/v1/reviews", params={"kind": "proposal"})).json()["reviews"],
            )
            (proposal,) = beyond
            answers = [
                await limited.post(f"/v1/reviews/{proposal['id']}", json={"choice": choice})
                for choice in ("accept", "reject", "edit")
            ]
            changes = [one["id"] for one in (await whole.get("/v1/changes")).json()["changes"]]
            undone, allowed = [
                [
                    (await http.post(f"/v1/changes/{one}/undo", json={"dry_run": True})).status_code
                    for one in changes
                ]
                for http in (limited, whole)
            ]
            unknown = await limited.post(f"/v1/reviews/prop_{'0' * 26}", json={"choice": "reject"})
            kept = await whole.post(f"/v1/reviews/{proposal['id']}", json={"choice": "reject"})
    assert "secret" in seen[0]
    assert "open" in seen[1]
    assert "secret" not in seen[1]
    assert "striped" not in seen[1]
    told = {one.json()["detail"] for one in answers[:2]}
    assert {one.status_code for one in answers[:2]} == {unknown.status_code} == {404}
    assert told == {unknown.json()["detail"]}
    assert answers[2].status_code in {400, 404}
    assert kept.status_code == 200
    assert set(undone) <= {403, 404}
    assert 200 in allowed


async def _everything(http: httpx2.AsyncClient) -> str:
    said: list[Any] = [(await http.get("/v1/reviews")).text, (await http.get("/v1/changes")).text]
    for folder in FOLDERS:
        for event in ("session-start", "user-prompt-submit"):
            body = {"cwd": folder, "prompt": "Where are the zebras?"}
            said.append((await http.post(f"/v1/hooks/{event}", json=body)).text)
    said.append((await http.post("/v1/search", json={"query": "zebras"})).text)
    paths = ("/v1/export", "/v1/texts", "/v1/memories", f"/v1/memories?known_at={AHEAD}")
    return "\n".join([*said, *[(await http.get(path)).text for path in paths]])


@pytest.mark.parametrize("scope", sorted({*Scope} - {Scope.ADMIN}))
async def test_metrics_tell_only_a_token_that_may_read_them(serve: Serve, scope: Scope) -> None:
    """The control: a token with the scope of metrics gets them."""
    async with serve(worker_jobs=0) as running:
        wanted = TokenRequest(Rights(frozenset({scope})))
        async with running.http(await running.token(wanted=wanted)) as http:
            answer = await http.get("/metrics")
    assert answer.status_code == (200 if scope.value.startswith("metrics") else 403)
