"""Probes of a process: they accept any host, answer in time, and report a stop before it begins."""

import asyncio
import json
import socket
from pathlib import Path

import httpx2
import pytest

from recall_server.application import READY_S
from recall_server.lifecycle import checked_and_loaded
from tests.support.engines import on_sqlite
from tests.support.faults import held
from tests.support.processes import Process, Server, free_port, until
from tests.support.server import Running, Serve

WITHIN_S = 60.0


@on_sqlite
@pytest.mark.parametrize("path", ["/health", "/ready", "/api/health", "/api/v1/health"])
async def test_a_probe_may_name_any_host_or_none(running: Running, path: str) -> None:
    """The control: other paths refuse such a host."""
    async with running.http() as http:
        by_address = await http.get(path, headers={"Host": "10.1.2.3:8000"})
        other = await http.get("/docs", headers={"Host": "10.1.2.3:8000"})
    host, _, port = running.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    nameless = await reader.readline()
    writer.close()

    assert by_address.status_code == 200
    assert other.json()["code"] == "HOST_NOT_ALLOWED"
    assert b" 200 " in nameless


async def test_ready_says_no_within_a_second_where_the_database_does_not_answer(
    serve: Serve,
) -> None:
    """It answers yes as soon as the database does."""
    async with serve() as running, running.http() as http:
        look, answer = running.application.check, asyncio.Event()

        async def check() -> None:
            await answer.wait()
            await look()

        running.application.check = check  # type: ignore[method-assign]
        begun = asyncio.get_running_loop().time()
        silent = await http.get("/ready")
        lasted = asyncio.get_running_loop().time() - begun
        answer.set()

        async def ready() -> bool:
            return (await http.get("/ready")).status_code == 200

        await until(ready, WITHIN_S, "it is ready again")

    assert (silent.status_code, silent.json()["code"]) == (503, "DATABASE_UNAVAILABLE")
    assert READY_S <= lasted < 1


@on_sqlite
async def test_ready_says_no_while_the_rules_for_secrets_are_compiled_and_calls_are_taken_meanwhile(
    serve: Serve,
) -> None:
    """On a new machine this takes many seconds, and only a text waits for them."""
    compiled = asyncio.Event()
    async with serve() as running, running.http(await running.token()) as http:
        async with checked_and_loaded(running.application, redactor_s=0):
            loading = running.application.loading
        running.application.loading = asyncio.create_task(compiled.wait())
        meanwhile = await http.get("/ready")
        searched = await http.post("/v1/search", json={"query": "tea"})
        compiled.set()
        await running.application.loading
        afterwards = await http.get("/ready")

    assert loading is not None
    assert (meanwhile.status_code, meanwhile.json()) == (503, {"status": "starting"})
    assert (searched.status_code, afterwards.status_code) == (200, 200)


@on_sqlite
async def test_ready_says_no_before_the_port_is_closed_and_calls_are_taken_meanwhile(
    database: Path,
) -> None:
    """A second signal ends the delay."""
    async with Server(database, worker_jobs=0, embedder="none", stop_delay_s=3_600) as server:
        async with httpx2.AsyncClient(
            base_url=server.address, verify=False, trust_env=False
        ) as http:
            stopping = asyncio.create_task(server.stop())

            async def off() -> bool:
                return (await http.get("/ready")).status_code == 503

            await until(off, WITHIN_S, "/ready says no")
            served = await http.get("/openapi.json")
            assert not stopping.done()
        await server.stop()
        code = await stopping

    assert served.status_code == 200
    assert code == 0


async def test_a_worker_and_a_server_have_probes_on_a_port_of_their_own(
    database: Path | str,
) -> None:
    """That port loads no protocol, and answers nothing else."""
    port = free_port()
    async with (
        Process(database, "worker", probe_port=port, embedder="none") as worker,
        httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", verify=False, trust_env=False
        ) as http,
    ):

        async def ready() -> bool:
            assert worker.alive, worker.log()
            try:
                return (await http.get("/ready")).status_code == 200
            except httpx2.TransportError:
                return False

        await until(ready, WITHIN_S, f"the worker is ready. {worker.log()}")
        health = await http.get("/health", headers={"Host": "10.1.2.3"})
        other = await http.get("/mcp")
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(b"x" * 100_000 + b"\r\n\r\n")
        again = await http.get("/health")
        assert await worker.stop() == 0
    async with (
        Server(database, probe_port=port, embedder="none"),
        httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", verify=False, trust_env=False
        ) as http,
    ):
        of_server = await http.get("/ready")

    assert health.json()["status"] == again.json()["status"] == "ok"
    assert other.status_code == 404
    assert (of_server.status_code, json.loads(of_server.content)) == (200, {"status": "ready"})


@on_sqlite
async def test_a_busy_database_does_not_make_a_probe_fail(database: Path) -> None:
    """A long write does not block readers."""
    async with (
        Server(database, worker_jobs=0, embedder="none") as server,
        held(database),
        httpx2.AsyncClient(base_url=server.address, verify=False, trust_env=False) as http,
    ):
        assert (await http.get("/ready")).status_code == 200
