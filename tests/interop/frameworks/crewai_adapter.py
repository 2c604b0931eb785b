"""CrewAI's MCP adapter with our server: each tool, as an agent of a crew calls it."""

import json
import os
import time
from typing import Any

from crewai_tools import MCPServerAdapter

WITHIN_S = 60.0
SERVER = {
    "url": f"{os.environ['RECALL_URL']}/mcp",
    "transport": "streamable-http",
    "headers": {"Authorization": f"Bearer {os.environ['RECALL_TOKEN']}"},
}


def data(answer: str) -> Any:
    read = json.loads(answer)
    assert read["status"] == "ok", read
    return read["data"]


with MCPServerAdapter(SERVER) as listed:
    tools = {tool.name: tool for tool in listed}
    assert {"store_memory", "search_memories", "inspect_memories", "delete_memory"} <= set(tools)
    # The adapter sends None for arguments that are not given.
    stored = data(tools["store_memory"].run(text="Ana: I moved from Porto to Lisbon."))
    assert stored["queued"], stored
    until = time.monotonic() + WITHIN_S
    while True:
        found = data(tools["search_memories"].run(query="Where does Ana live?", limit=3))
        facts = [hit for hit in found["results"] if hit["type"] == "fact"]
        if facts:
            break
        assert time.monotonic() < until, found
        time.sleep(0.1)
    assert "Lisbon" in facts[0]["text"], facts
    memories = data(tools["inspect_memories"].run())
    assert memories["memories"], memories
    gone = data(tools["delete_memory"].run(memory_id=facts[0]["id"]))
    assert gone["deleted"], gone
print("CrewAI: listed, stored, found, listed memories, forgot")
