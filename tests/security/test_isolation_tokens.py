"""Only the exact token is accepted, it is stored nowhere, and it does nothing after its end."""

import asyncio
from datetime import timedelta

import pytest

from recall_server.domain.context import Context
from recall_server.domain.errors import Unauthenticated
from recall_server.domain.ids import Namespace
from recall_server.services.erasure.leak_scan import scan
from tests.support.mcp_clients import request
from tests.support.runtime import Clock
from tests.support.server import Running

ALICE = Namespace("alice")
AT_ONCE = 100


async def test_no_spelling_of_a_token_but_its_own_is_let_in(running: Running) -> None:
    """The test includes forms that HTTP cannot carry. Each gets the same answer."""
    token, access = await running.token(), running.application.services.access
    said = set()
    for spelled in ("", " ", token + "\n", token + "\r\n", token + "\0", " " + token, token + " ",
                    token.lower(), token.swapcase(), token + "é", token[:-1] + "\uff11",
                    f"{token},{token}", "\0" * 42, "rcl_" + "A" * 1_000_000):  # fmt: skip
        with pytest.raises(Unauthenticated) as raised:
            await access.verify(spelled)
        said.add(raised.value.message)

    assert len(said) == 1
    assert (await access.verify(token)).namespace == ALICE


async def test_no_disguise_of_a_token_is_left_anywhere(running: Running) -> None:
    """The database has its hash, and no part of it in plain form, in hex or in base64."""
    token, info = await running.issued("alice")
    async with running.http(token) as http:
        assert (await http.get("/v1/whoami")).status_code == 200
    found = await scan(running.application.store, [token, token[4:], token[4:20], token[20:36]], [])
    control = await scan(running.application.store, [info.accessor], [])

    assert {(place.word, place.form) for place in found.places} == {(0, "sha256")}
    assert control.places


@pytest.mark.parametrize("way", ["revoked", "child", "children only", "no overlap", "not before"])
async def test_nothing_is_done_for_a_token_after_it_was_revoked(
    running: Running, clock: Clock, way: str
) -> None:
    """A hundred writes race the end of a token. The writes that succeed have audit records before
    the end, and none has one after it. The others get 401.
    """
    owner, info = await running.issued("alice")
    other = await running.token("alice")
    token, child = owner, ""
    if "child" in way:
        async with running.http(owner) as http:
            made = (await http.post("/v1/tokens/children", json={})).json()
        token, child = made["token"], made["accessor"].partition("/")[2]
    services = running.application.services

    async def write(number: int, bearer: str) -> int:
        called = {"name": "store_memory", "arguments": {"text": f"User: I know {number} songs."}}
        headers, body = request("tools/call", called, modern=False)
        async with running.http(bearer) as http:
            answer = await http.post("/mcp", headers=headers, json=body)
        return 401 if "UNAUTHENTICATED" in answer.text else answer.status_code

    async def end() -> None:
        on_behalf = Context(services.audit.begin(ALICE, "end", "cli", None))
        match way:
            case "revoked":
                await services.access.revoke(on_behalf, info, force=True)
            case "child":
                await services.delegation.revoke(on_behalf, info.accessor, child)
            case "children only":
                await services.access.revoke(on_behalf, info, children_only=True)
            case "no overlap":
                await services.access.rotate(on_behalf, info, timedelta())
            case "not before":
                await services.access.not_before(ALICE, None, entry=on_behalf.entry)

    async with asyncio.TaskGroup() as group:
        writes = [group.create_task(write(number, token)) for number in range(AT_ONCE)]
        await asyncio.wait(writes, return_when=asyncio.FIRST_COMPLETED)
        clock.pass_(timedelta(seconds=1))
        await end()
    after = await write(AT_ONCE, token)
    statuses = [one.result() for one in writes]
    book = await running.application.services.audit.newest(ALICE, 10 * AT_ONCE)
    ended = next(line.link.seq for line in book if line.operation == "end" and line.link)
    stored = [
        line.link.seq
        for line in book
        if line.link and (line.operation, line.outcome) == ("store_memory", "ok")
    ]

    assert set(statuses) <= {200, 401}
    assert after == 401
    assert len(stored) == statuses.count(200)
    assert max(stored) < ended
    assert await write(AT_ONCE, other) == (401 if way == "not before" else 200)
