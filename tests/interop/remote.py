"""mcp-remote: a bridge for clients that only support stdio."""

import os
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.client import ConnectMode

from tests.interop.inspector import TOOLS
from tests.interop.node import Node
from tests.interop.report import Report, demand
from tests.interop.server import Server

ERAS: tuple[ConnectMode, ...] = ("2026-07-28", "legacy")
TEXT = "Interop notes: over the {} bridge goes a shipment of bergamot."
WITHIN_S = 30.0
OPTIONS = ("--allow-http", "--transport", "http-only")


async def check(node: Node, server: Server, report: Report) -> None:
    for era in ERAS:
        with report.check(f"mcp-remote {era}: list, store and find"):
            async with Client(
                _bridge(node, server), mode=era, read_timeout_seconds=WITHIN_S
            ) as client:
                listed = [tool.name for tool in (await client.list_tools()).tools]
                demand(listed == TOOLS, f"it lists {listed}")
                stored = await _data(client, "store_memory", text=TEXT.format(era))
                demand(stored["queued"], f"it answers {stored}")
                found = await _data(client, "search_memories", query="bergamot")
                texts = [one["text"] for one in found["results"]]
                demand(any("bergamot" in one for one in texts), f"it found {texts}")
        with report.check(f"mcp-remote {era}: an error keeps our code"):
            async with Client(
                _bridge(node, server), mode=era, read_timeout_seconds=WITHIN_S
            ) as client:
                result = await client.call_tool("delete_memory", {"memory_id": "mem_unknown"})
                told = result.structured_content or {}
                demand(result.is_error, "it is not marked as an error")
                demand(told.get("code") == "MEMORY_NOT_FOUND", f"it answers {told}")
    await _check_stranger(node, server, report)


async def _check_stranger(node: Node, server: Server, report: Report) -> None:
    with report.check("mcp-remote: with a wrong token it ends, and shows what we say of it"):
        shown = ("--header", "Authorization:Bearer rcl_wrong")
        ended = await node.run("mcp-remote", server.url, *shown, *OPTIONS, within_s=WITHIN_S)
        demand(ended.code != 0, "it ends as if all were well")
        demand("copied whole" in ended.out + ended.err, f"it says {ended.err}")


def _bridge(node: Node, server: Server) -> StdioServerParameters:
    # The secret is in the environment, since every user of a machine can see arguments.
    environment = node.environment(
        {
            "AUTH_HEADER": f"Bearer {server.token}",
            "MCP_REMOTE_CONFIG_DIR": str(node.home / "mcp-remote"),
        }
    )
    return StdioServerParameters(
        command=str(node.programs / "mcp-remote"),
        args=[server.url, "--header", "Authorization:${AUTH_HEADER}", *OPTIONS, "--silent"],
        env=environment,
        cwd=os.fspath(node.home),
    )


async def _data(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    demand(not result.is_error, f"{tool} answers {result.structured_content}")
    data: dict[str, Any] = (result.structured_content or {})["data"]
    return data
