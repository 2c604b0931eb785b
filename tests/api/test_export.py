"""`GET /v1/export` downloads what the namespace of the token holds, and nothing else."""

import asyncio
import json
import socket

import pytest

from recall_server.domain.context import Context
from recall_server.domain.ids import Namespace
from recall_server.services.memory.ingest import Submission
from tests.support.conversation import ALICE
from tests.support.length import has_full_length, on_both_at_full_length
from tests.support.processes import until
from tests.support.server import WITHIN_S, Running, Serve
from tests.support.transfer import BOB, carried, exported, line_of, lived, records, taken_in

TEXTS = 4


async def test_a_token_downloads_its_namespace_as_the_command_line_would(running: Running) -> None:
    await lived(running.application)
    token = await running.token()
    async with running.http(token) as http:
        answer = await http.get("/v1/export")
    again = await exported(running.application)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-disposition"] == 'attachment; filename="alice.jsonl"'
    assert carried(answer.content) == carried(again) != []
    assert records(answer.content)[-1]["kind"] == "end"
    report = await taken_in(running.application, answer.content, BOB)
    assert report.new.total() == len(carried(answer.content))


async def test_the_namespace_is_that_of_the_token_whatever_the_request_says(
    running: Running,
) -> None:
    """Bob names Alice's namespace wherever a request can name one. Only Alice gets her data."""
    await lived(running.application)
    async with running.http(await running.token("bob")) as http:
        refused = await http.get("/v1/export", params={"namespace": "alice"})
        bobs = await http.get("/v1/export", headers={"X-Namespace": "alice"})
    async with running.http(await running.token()) as http:
        alices = await http.get("/v1/export")

    assert refused.status_code == 400
    assert b"Lisbon" not in refused.content
    assert carried(bobs.content) == []
    assert records(bobs.content)[0]["namespace"] == "bob"
    assert b"Lisbon" not in bobs.content
    assert b"Lisbon" in alices.content


@pytest.mark.parametrize("token", [None, "rcl_nonsense"])
async def test_nobody_downloads_without_a_token(running: Running, token: str | None) -> None:
    async with running.http(token) as http:
        answer = await http.get("/v1/export")

    assert answer.status_code == 401


async def test_a_person_is_asked_about_by_name_and_a_name_must_be_one(running: Running) -> None:
    await lived(running.application)
    async with running.http(await running.token()) as http:
        told = await http.get("/v1/export", params={"subject": "Caroline"})
        wrong = await http.get("/v1/export", params={"subject": "\x1b[2J"})

    assert records(told.content)[0]["subject"] == "Caroline"
    assert records(told.content, "excerpt")
    assert wrong.status_code == 400
    assert wrong.json()["code"] == "INVALID_ARGUMENT"


async def test_the_audit_record_is_there_with_the_first_byte_and_names_the_token(
    running: Running,
) -> None:
    token, info = await running.issued("alice")
    async with running.http(token) as http, http.stream("GET", "/v1/export") as answer:
        first = await anext(answer.aiter_lines())
        lines = await running.application.services.audit.newest(ALICE, 5)

    assert json.loads(first)["kind"] == "manifest"
    (line,) = [one for one in lines if one.operation == "export_namespace"]
    assert (line.protocol, line.accessor) == ("http", info.accessor)


async def test_while_one_export_is_made_another_is_told_to_wait(running: Running) -> None:
    """The next export may start once the first has ended or was cut off."""
    token = await running.token()
    services = running.application.services
    open_one = services.export.stream(
        Context(line_of(running.application, ALICE, "export_namespace"))
    )
    await anext(open_one)
    async with running.http(token) as http:
        busy = await http.get("/v1/export")
        await open_one.aclose()
        free = await http.get("/v1/export")

    assert (busy.status_code, busy.json()["code"]) == (503, "EXPORT_BUSY")
    assert free.status_code == 200


async def test_a_reader_who_hangs_up_leaves_nothing_behind(running: Running) -> None:
    await lived(running.application, Namespace("alice"))
    token = await running.token()
    async with running.http(token) as http:
        async with http.stream("GET", "/v1/export") as answer:
            await anext(answer.aiter_bytes())
        whole = await http.get("/v1/export")
        # The server may learn of it only after the next request has arrived.
        async with asyncio.timeout(WITHIN_S):
            while whole.status_code == 503:
                whole = await http.get("/v1/export")

    assert whole.status_code == 200
    assert records(whole.content)[-1]["kind"] == "end"


@on_both_at_full_length
@has_full_length
async def test_a_reader_who_takes_nothing_loses_the_download_and_sees_that_it_is_not_whole(
    running: Running,
) -> None:
    """The server does not hold a snapshot for a client that does not read. The control: a client
    that reads gets all of it.
    """
    token = await running.token()
    services = running.application.services
    await large(running, ALICE)
    reader, writer = await asyncio.open_connection(sock=await listless(running))
    request = f"GET /v1/export HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    writer.write(request.encode())

    async def let_go() -> bool:
        return not services.export._open

    with pytest.MonkeyPatch.context() as impatient:
        impatient.setattr("recall_server.api.http.STALL_S", 0.3)
        begun = await reader.read(1)
        # Read nothing more until the server has given up.
        await until(let_go, 10, "the export is broken off")
    rest = await reader.read()
    writer.close()
    async with running.http(token) as http:
        whole = await http.get("/v1/export")

    assert begun == b"H"
    assert b'"kind":"manifest"' in rest
    assert b'"kind":"end"' not in rest
    assert records(whole.content)[-1]["counts"]["episode"] == TEXTS


@on_both_at_full_length
@has_full_length
async def test_readers_who_take_nothing_do_not_keep_others_from_exporting(serve: Serve) -> None:
    """Three readers hold an export open. The fourth export is complete."""
    async with serve(exports_at_once=3, export_reader_s=0.2) as running:
        slow = []
        for name in ("mallory", "mallorys", "mallory-too"):
            token = await running.token(name)
            await large(running, Namespace(name))
            client = await listless(running)
            reader, writer = await asyncio.open_connection(sock=client, limit=2**12)
            asked = "GET /v1/export HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            writer.write(f"{asked}Authorization: Bearer {token}\r\n\r\n".encode())
            assert await reader.read(1) == b"H"
            slow.append((reader, writer))
        async with running.http(await running.token("alice")) as http:
            whole = await http.get("/v1/export")
        rest = await slow[0][0].read()
        for _, writer in slow:
            writer.close()

    assert whole.status_code == 200
    assert records(whole.content)[-1]["kind"] == "end"
    assert b'"kind":"end"' not in rest  # The reader that has not read for longest is cut off.


async def large(running: Running, namespace: Namespace) -> None:
    """Store more than all buffers between the server and a `listless` reader hold: 3 MB for each
    text.
    """
    services = running.application.services
    for number in range(TEXTS):
        submission = Submission(f"{number} " + "\U0001f9e0" * 250_000, "life")
        entry = line_of(running.application, namespace, "store_memory")
        await services.ingest.remember(Context(entry), submission)


async def listless(running: Running) -> socket.socket:
    """Open a connection with a small buffer for data that it has not read."""
    client = socket.socket()
    client.setblocking(False)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 262_144)
    port = int(running.address.rpartition(":")[2])
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
    return client
