"""If a body needs more memory than there is, its sender gets an error, and others get answers."""

import resource
from pathlib import Path

import httpx2

from tests.support.faults import limit
from tests.support.length import has_full_length, on_both_at_full_length
from tests.support.paths import ROOT
from tests.support.processes import Process, Server, calling, new_token
from tests.support.stored import ALICE

# The server holds several copies of the body while it reads it.
LARGE_BYTES = 2_000_000
ROOM_BYTES = 3_145_728


def body(size: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"' + b"a" * size + b'"}}'


def used_bytes(process: Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
    return 1024 * int(status.partition("VmSize:")[2].split()[0])


@on_both_at_full_length
@has_full_length
async def test_without_the_memory_for_a_body_it_is_refused_and_the_server_lives(
    database: Path | str,
) -> None:
    """The test repeats this on each protocol. With enough memory the body is read."""
    token = (await new_token(database, ALICE))["token"]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    async with (
        # Started anew: a forked one has memory to spare that others have freed.
        Server(database, worker_jobs=0, embedder="none").of(ROOT) as server,
        calling(server.address, token) as call,
        httpx2.AsyncClient(base_url=server.address, headers=headers, timeout=60) as http,
    ):
        await call("store_memory", text="Alice: I live in Lisbon.")
        first = await http.post("/mcp", content=body(LARGE_BYTES // 50))
        before = limit(server, resource.RLIMIT_AS, used_bytes(server) + ROOM_BYTES)
        refused = [
            await http.post(path, content=body(LARGE_BYTES))
            for path in ("/mcp", "/a2a", "/v1/erasure")
        ]
        meanwhile = await call("search_memories", query="Lisbon", mode="keyword")
        limit(server, resource.RLIMIT_AS, before)
        read = await http.post("/mcp", content=body(LARGE_BYTES))

    assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [
        (503, "BUSY")
    ] * 3
    assert all(answer.headers["Retry-After"] for answer in refused)
    assert meanwhile["total"] == 1
    assert first.status_code == read.status_code == 200
