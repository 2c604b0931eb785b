"""`make interop-clients`: other people's coding agents as far as they run without a model, with the
configuration that `recall install` writes; and the first use with nothing but uv, or pip.

They come from npm and the package index: 1.2 GB, kept in `.interop-clients/`.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
import venv
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from tests.interop.child import run
from tests.interop.node import Node, NodeUnusable, installed
from tests.interop.report import Report, demand
from tests.interop.server import serving

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".interop-clients"
PINS = {
    "@anthropic-ai/claude-code": "2.1.197",
    "@google/gemini-cli": "0.61.0",
    "@openai/codex": "0.169.0",
    "opencode-ai": "1.18.33",
}
AS_OF = "2026-11-24"
WITHIN_S = 120.0
INSTALL_S = 600.0
# A client gives up on a server that is starting, and finds it at the next look.
LOOKS = 3
RECALL = [sys.executable, "-m", "recall_server"]


@dataclass(frozen=True)
class Agent:
    """A client: what lists its servers, and what that says where ours is connected (of Codex, which
    starts none, where it is configured).
    """

    name: str
    command: tuple[str, ...]
    says: str


AGENTS = (
    Agent("claude-code", ("claude", "mcp", "list"), "✔ Connected"),
    Agent("codex", ("codex", "mcp", "list"), "enabled"),
    Agent("gemini", ("gemini", "mcp", "list"), " - Connected"),
    Agent("opencode", ("opencode", "mcp", "list"), "connected"),
)


async def _lists(node: Node, agent: Agent) -> None:
    """Check that a client shows our server as it should."""
    program, *arguments = agent.command
    for _ in range(LOOKS):
        # Gemini CLI starts no server in a folder that it does not trust.
        trust = {"GEMINI_CLI_TRUST_WORKSPACE": "true"}
        ended = await node.run(program, *arguments, within_s=WITHIN_S, given=trust)
        said = ended.out + ended.err
        if any("recall" in line for line in said.splitlines()) and agent.says in said:
            return
    demand(False, f"it says {said[-500:]}")


async def check_agents(node: Node, report: Report) -> None:
    environment = node.environment({"PYTHONPATH": str(ROOT)})
    for agent in AGENTS:
        with report.check(f"{agent.name}: it connects with what `recall install` writes"):
            wrote = await run(
                [*RECALL, "install", agent.name], environment, node.home, within_s=WITHIN_S
            )
            demand(wrote.code == 0, wrote.err)
            await _lists(node, agent)
            gone = await run(
                [*RECALL, "install", agent.name, "--remove"],
                environment, node.home, within_s=WITHIN_S,
            )  # fmt: skip
            demand(gone.code == 0, gone.err)


async def check_http(node: Node, folder: Path, report: Report) -> None:
    with report.check("claude-code: over HTTP, with the line of the documents"):
        async with serving(folder) as server:
            shown = f"Authorization: Bearer {server.token}"
            added = await node.run(
                *("claude", "mcp", "add", "--transport", "http", "--scope", "user"),
                *("recall", server.url, "--header", shown),
                within_s=WITHIN_S,
            )
            demand(added.code == 0, added.err)
            await _lists(node, AGENTS[0])
    with report.check("claude-code: the plugin is valid"):
        plugin = str(ROOT / "clients" / "plugin")
        ended = await node.run("claude", "plugin", "validate", plugin, within_s=WITHIN_S)
        demand(ended.code == 0, ended.out + ended.err)


@asynccontextmanager
async def _model() -> AsyncIterator[tuple[str, list[Any]]]:
    """Serve a model with the API of OpenAI that always says the same. Yield its address, and what
    it is asked.
    """
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for delta in ({"role": "assistant", "content": "Noted."}, {}):
                choice = {"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}
                chunk = {"id": "1", "object": "chat.completion.chunk", "choices": [choice]}
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        task = asyncio.create_task(asyncio.to_thread(server.serve_forever, 0.05))
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1", asked
        finally:
            server.shutdown()
            await task


async def check_hooks(node: Node, folder: Path, report: Report) -> None:
    """The model of one session reads what was said in the session before."""
    with report.check("opencode: its plugin stores a turn, and gives the model what is remembered"):
        async with serving(folder) as server, _model() as (address, asked):
            token = folder / "token"
            token.write_text(server.token)
            models = {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": address, "apiKey": "none"},
                "models": {"one": {}},
            }
            config = node.home / ".config/opencode/opencode.json"
            config.parent.mkdir(parents=True, exist_ok=True)
            config.write_text(json.dumps({"provider": {"fake": models}, "model": "fake/one"}))
            elsewhere = ["--url", server.url, "--token-file", str(token)]
            wrote = await run(
                [*RECALL, "install", "opencode", *elsewhere],
                node.environment({"PYTHONPATH": str(ROOT)}), node.home, within_s=WITHIN_S,
            )  # fmt: skip
            demand(wrote.code == 0, wrote.err)
            for said in ("I moved from Porto to Lisbon.", "Where do I live?"):
                # It puts one argument that has blanks in quotation marks.
                ended = await node.run("opencode", "run", *said.split(), within_s=WITHIN_S)
                demand(ended.code == 0, ended.out + ended.err)
            demand("Lisbon" in json.dumps(asked[-1]["messages"]), f"it was asked {asked[-1]}")


async def _used(command: list[str], home: Path, given: dict[str, str]) -> str:
    """Store a sentence, find it as a memory, and return how long that took."""
    began = time.monotonic()
    environment = {**_kept(), "HOME": str(home), "RECALL_UNUSED_S": "1", **given}
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=environment)
    async with Client(parameters, mode="legacy", read_timeout_seconds=INSTALL_S) as client:
        demand(bool((await client.list_tools()).tools), "it lists no tools")
        listed = time.monotonic() - began
        told = {"text": "Ana: I moved from Porto to Lisbon."}
        stored = await client.call_tool("store_memory", told)
        demand(not stored.is_error, f"it answers {stored.structured_content}")
        while True:
            asked = {"query": "Where does Ana live?"}
            found = await client.call_tool("search_memories", asked)
            hits = (found.structured_content or {})["data"]["results"]
            if any(hit["type"] == "fact" for hit in hits):
                break
            demand(time.monotonic() - began < INSTALL_S, f"it found {hits}")
    return f"tools after {listed:.1f} s, stored and found after {time.monotonic() - began:.1f} s"


def _kept() -> dict[str, str]:
    """Return the variables that any machine has, such as certificates, and none of ours."""
    ours = ("RECALL_", "ANTHROPIC_", "OPENAI_", "XDG_", "PYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


async def check_first_use(folder: Path, report: Report) -> None:
    """Check the wheel before it is on an index."""
    python = FOLDER / "uv" / "bin" / "python"
    built = folder / "wheel"
    with report.check("uv: installed, and the wheel built with it"):
        if not python.exists():
            await asyncio.to_thread(venv.create, FOLDER / "uv", with_pip=True)
        await _ran([str(python), "-m", "pip", "install", "--quiet", "uv"])
        uv = str(python.with_name("uv"))
        await _ran([uv, "build", "--quiet", "--wheel", "--out-dir", str(built), str(ROOT)])
    [wheel] = built.glob("*.whl")
    line = [str(python.with_name("uvx")), "--from", str(wheel), "recall", "stdio"]
    home, cache = folder / "uv-home", {"UV_CACHE_DIR": str(folder / "uv-cache")}
    home.mkdir()
    for title in ("nothing but uv", "the same, later"):
        with report.check(f"{title}: {' '.join(['uvx', *line[1:]])}"):
            print(await _used(line, home, cache), flush=True)
    home = folder / "pip-home"
    home.mkdir()
    with report.check("nothing but pip: pip install, recall stdio"):
        began = time.monotonic()
        await asyncio.to_thread(venv.create, home / "venv", with_pip=True)
        await _ran([str(home / "venv/bin/python"), "-m", "pip", "install", "--quiet", str(wheel)])
        print(f"installed after {time.monotonic() - began:.1f} s")
        print(await _used([str(home / "venv/bin/recall"), "stdio"], home, {}), flush=True)


async def _ran(command: list[str]) -> None:
    ended = await run(command, os.environ, ROOT, within_s=INSTALL_S)
    demand(ended.code == 0, f"{command[0]} ended with {ended.code}: {ended.err[-500:]}")


async def main() -> int:
    report = Report()
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="recall-clients-") as folder:
        await check_first_use(Path(folder), report)
        home = Path(folder) / "home"
        home.mkdir()
        try:
            node = installed(home, PINS, FOLDER, AS_OF)
        except NodeUnusable as error:
            print(f"FAILED installing: {error}")
            return 1
        await check_agents(node, report)
        await check_http(node, Path(folder), report)
        await check_hooks(node, Path(folder), report)
    return report.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
