"""Tenants share statistics, caches and keys, and their names may look alike. None sees another's
data.
"""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from recall_server.domain.context import Context
from recall_server.domain.episode import Source
from recall_server.domain.ids import namespace
from recall_server.services.memory.ingest import Submission
from recall_server.storage import bound_connection
from tests.support.a2a_bindings import HOOK, Wire
from tests.support.engines import ENGINES
from tests.support.isolation import ALL, CONFIG, call, furnished, rows, store
from tests.support.paths import ROOT
from tests.support.server import Running

# None may be taken for another by a pattern, a prefix or a folder.
NEIGHBOURS = (
    "acme",
    "acme2",
    "acme-x",
    "acme.x",
    "acme_x",
    "acme:x",
    "user_1",
    "userx1",
    "ac",
    "a",
)
MIGRATIONS = ROOT / "migrations"

Json = dict[str, Any]


@pytest.fixture
async def neighbours(running: Running) -> AsyncIterator[dict[str, httpx2.AsyncClient]]:
    """Yield a client for each. Each namespace has stored one favourite house."""
    async with AsyncExitStack() as stack:
        found = {}
        for name in NEIGHBOURS:
            http = running.http(await running.token(name, ALL))
            found[name] = await stack.enter_async_context(http)
            await store(found[name], f"User: My favourite house is {_house(name)}.")
        await running.extract()
        yield found


def _house(name: str) -> str:
    return "house" + "".join(f"{ord(one):x}" for one in name) + "z"


async def test_names_that_look_alike_are_strangers(
    running: Running, neighbours: dict[str, httpx2.AsyncClient]
) -> None:
    """Searches, lists, exports and the audit log use the exact name."""
    for name, http in neighbours.items():
        found = await call(http, "search_memories", query="favourite house", limit=50)
        listed = await call(http, "inspect_memories", limit=50)
        export = (await http.get("/v1/export")).text
        book = (await http.get("/v1/audit?limit=200")).json()["records"]
        tokens = (await http.get("/v1/tokens")).json()["tokens"]
        told = str(found) + str(listed) + export
        assert {one for one in NEIGHBOURS if _house(one) in told} == {name}
        assert listed["total"] == found["total"] == 1
        assert {one["namespace"] for one in tokens} == {name}
        assert len([line for line in book if line["operation"] == "store_memory"]) == 1


async def test_erasing_one_name_leaves_its_neighbours_whole(
    running: Running, neighbours: dict[str, httpx2.AsyncClient]
) -> None:
    """The caches of the others keep their data, and no cache shows erased data."""
    others = {name: await rows(running, name) for name in NEIGHBOURS if name != "acme"}
    erased = await neighbours["acme"].post("/v1/erasure", json={"confirm": "DELETE MY DATA"})
    fresh = running.http(await running.token("acme", ALL))

    assert erased.status_code == 200
    assert {name: await rows(running, name) for name in others} == others
    async with fresh:
        gone = await call(fresh, "search_memories", query="favourite house", mode="vector")
        assert gone["results"] == []
    for name in others:
        found = await call(neighbours[name], "search_memories", query="house", mode="vector")
        assert [_house(name) in hit["text"] for hit in found["results"]] == [True]


# These statements go through all namespaces in order, some at a time.
ACROSS = {"all_audits", "grown_audits", "audits_to_cut", "due_queues", "claim_job"}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_namespace_is_compared_whole_and_with_nothing_but_itself(engine: Any) -> None:
    """No statement and no policy has a pattern, a prefix or a function between a namespace and the
    value that it must equal.
    """
    queries = bound_connection.load(engine)
    texts = {name: f"{one.sql}\n{one.unlimited or ''}" for name, one in queries.items()}
    texts |= {path.name: path.read_text() for path in MIGRATIONS.glob(f"*.{engine}.sql")}
    compared = re.compile(r"namespace(?:\s|\))*(=|!=|<|>|~|\|\||\bIN\b|\bLIKE\b|\bGLOB\b)")
    for name, text in texts.items():
        # A trigger checks that a row stays in its namespace.
        plain = re.sub(r"--[^\n]*|NEW\.namespace <> OLD\.namespace", "", text)
        found = set(compared.findall(plain))
        # Statements that serve all tenants go through them in order, or leave out whole ones.
        across = name in texts and name in ACROSS
        assert found <= ({"=", "<", ">", "IN"} if across else {"="}), (name, found)
        pattern = re.search(r"(?i)\b(?:LIKE|ILIKE|GLOB|SIMILAR|REGEXP|MATCH)\b|starts_with", plain)
        assert pattern is None, name


async def test_anothers_words_and_vectors_move_no_score(running: Running) -> None:
    """Bob writes Alice's rarest word fifty times, and the text nearest to her question a hundred
    times. She gets the same hits with the same numbers, to the last bit.
    """
    alice, bob = await running.token("alice", ALL), await running.token("bob", ALL)
    async with running.http(alice) as hers, running.http(bob) as his:
        for text in ("the quokka eats jam", "the heron eats fish", "jam is made of figs"):
            await store(hers, f"User: I know that {text}.")
        await running.extract()

        async def seen() -> list[Json]:
            await _untouched(running)
            found = [
                await call(hers, "search_memories", query="quokka jam", mode=mode, explain=True)
                for mode in ("keyword", "vector", "hybrid", "recall")
            ]
            assert all(one["results"] for one in found)
            return found

        before = await seen()
        for number in range(50):
            entry = running.application.services.audit.begin(
                namespace("bob"), "store_memory", "test", None
            )
            text = (
                f"Bob: The quokka of number {number} likes quokka jam.\nBob: quokka jam {number}."
            )
            await running.application.services.ingest.remember(
                Context(entry), Submission(text, "life", None, Source())
            )
        await running.extract()
        theirs = await call(his, "search_memories", query="quokka jam", limit=50)
        after = await seen()

    assert len(theirs["results"]) == 50
    assert after == before


async def _untouched(running: Running) -> None:
    """Reset the access counts. Each search adds to them, and the mode `recall` uses them."""
    store = running.application.store
    await running.application.services.audit.reads.flush()
    async with store.driver.transaction(namespace="alice", write=True) as raw:
        for table in ("memories", "turns"):
            await raw.send(f"UPDATE {table} SET access_count = 0", {})
    store.forget(namespace("alice"))


async def test_the_same_key_and_text_of_two_tenants_are_two_things(running: Running) -> None:
    """A tenant may use a key, a text, a session, a push configuration or a conversation that
    another has used. It is new, and is answered in the same words.
    """
    alice = await furnished(running)
    given = {"idempotency_key": "once", "session_id": "s", "agent_id": "planner"}
    text = "User: My favourite colour is teal."
    async with running.http(alice.token) as hers, running.http(alice.bob) as his:
        first = await call(hers, "store_memory", text=text, **given)
        again = await call(hers, "store_memory", text=text, **given)
        second = await call(his, "store_memory", text=text, **given)
        other = await call(his, "store_memory", text="User: I ski.", idempotency_key="twice")
        task = await Wire(his).task(contextId=alice.ids["context"])
        config = {"taskId": task["id"], "url": HOOK, "id": CONFIG}
        made = await Wire(his).result("CreateTaskPushNotificationConfig", **config)
        await running.extract()
        stats = await call(his, "get_memory_stats")
        task = await Wire(his).result("GetTask", id=task["id"])

    assert (first["queued"], again["queued"], second["queued"]) == (True, False, True)
    assert again["job_id"] == first["job_id"] != second["job_id"]
    assert set(first) == set(second) == set(other)
    assert made["id"] == CONFIG
    assert stats["total"] >= 2
    assert task["contextId"] == alice.ids["context"]
    # Alice's Lisbon would contradict Bob's text, but is not in his namespace.
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
