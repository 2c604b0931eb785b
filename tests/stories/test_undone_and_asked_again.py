"""Whatever is undone through a server, all answers about an earlier moment stay what they were, and
those about now are what they were before.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.length import only_at_full_length
from tests.support.processes import Database, Server, new_token, recall, until

QUESTIONS = ("Where do I live?", "Where does Kim live?")
# These tell of the call, or of work that waits now, and not of what is known.
OF_THE_CALL = frozenset({"generated_at", "access_count", "instance", "pending_embeddings"})
Known = dict[str, Any]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items() if name not in OF_THE_CALL}
    return [_plain(one) for one in value] if isinstance(value, list) else value


class Asking:
    """Asks a server for everything that it tells, and keeps what it told about each moment."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.ids: set[str] = set()
        self.then: dict[str, Known] = {}

    async def get(self, path: str, **params: str) -> Any:
        answer = await self.http.get(path, params=params)
        assert answer.status_code in (200, 404), answer.text
        return answer.json()

    async def post(self, path: str, **body: object) -> Any:
        answer = await self.http.post(path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    async def stored(self, text: str, **more: object) -> Known:
        await self.post("/v1/memories", text=text, topic="life", **more)
        return await self.now()

    async def id_of(self, word: str) -> str:
        page = await self.get("/v1/memories", limit="50")
        return str(next(one["id"] for one in page["memories"] if word in one["text"]))

    async def last_change(self) -> str:
        return str((await self.get("/v1/changes"))["changes"][0]["id"])

    async def undone(self, change_id: str, **body: object) -> str:
        """Undo a change. Return the id of the undo."""
        return str((await self.post(f"/v1/changes/{change_id}/undo", **body))["change_id"])

    async def now(self) -> Known:
        """Return all answers about now, once no job is left; the same answers are given about this
        moment.
        """

        async def done() -> bool:
            found = await self.get("/v1/stats")
            return not found["pending_extractions"] and not found["pending_embeddings"]

        await until(done, 30, "all texts are read and have vectors")
        page = await self.get("/v1/memories", limit="50")
        self.ids |= {one["id"] for one in page["memories"]}
        at = datetime.now(UTC).isoformat(timespec="microseconds")
        now = await self.known()
        self.then[at] = await self.known(known_at=at)
        assert self.then[at] == now
        return now

    async def known(self, **when: str) -> Known:
        """Return all answers about a moment."""
        found = {
            "list": await self.get("/v1/memories", limit="50", **when),
            "superseded": await self.get("/v1/memories", status="superseded", **when),
            "stats": await self.get("/v1/stats", by_status="true", **when),
            "lives": await self.get("/v1/timeline", entity="user", attribute="lives_in", **when),
        }
        for memory_id in sorted(self.ids)[:3]:
            found[memory_id] = await self.get(f"/v1/memories/{memory_id}", **when)
        for question in QUESTIONS:
            body = await self.post("/v1/search", query=question, limit=20, **when)
            found[question] = [(one["id"], one["text"]) for one in body["results"]]
            found[f"context of {question}"] = await self.post(
                "/v1/context", message=question, **when
            )
        return {name: _plain(one) for name, one in found.items()}

    async def asked_again(self) -> dict[str, Known]:
        """Ask about every moment again, for the memories that were known then."""
        ids, found = self.ids, {}
        for at, then in self.then.items():
            self.ids = ids & then.keys()
            found[at] = await self.known(known_at=at)
        self.ids = ids
        return found


@asynccontextmanager
async def asking(server: Server, token: str) -> AsyncIterator[Asking]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(
        base_url=server.address, headers=headers, timeout=30, verify=False, trust_env=False
    ) as http:
        yield Asking(http)


def same(one: Known, other: Known) -> bool:
    """True if both tell the same of the memories that both know. What an undo took back counts as
    forgotten.
    """
    for known in (one, other):
        known["stats"]["by_status"].pop("forgotten", None)
    return all(one[name] == other[name] for name in one.keys() & other.keys())


async def export_of_kim(server: Server, token: str, file: Path) -> None:
    async with asking(server, token) as other:
        await other.stored("Kim: I live in Oslo. I own a boat.")
        exported = await other.http.get("/v1/export")
    await asyncio.to_thread(file.write_bytes, exported.content)


@only_at_full_length
@pytest.mark.slow
async def test_an_undo_changes_no_answer_about_the_past(database: Database, tmp_path: Path) -> None:
    alice, bob = [
        (await new_token(database, name, "--scope", "admin"))["token"] for name in ("alice", "bob")
    ]
    file = tmp_path / "bob.jsonl"
    async with Server(database) as server:
        await export_of_kim(server, bob, file)
        async with asking(server, alice) as asked:
            await asked.stored("User: I live in Porto. I like figs.")
            whole = await asked.stored("User: I live in Rome now.", agent_id="bad")
            # The undo of a purge, from the command line, and undos of that after a restart.
            await recall(database, "purge-source", "alice", "--agent", "bad", "--yes")
            purged = await asked.now()
            await recall(database, "undo", "alice", await asked.last_change())
            assert same(whole, await asked.now())
            undo = await asked.last_change()
            await server.stop()
            await server.start()
            undo = await asked.undone(undo)
            assert same(purged, await asked.now())
            await asked.undone(undo)
            assert same(whole, await asked.now())
            # An import.
            await recall(database, "import", str(file), "--into", "alice")
            imported = await asked.now()
            undo = await asked.undone(await asked.last_change())
            assert same(whole, await asked.now())
            brought = await asked.undone(undo)
            assert same(imported, await asked.now())
            # A change on which another rests.
            await asked.stored("User: I am allergic to peanuts.")
            change_id, nuts = await asked.last_change(), await asked.id_of("peanuts")
            words = {"text": "The user is allergic to nuts."}
            await asked.http.patch(f"/v1/memories/{nuts}", json=words)
            changed = await asked.now()
            refused = await asked.http.post(f"/v1/changes/{change_id}/undo", json={})
            assert (refused.status_code, refused.json()["code"]) == (409, "NOT_UNDOABLE")
            undo = await asked.undone(change_id, with_dependents=True)
            assert same(imported, await asked.now())
            await asked.undone(undo)
            assert same(changed, await asked.now())
            assert await asked.asked_again() == asked.then

            # An erasure in between: no undo and no moment brings it back.
            await asked.http.delete(f"/v1/memories/{await asked.id_of('Oslo')}?erase=true")
            left = await asked.now()
            asked.then = await asked.asked_again()
            assert "Oslo" not in json.dumps(asked.then)
            undo = await asked.undone(brought)
            assert "Kim" not in json.dumps((await asked.now())["list"])
            await asked.undone(undo)
            assert same(left, await asked.now())
            assert await asked.asked_again() == asked.then
            assert "Oslo" not in json.dumps(asked.then)
