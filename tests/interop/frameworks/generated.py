"""openapi-python-client makes a client of /openapi.json that stores, finds, lists and forgets."""

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

URL, TOKEN = os.environ["RECALL_URL"], os.environ["RECALL_TOKEN"]


def made() -> None:
    """Return the client, made in this folder."""
    program = Path(sys.executable).parent / "openapi-python-client"
    done = subprocess.run(
        [str(program), "generate", "--url", f"{URL}/openapi.json", "--output-path", "made"],
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-2_000:]
    # An export is a file of lines, which it cannot describe.
    assert said.count("WARNING") == said.count("application/x-ndjson)") == 1, said[-2_000:]
    sys.path.insert(0, str(Path("made").resolve()))


def part(name: str) -> Any:
    return importlib.import_module(f"recall_server_client.{name}")


def main() -> None:
    made()
    client = part("client").AuthenticatedClient(base_url=URL, token=TOKEN)
    bodies = part("models")
    body = bodies.StoreMemoryBody(text="Ana: I moved from Porto to Lisbon.", tags=["home"])
    stored = part("api.memories.store_memory").sync_detailed(client=client, body=body)
    assert stored.status_code == 202, stored.content
    job_id = stored.parsed["job_id"]
    until = time.monotonic() + 30
    while (
        part("api.jobs.get_job").sync_detailed(job_id, client=client).parsed["state"] != "complete"
    ):
        assert time.monotonic() < until
        time.sleep(0.05)
    query = bodies.SearchMemoriesBody(query="Where does Ana live?", limit=5)
    found = part("api.search.search_memories").sync_detailed(client=client, body=query)
    listed = part("api.memories.inspect_memories").sync_detailed(client=client, tags=["home"])
    [memory] = listed.parsed["memories"]
    assert found.parsed["results"][0]["id"] == memory["id"]
    forgotten = part("api.memories.delete_memory").sync_detailed(memory["id"], client=client)
    assert forgotten.parsed["deleted"] == memory["id"]
    missing = part("api.memories.get_memory").sync_detailed("mem_unknown", client=client)
    assert missing.parsed.code == "MEMORY_NOT_FOUND"
    print("ok openapi-python-client: stores, finds, lists, forgets, reads a problem")


if __name__ == "__main__":
    main()
