"""mcp-use with our server: its session, and its tools as LangChain has them."""

import asyncio
import json
import os
import time
from typing import Any

from mcp_use import MCPClient
from mcp_use.agents.adapters import LangChainAdapter

WITHIN_S = 60.0
CONFIGURATION = {
    "mcpServers": {
        "recall": {
            "url": f"{os.environ['RECALL_URL']}/mcp",
            "headers": {"Authorization": f"Bearer {os.environ['RECALL_TOKEN']}"},
        }
    }
}


def data(answer: Any) -> Any:
    read = json.loads(answer)
    assert read["status"] == "ok", read
    return read["data"]


async def main() -> None:
    client = MCPClient.from_dict(CONFIGURATION)
    try:
        session = await client.create_session("recall")
        names = {tool.name for tool in await session.list_tools()}
        assert {"store_memory", "search_memories"} <= names, names
        told = {"text": "Ana: I moved from Porto to Lisbon."}
        stored = await session.call_tool("store_memory", told)
        assert not stored.isError, stored
        tools = {tool.name: tool for tool in await LangChainAdapter().create_tools(client)}
        # It sends None for arguments that are not given.
        again = data(await tools["store_memory"].ainvoke({"text": "Ana: I like jam."}))
        assert again["queued"], again
        until = time.monotonic() + WITHIN_S
        while True:
            asked = {"query": "Where does Ana live?"}
            found = data(await tools["search_memories"].ainvoke(asked))
            if any(hit["type"] == "fact" and "Lisbon" in hit["text"] for hit in found["results"]):
                break
            assert time.monotonic() < until, found
            await asyncio.sleep(0.1)
    finally:
        await client.close_all_sessions()
    print("mcp-use: listed, stored and found, by its session and by its tools for LangChain")


asyncio.run(main())
