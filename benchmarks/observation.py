"""What it costs to be watched: processor time of the same calls, with metrics that are scraped, and
with traces that are sent.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated

import httpx2
import typer

from benchmarks.clients import CallTool, plain
from benchmarks.databases import scratch, settings, settle, twin
from benchmarks.fill import Say, tenant
from benchmarks.measure import Operation, connected, inspect, search, store
from benchmarks.report import Check, Report, Row
from benchmarks.servers import Served, target
from benchmarks.texts import Texts
from recall_server.bootstrap import open_application

SEED = 20261125
MEMORIES = 1_000
# Of each operation in a round: short, so that what else the machine does meets all servers.
CALLS = 10
# Rounds between two scrapes. Prometheus scrapes every 15 s, which is as often at 10 calls a second.
SCRAPED_EVERY = 5
WARM_UP = 5
COST_MAX = 1.03
UNWATCHED, SCRAPED, TRACED = "unwatched", "metrics scraped", "metrics scraped, traces sent"
NOTES = (
    "Servers on copies of one database get the same calls (store, search, list) in turns. The "
    "processor time is that of the server's process, with scrapes and the sending of spans in it."
)


class _Collector(BaseHTTPRequestHandler):
    """Takes the spans that it is sent."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


async def observation(
    engine: str,
    say: Say,
    *,
    rounds: Annotated[int, typer.Option(min=1, help="Of 30 calls to each server.")] = 200,
    db_url: str | None = None,
) -> Report:
    """Processor time of a call with metrics and traces on, beside the same call without."""
    texts = Texts(SEED)
    with scratch(engine, db_url) as database, _collector() as collector:
        say(f"{engine}: writing {MEMORIES:,} memories")
        async with open_application(settings(database)) as built:
            token = await tenant(built, "watched", texts.statements(MEMORIES))
        settle(database)
        probes = {name: _free_port() for name in (SCRAPED, TRACED)}
        given = {
            UNWATCHED: {},
            SCRAPED: {"RECALL_PROBE_PORT": str(probes[SCRAPED])},
            TRACED: {
                "RECALL_PROBE_PORT": str(probes[TRACED]),
                "RECALL_OTLP_ENDPOINT": collector,
            },
        }
        async with AsyncExitStack() as stack, httpx2.AsyncClient() as http:
            servers: dict[str, Served] = {}
            callers: dict[str, list[tuple[Operation, CallTool]]] = {}
            copies = [database, twin(database, "second"), twin(database, "third")]
            for copy, (name, more) in zip(copies, given.items(), strict=True):
                servers[name] = await stack.enter_async_context(target(copy, 0, **more))
                connect = partial(plain, servers[name].address)
                operations = [
                    store("store", token, SEED + 1),
                    search("search", token, SEED + 1),
                    inspect("list", token),
                ]
                callers[name] = [
                    (one, (await connected(stack, connect, one, 1))[0]) for one in operations
                ]
            began = dict.fromkeys(servers, 0.0)
            order = [*servers]
            for number in range(-WARM_UP, rounds):
                say(f"{engine}: round {number} of {rounds}")
                if number == 0:
                    began = {name: one.processor_s() or 0.0 for name, one in servers.items()}
                for name in order:
                    for one, call in callers[name]:
                        for _ in range(CALLS):
                            await call(one.tool, one.arguments())
                    if name in probes and number % SCRAPED_EVERY == 0:
                        answer = await http.get(f"http://127.0.0.1:{probes[name]}/metrics")
                        answer.raise_for_status()
                order = [*order[1:], order[0]]
            spent = {
                name: (one.processor_s() or 0.0) - began[name] for name, one in servers.items()
            }
    calls = 3 * CALLS * rounds
    rows = [
        Row(
            "processor time of a call",
            name,
            {"ms": 1000 * seconds / calls, f"x {UNWATCHED}": seconds / spent[UNWATCHED]},
        )
        for name, seconds in spent.items()
    ]
    checks = [Check(name, spent[name] / spent[UNWATCHED], COST_MAX) for name in (SCRAPED, TRACED)]
    return Report("observation", engine, rows, checks, {"calls": calls}, notes=NOTES)


@contextmanager
def _collector() -> Iterator[str]:
    """Yield the address of something that takes spans."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _free_port() -> int:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
