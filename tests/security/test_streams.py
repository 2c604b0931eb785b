"""The number of open streams is limited, and no stream stays open after its token has ended."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from a2a.types import GetTaskRequest

from tests.support.a2a_bindings import Wire, message
from tests.support.a2a_clients import BINDINGS, LISBON, agent, said
from tests.support.mcp_clients import request
from tests.support.processes import Server, new_token, recall
from tests.support.server import WITHIN_S, Serve


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_namespace_has_so_many_streams_and_others_have_theirs(
    serve: Serve, binding: str
) -> None:
    async with serve(streams_per_namespace=2) as running, AsyncExitStack() as stack:
        alice, second, bob = [
            Wire(await stack.enter_async_context(running.http(await running.token(name))), binding)
            for name in ("alice", "alice", "bob")
        ]
        task = await alice.task()

        kept = []  # A stream without a reference is closed.

        async def subscribed(wire: Wire, task_id: str) -> AsyncExitStack:
            open_ = await stack.enter_async_context(AsyncExitStack())
            stream = await open_.enter_async_context(wire.stream("SubscribeToTask", id=task_id))
            kept.append(stream)
            assert await stream.next() is not None
            return open_

        first = await subscribed(alice, task["id"])
        await subscribed(second, task["id"])
        refused = [
            await alice.answer("SubscribeToTask", id=task["id"]),
            await alice.answer("SendStreamingMessage", message=message()),
        ]
        await subscribed(bob, (await bob.task())["id"])
        before = (await alice.result("ListTasks"))["totalSize"]
        await first.aclose()
        async with asyncio.timeout(WITHIN_S):
            while True:
                try:
                    await subscribed(alice, task["id"])
                except AssertionError:  # The server has not noticed the closed stream yet.
                    continue
                break
        running.application.stop()

    for answer in refused:
        assert answer.status_code == 429
        assert int(answer.headers["Retry-After"]) > 0
        assert "A namespace may have 2 open streams" in answer.text
    assert before == 1  # A refused call has started nothing.


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_stream_ends_when_its_token_is_revoked_by_another_process(
    database: Path | str, binding: str
) -> None:
    """The test uses real clients. Streams of other tokens stay open."""
    async with (
        Server(database, worker_jobs=0, embedder="none") as server,
        AsyncExitStack() as stack,
    ):
        tokens = [await new_token(database, "alice") for _ in range(2)]
        revoked, kept = [
            await stack.enter_async_context(agent(server, token["token"], binding, streaming=True))
            for token in tokens
        ]
        ended = [asyncio.Event(), asyncio.Event()]

        async def listen(number: int, began: asyncio.Event) -> int:
            client = (revoked, kept)[number]
            events = 0
            async for _ in client.send_message(said(LISBON)):
                events += 1
                began.set()
            ended[number].set()
            return events

        began = [asyncio.Event(), asyncio.Event()]
        listening = [asyncio.create_task(listen(n, began[n])) for n in range(2)]
        async with asyncio.timeout(WITHIN_S):
            for one in began:
                await one.wait()
        await recall(database, "tokens", "revoke", tokens[0]["accessor"])
        async with asyncio.timeout(WITHIN_S):
            events = await listening[0]
        with pytest.raises(Exception, match="401"):
            await revoked.get_task(GetTaskRequest(id="task_x"))

        # The stream sent the task, and an end that no client takes for a broken connection.
        assert events == 1
        assert not ended[1].is_set()
        assert await server.stop() == 0
        assert await listening[1] == 1


async def test_mcp_keeps_no_stream_open(serve: Serve) -> None:
    """No stream can outlive its token, and no session can be filled."""
    async with serve() as running, running.http(await running.token()) as http:
        answers = [await http.get("/mcp")]
        for modern in (False, True):
            headers, body = request(
                "subscriptions/listen", {"subscriptions": {"tools": {}}}, modern=modern
            )
            answers.append(await http.post("/mcp", json=body, headers=headers))

    for answer in answers:
        assert "text/event-stream" not in answer.headers["Content-Type"]
        assert "Mcp-Session-Id" not in answer.headers
    assert answers[0].status_code == 405


async def test_a_stopping_server_ends_its_streams_with_their_end(
    database: Path | str,
) -> None:
    """SIGTERM is sent twice while streams are open. They end properly, and the process exits with
    0.
    """
    async with Server(database, worker_jobs=0, embedder="none", drain_s=5) as server:
        token = (await new_token(database, "alice"))["token"]
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(agent(server, token, one, streaming=True))
                for one in BINDINGS
            ]
            began = [asyncio.Event() for _ in clients]

            async def listen(number: int) -> int:
                events = 0
                async for _ in clients[number].send_message(said(LISBON)):
                    events += 1
                    began[number].set()
                return events

            listening = [asyncio.create_task(listen(n)) for n in range(len(clients))]
            async with asyncio.timeout(WITHIN_S):
                for one in began:
                    await one.wait()
            first = asyncio.create_task(server.stop())
            code = await server.stop()
            assert (code, await first) == (0, 0), server.log()
            assert [await one for one in listening] == [1, 1]
        assert "Traceback" not in server.log()
