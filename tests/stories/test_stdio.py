"""`recall stdio`: clients that start their own servers share one, without a setting."""

import asyncio
import json
import os
import signal

import pytest
from filelock import FileLock
from mcp import MCPError

from recall_server.local import Local, published
from tests.support.engines import on_sqlite
from tests.support.mcp_clients import ERAS, MODERN, data, told
from tests.support.processes import START_S, Server, free_port, until
from tests.support.server import Running
from tests.support.stdio import ENDED_S, Home, lines

pytest_plugins = ("tests.support.stdio",)

# This token has the right form and belongs to nobody.
SECRET = "ghp_v3NLUS59VeaQ4tZb7Yc1Xk8Rm2Wp6Td0HsJf"
INITIALIZE = {
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}


async def test_two_clients_that_come_at_once_start_one_server_with_a_token_of_its_own(
    fresh_home: Home,
) -> None:
    home, stored = fresh_home, asyncio.Event()

    async def store() -> None:
        async with home.client(era=ERAS[0]) as client:
            await data(client, "store_memory", text="The harbour ferry leaves at noon.")
            stored.set()

    async def find() -> list[str]:
        async with home.client(era=ERAS[1]) as client:
            assert "search_memories" in {tool.name for tool in (await client.list_tools()).tools}
            await stored.wait()
            found = await data(client, "search_memories", query="harbour ferry")
            return [hit["text"] for hit in found["results"]]

    _, found = await asyncio.gather(store(), find())

    assert found == ["The harbour ferry leaves at noon."]
    assert len(home.servers()) == 1
    assert home.token_file.stat().st_mode & 0o777 == 0o600
    assert home.token_file.parent.stat().st_mode & 0o777 == 0o700
    assert home.database.parent.stat().st_mode & 0o777 == 0o700


async def test_on_a_new_machine_tools_are_listed_before_the_rules_for_secrets_are_compiled(
    fresh_home: Home,
) -> None:
    """Clients wait for 10 s at most, and the rules take longer. The first text waits for them, and
    is masked.
    """
    home, cache = fresh_home, fresh_home.folder / "cache"
    home.environment.update(XDG_CACHE_HOME=str(cache), RECALL_DEADLINE_S="300")
    async with home.client() as client:
        assert (await client.list_tools()).tools
        compiled_before = [*cache.rglob("*.vscdb")]
        await data(client, "store_memory", text=f"The ferry's token is {SECRET}.")
        compiled = [*cache.rglob("*.vscdb")]
        found = await data(client, "search_memories", query="ferry token")

    assert (compiled_before, len(compiled)) == ([], 1)
    assert "[secret: " in str(found)
    assert SECRET not in str(found)


async def test_after_a_kill_of_the_server_clients_go_on_and_nothing_is_lost(home: Home) -> None:
    async with home.client(era=MODERN) as client:
        await data(client, "store_memory", text="The harbour ferry leaves at noon.")
        [killed] = home.servers()
        os.kill(killed, signal.SIGKILL)

        found = await data(client, "search_memories", query="harbour ferry")
        async with home.client() as next_one:
            again = await data(next_one, "search_memories", query="harbour ferry")

    assert len(found["results"]) == len(again["results"]) == 1
    assert killed not in home.servers()


async def test_the_server_ends_when_its_last_client_has_gone_and_not_before(home: Home) -> None:
    home.environment["RECALL_UNUSED_S"] = "0.2"
    async with home.client() as client:
        [server] = home.servers()
        await asyncio.sleep(0.5)  # The client stays connected and sends nothing.
        assert home.servers() == [server]
        assert await data(client, "whoami")
    await home.none_left()

    assert home.address is None


async def test_a_server_that_was_started_by_hand_is_used_and_stays(home: Home) -> None:
    async with Server(home.database, embedder="none", unused_s=0.2) as server:
        async with home.client() as client:
            assert await data(client, "whoami")
        assert home.address == server.address
        assert home.servers() == []
        assert server.alive


@on_sqlite
async def test_requests_are_answered_before_the_end_and_nothing_else_is_written(
    running: Running, fresh_home: Home
) -> None:
    token = fresh_home.folder / "elsewhere"
    token.write_text(await running.token())
    process = fresh_home.started("--url", running.url, "--token-file", str(token))
    said = "no message\n" + lines(INITIALIZE, {"id": "two", "method": "tools/list"})

    out, err = await asyncio.to_thread(process.communicate, said, ENDED_S)

    answers = {answer["id"]: answer for answer in map(json.loads, out.splitlines())}
    assert (process.returncode, err) == (0, "")
    assert answers[None]["error"]["code"] == -32700
    assert answers[1]["result"]["serverInfo"]["name"] == "recall"
    assert answers["two"]["result"]["tools"]


@on_sqlite
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_cleanly(
    running: Running, home: Home, number: signal.Signals
) -> None:
    process = home.started("--url", running.url, "--token-file", str(home.token_file))
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(lines(INITIALIZE))
    process.stdin.flush()
    await asyncio.to_thread(process.stdout.readline)

    process.send_signal(number)

    assert await asyncio.to_thread(process.wait, ENDED_S) == 0
    _, err = process.communicate()
    assert err == ""


# The test does not wait for the server that it started, which outlives it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_server_that_was_started_for_a_client_that_gave_up_is_waited_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That server has not written its address yet when the next client starts."""
    for name, value in home.environment.items():
        monkeypatch.setenv(name, value)
    log = home.database.with_name("server.log")

    async def refused() -> bool:
        return log.exists() and "Another recall server" in log.read_text("utf-8")

    with FileLock(home.database.with_name("recall.db.lock"), mode=0o600):
        waiting = asyncio.create_task(asyncio.to_thread(Local(home.database).address))
        await until(refused, START_S, "a second server has been refused")
        with published(home.database, "http://127.0.0.1:1"):
            found = await waiting

    assert found == "http://127.0.0.1:1"


async def test_a_server_that_cannot_start_says_why_to_the_client(home: Home) -> None:
    home.environment["RECALL_EMBEDDER"] = "nonsense"

    message = await refused(home)

    assert "RECALL_EMBEDDER must be" in message
    assert "[SERVER_UNREACHABLE]" in message


@on_sqlite
async def test_a_server_elsewhere_is_reached_by_its_address_and_token(
    running: Running, fresh_home: Home
) -> None:
    home = fresh_home
    token = home.folder / "elsewhere"
    token.write_text(f"{await running.token()}\n")
    options = ("--url", running.address, "--token-file", str(token))

    for era in ERAS:
        async with home.client(*options, era=era) as client:
            assert (await data(client, "whoami"))["namespace"] == "alice"
            unknown = await told(client, "delete_memory", memory_id="mem_unknown")
            assert unknown["code"] == "MEMORY_NOT_FOUND"
    assert not home.database.parent.exists()


@on_sqlite
async def test_what_is_wrong_with_a_server_elsewhere_is_said_to_the_client(
    running: Running, fresh_home: Home
) -> None:
    home = fresh_home
    token = home.folder / "elsewhere"
    options = ("--url", running.url, "--token-file", str(token))
    port = free_port()

    missing = await refused(home, *options)
    token.write_text("rcl_wrong")
    wrong = await refused(home, *options)
    away = await refused(home, "--url", f"http://127.0.0.1:{port}", "--token-file", str(token))

    assert f"{token} cannot be read" in missing
    assert "[UNAUTHENTICATED]" in wrong
    assert f"No server takes a connection at http://127.0.0.1:{port}/mcp" in away


async def refused(home: Home, *options: str) -> str:
    """Return the error that a client gets if it cannot connect."""
    try:
        async with home.client(*options):
            raise AssertionError("it connects")
    except* MCPError as raised:
        [error] = causes(raised)
    return str(error)


def causes(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [cause for one in error.exceptions for cause in causes(one)]
    return [error]
