"""The MCP Inspector's command line, in both protocol versions."""

import json
from dataclasses import dataclass
from typing import Any

from tests.interop.child import Ended
from tests.interop.node import Node
from tests.interop.report import Report, demand
from tests.interop.server import Server

ERAS = ("modern", "legacy")
AUTH_NEEDED, TOOL_ERROR = 3, 5
TOOLS = [
    "store_memory",
    "search_memories",
    "inspect_memories",
    "delete_memory",
    "submit_memory",
    "consolidate_memories",
    "get_memory_stats",
    "whoami",
]
TEXT = "Interop notes: the {} inspector prefers lapsang souchong."


@dataclass(frozen=True)
class Inspector:
    """The command line for the server in one version. If `token` is None, it sends no header."""

    node: Node
    url: str
    era: str
    token: str | None

    async def list_tools(self, *options: str) -> Ended:
        return await self._run("--method", "tools/list", *options)

    async def call(self, tool: str, **arguments: object) -> Ended:
        given = json.dumps(arguments)
        return await self._run(
            "--method", "tools/call", "--tool-name", tool, "--tool-args-json", given
        )

    async def _run(self, *options: str) -> Ended:
        shown = [] if self.token is None else ["--header", f"Authorization: Bearer {self.token}"]
        return await self.node.run(
            "mcp-inspector", "--cli", "--server-url", self.url, "--transport", "http",
            "--protocol-era", self.era, "--format", "json", *shown, *options,
        )  # fmt: skip


async def check(node: Node, server: Server, report: Report) -> None:
    for era in ERAS:
        inspector = Inspector(node, server.url, era, server.token)
        await _check_tools(inspector, report)
        await _check_strangers(inspector, report)


async def _check_tools(inspector: Inspector, report: Report) -> None:
    named = f"inspector {inspector.era}:"
    text = TEXT.format(inspector.era)
    with report.check(f"{named} tools/list --strict"):
        ended = await inspector.list_tools("--strict")
        listed = [tool["name"] for tool in _result(ended)["tools"]]
        demand(listed == TOOLS, f"it lists {listed}")
        # Warnings of the schema check exit with 0, but would break a client all the same.
        demand("Issue:" not in ended.err, f"schemas are not portable: {ended.err}")
    with report.check(f"{named} store_memory"):
        demand(_data(await inspector.call("store_memory", text=text))["queued"], "not queued")
    with report.check(f"{named} search_memories finds the text at once"):
        found = _data(await inspector.call("search_memories", query="lapsang souchong", limit=5))
        texts = [one["text"] for one in found["results"]]
        demand(any("lapsang" in one for one in texts), f"it found {texts}")
    with report.check(f"{named} get_memory_stats"):
        counts = _data(await inspector.call("get_memory_stats"))
        demand(isinstance(counts["total"], int), f"it counts {counts}")
    with report.check(f"{named} a wrong argument is a tool error with our code"):
        ended = await inspector.call("search_memories", query="tea", limit=1_000)
        demand(ended.code == TOOL_ERROR, f"exit code {ended.code}: {ended.err}")
        demand("INVALID_ARGUMENT" in ended.out, f"no code of ours in {ended.out}")


async def _check_strangers(inspector: Inspector, report: Report) -> None:
    named = f"inspector {inspector.era}:"
    for shown, token in (("no token", None), ("a wrong token", "rcl_wrong")):
        with report.check(f"{named} {shown} ends with auth_required"):
            stranger = Inspector(inspector.node, inspector.url, inspector.era, token)
            # Otherwise it would open a browser.
            ended = await stranger.list_tools("--stored-auth-only")
            demand(ended.code == AUTH_NEEDED, f"exit code {ended.code}: {ended.err}")
            demand("auth_required" in ended.err, f"it says {ended.err}")


def _result(ended: Ended) -> dict[str, Any]:
    demand(ended.code == 0, f"exit code {ended.code}: {ended.err or ended.out}")
    result: dict[str, Any] = json.loads(ended.out)["result"]
    return result


def _data(ended: Ended) -> dict[str, Any]:
    result = _result(ended)
    envelope: dict[str, Any] = result["structuredContent"]
    demand(json.loads(result["content"][0]["text"]) == envelope, "text and structure differ")
    demand(envelope["status"] == "ok", f"it answers {envelope}")
    data: dict[str, Any] = envelope["data"]
    return data
