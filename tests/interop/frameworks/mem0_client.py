"""mem0's own client, with and without an event loop, uses the mem0 routes of our server."""

import asyncio
import os

from mem0 import AsyncMemoryClient, MemoryClient

from recall_client import RecallClient

HOST, TOKEN = f"{os.environ['RECALL_URL']}/mem0", os.environ["RECALL_TOKEN"]


def wait(added: dict[str, str], ours: RecallClient) -> None:
    assert added["status"] == "PENDING", added
    ours.wait_for_job(added["event_id"])


def a_client_does_all(ours: RecallClient) -> None:
    client = MemoryClient(api_key=TOKEN, host=HOST)
    wait(client.add("I live in Porto.", user_id="ana", metadata={"k": 1}), ours)
    wait(client.add([{"role": "user", "content": "I live in Lisbon."}], user_id="ana"), ours)
    wait(client.add("I like jam.", user_id="bo", run_id="r1", infer=False), ours)
    everything = client.get_all(filters={"user_id": "ana"})["results"]
    assert ["Lisbon" in one["memory"] for one in everything] == [True], everything
    found = client.search("Where does the user live?", filters={"AND": [{"user_id": "ana"}]})
    assert "Lisbon" in found["results"][0]["memory"], found
    assert client.get_all(filters={"run_id": "r1"})["results"][0]["memory"] == "I like jam."
    memory_id = everything[0]["id"]
    assert client.get(memory_id)["id"] == memory_id
    events = [change["event"] for change in client.history(memory_id)]
    assert events == ["ADD", "UPDATE"], events
    client.delete(memory_id)
    assert memory_id not in str(client.get_all(filters={"user_id": "ana"}))
    try:
        client.get("mem_unknown")
    except Exception as error:  # noqa: BLE001  # theirs, by the status
        assert "NotFound" in type(error).__name__, error  # noqa: PT017
    else:
        raise AssertionError("an unknown memory was found")


async def so_does_the_other() -> None:
    async with AsyncMemoryClient(api_key=TOKEN, host=HOST) as client:
        added = await client.add("I ski.", user_id="cleo", infer=False)
        ours = RecallClient.from_env()
        await asyncio.to_thread(wait, added, ours)
        found = await client.search("Who skis?", filters={"user_id": "cleo"})
        assert found["results"][0]["user_id"] == "cleo"


def a_user_is_deleted_by_who_may() -> None:
    client = MemoryClient(api_key=TOKEN, host=HOST)
    try:
        client.delete_all(user_id="bo")
    except Exception as error:  # noqa: BLE001  # theirs
        assert "memory:erase" in str(error), error  # noqa: PT017
    else:
        raise AssertionError("a token without memory:erase has deleted a user")


def main() -> None:
    with RecallClient.from_env() as ours:
        assert "memory:erase" not in ours.whoami().scopes
        a_client_does_all(ours)
        print("ok mem0: MemoryClient adds, lists, finds, gets, shows history, deletes")
        asyncio.run(so_does_the_other())
        print("ok mem0: AsyncMemoryClient adds and finds")
        a_user_is_deleted_by_who_may()
        print("ok mem0: a user is deleted by a token with memory:erase only")


if __name__ == "__main__":
    main()
