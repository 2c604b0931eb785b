"""Erasures through the protocols, by a caller whose token is erased too."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from recall_server.api.app import create_app
from recall_server.domain.ids import namespace
from recall_server.domain.permissions import DEFAULT_SCOPES, Rights, Scope
from recall_server.integrations.keys import verified
from recall_server.server import bound, listening
from recall_server.services.auth import TokenRequest
from recall_server.services.erasure.leak_scan import Scan, Trace
from recall_server.services.erasure.purge import RECEIPT_TYP
from tests.support.application import Open
from tests.support.mcp_clients import LEGACY, data, told
from tests.support.processes import ran, recall
from tests.support.server import Json, Running
from tests.support.stored import without_removed_log

SECRET = "Recall-Receipt-Secret"
TEXT = "Anna: I live in Lisbon."
MAY_ERASE = TokenRequest(Rights(DEFAULT_SCOPES | {Scope.ERASE}))


@pytest.fixture
async def running(open_app: Open) -> AsyncIterator[Running]:
    async with (
        open_app(port=0) as built,
        listening(create_app(built), built.settings, bound(built.settings)) as address,
    ):
        yield Running(built, address)


@asynccontextmanager
async def receipts(running: Running, erased: Json) -> AsyncIterator[httpx2.AsyncClient]:
    """Return a client without a token that has the secret of the receipt."""
    async with running.http() as http:
        http.headers[SECRET] = erased["receipt_secret"]
        yield http


async def test_the_seventh_tool_erases_and_the_receipt_outlives_the_token(
    running: Running,
) -> None:
    token, bobs = await running.token("alice", MAY_ERASE), await running.token("bob")
    async with running.client(token, LEGACY) as client:
        await data(client, "store_memory", text=TEXT)
        refused = await told(client, "delete_namespace_data", confirm="yes")
        erased = await data(client, "delete_namespace_data", confirm="DELETE MY DATA")
    async with running.http(token) as http, running.http(bobs) as other:
        gone = await http.get("/v1/conflicts")
        there = await other.get("/v1/conflicts")
    path = f"/v1/receipts/{erased['receipt_id']}"
    async with receipts(running, erased) as http, running.http(bobs) as other:
        # An early acknowledgement does not remove the receipt.
        pending = await http.get(path, params={"acknowledge": True})
        await running.extract()
        wrong = [
            await other.get(path),
            await other.get(path, headers={SECRET: "wrong"}),
            await http.get("/v1/receipts/ers_unknown"),
        ]
        final, same = await http.get(path), await http.get(path, params={"acknowledge": True})
        again = await http.get(path)
        keys = (await http.get("/.well-known/jwks.json")).json()["keys"]

    assert refused["code"] == "CONFIRM_REQUIRED"
    assert (erased["tokens_revoked"], erased["counts"]["episodes"]) == (1, 1)
    assert (gone.status_code, there.status_code) == (401, 200)
    assert pending.json()["final"] is False
    assert same.json() == final.json()
    claims = verified(final.json()["receipt"], keys[-1], RECEIPT_TYP)
    assert (claims["jti"], claims["physical"]["state"]) == (erased["receipt_id"], "done")
    assert {answer.status_code for answer in (*wrong, again)} == {404}
    assert len({answer.content for answer in (*wrong, again)}) == 1


async def test_one_memory_is_erased_over_mcp_and_another_over_http(running: Running) -> None:
    token = await running.token("alice", MAY_ERASE)
    async with running.client(token, LEGACY) as client, running.http(token) as http:
        for text in ("User: I like jasmine tea.", "User: I like chess a lot."):
            await data(client, "store_memory", text=text)
        await running.extract()
        one, other = (await data(client, "inspect_memories"))["memories"]
        forgotten = await data(client, "delete_memory", memory_id=one["id"], erase=True)
        body = {"memory_id": other["id"]}
        planned = (await http.post("/v1/erasure", json={**body, "dry_run": True})).json()
        assert (await data(client, "get_memory_stats"))["total"] == 1
        erased = (await http.post("/v1/erasure", json=body)).json()
        missing = await http.post("/v1/erasure", json=body)
        history = await told(client, "inspect_memories", memory_id=one["id"])
        bad = [
            await http.post("/v1/erasure", json=given)
            for given in ({**body, "subject": "x"}, {"subject": "!"}, {"everything": True}, {})
        ]
        records = await running.application.services.audit.newest(namespace("alice"), 50)

    assert forgotten["memory_ids"] == [one["id"]]
    assert planned["memory_ids"] == erased["memory_ids"] == [other["id"]]
    assert "receipt" not in planned
    assert (missing.status_code, history["code"]) == (404, "MEMORY_NOT_FOUND")
    assert [answer.json()["code"] for answer in bad] == [
        *["INVALID_ARGUMENT"] * 3,
        "CONFIRM_REQUIRED",
    ]
    assert {"erase_memory", "erase_subject"} <= {record.operation for record in records}


async def test_an_operator_erases_and_proves_it_on_the_command_line(
    running: Running, database: Path | str, tmp_path: Path
) -> None:
    token = await running.token("alice", MAY_ERASE)
    canary = "qk7xw2hd5ufzt3mvb6raynoe"
    async with running.client(token, LEGACY) as client:
        await data(client, "store_memory", text=f"Anna: I live in {canary}.")
    receipt, key = tmp_path / "receipt", tmp_path / "key"
    with pytest.raises(AssertionError):  # The command exits with 1.
        await recall(database, "verify-erasure", "--canary", canary)
    await recall(database, "erase", "alice", "--yes", "--receipt", str(receipt))
    key.write_text(await recall(database, "key"))
    told_of = await recall(database, "verify-receipt", str(receipt), "--key", str(key))
    other = await recall(database, "verify-erasure", "--canary", "jx4wq9zk2hvt8bnd6pygcrum")
    _, found, _ = await ran(database, "verify-erasure", "--canary", canary, "--json")

    assert '"state": "done"' in told_of
    assert "nothing found" in other
    scanned = Scan(**json.loads(found))
    scanned.places = [Trace(**one) for one in json.loads(found)["places"]]
    assert not without_removed_log(scanned).places
    assert (scanned.files > 0, scanned.unreadable) == (True, [])
