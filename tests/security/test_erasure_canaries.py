"""The protocols put a canary into every column that can hold somebody's words. Each kind of
erasure removes it from all tables and files. `pytest -s` prints the matrix.
"""

from collections import Counter

import httpx2
import pytest

from recall_server.domain.ids import derived_id
from recall_server.domain.permissions import DEFAULT_SCOPES, AccessScope, Rights
from recall_server.domain.plan import Policy
from recall_server.integrations.keys import verified
from recall_server.services.auth import TokenRequest
from recall_server.services.erasure.eraser import DEFAULT_LIMITS, Limits
from recall_server.services.erasure.purge import RECEIPT_TYP
from recall_server.services.erasure.targets import Batch
from recall_server.services.memory.derivation import derive
from recall_server.storage.tables import registry
from tests.support.a2a_bindings import Wire
from tests.support.conversation import ALICE, context, memories
from tests.support.erasure import CONFIRM, select
from tests.support.lists import closed
from tests.support.mcp_clients import LEGACY, told
from tests.support.server import Running, Serve, serve
from tests.support.stored import left_of
from tests.support.transfer import Json, many, records, sealed, taken_in
from tests.support.webhooks import planted

__all__ = ["serve"]

# One term of the index. Each engine has its own spelling, since both may use one Postgres.
CANARY = "Zyxqvo{}okwmt"
ALL_AT_ONCE = DEFAULT_LIMITS
SMALL = Limits(rows_at_once_max=5, rows_max=3, batch=Batch(items=2, rows=20))
KINDS = {
    "memory": ALL_AT_ONCE,
    "subject": ALL_AT_ONCE,
    "container": ALL_AT_ONCE,
    "large container": SMALL,
    "namespace": ALL_AT_ONCE,
    "large subject": SMALL,
}
# Nothing listens at this address.
HOOK = "http://127.0.0.1:9/{}"
Columns = Counter[tuple[str, str]]


def column_names() -> set[tuple[str, str]]:
    """Return the columns of the registry that can hold what somebody said."""
    return {(table.name, column) for table in registry.TABLES for column in table.said}


async def holding(running: Running, canary: str) -> Columns:
    """Count the rows of each column of each table that hold the canary."""
    await running.application.services.audit.reads.flush()
    found = Columns()
    for table in registry.TENANT:
        for row in await select(running.application.store, f"SELECT * FROM {table}"):
            for name, value in row.items():
                text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
                if canary.lower() in text.lower():
                    found[table, name] += 1
    return found


async def store(running: Running, token: str, **given: object) -> None:
    async with running.http(token) as http:
        answer = await http.post("/v1/memories", json=given)
    assert answer.status_code == 202, answer.text


async def plant_words(running: Running, token: str, canary: str, **where: object) -> None:
    """Put it where words are stored: a text, its turns, its memories, the index, a task."""
    text = f"Bea: I prefer the {canary}.\nBea: The quay is long and grey."
    await store(running, token, text=text, **where)
    async with running.http(token) as http:
        part = {"data": {"text": f"Bea: I prefer the {canary}.", "topic": "life", "dry_run": True}}
        await Wire(http).task(part)


async def plant_labels(running: Running, token: str, canary: str) -> None:
    """Put it where names are stored: in texts, tokens, tasks, webhooks, jobs and the audit log."""
    limits = {"label": canary, "topics": [canary], "agent_id": f"{canary}-bot"}
    async with running.http(token) as http:
        for names in (
            {"subject": canary, "aliases": ["Mum"]},
            {"subject": "Bo", "aliases": [canary + " B"]},
        ):
            assert (await http.post("/v1/aliases", json=names)).status_code == 200
        issued = await http.post("/v1/tokens", json={**limits, "containers": [canary]})
        assert issued.status_code == 201, issued.text
        path = f"/v1/tokens/children/{canary} owes me money"
        assert (await http.delete(path)).status_code == 200
    async with running.http(issued.json()["token"]) as http:
        for place in ("Lisbon", canary):  # The task asks about the second place.
            await plant_task(http, canary, text=f"Cid: I live in {place}.")
            await running.extract()
        await plant_task(http, canary)
    labels = {
        "topic": canary,
        "container": canary,
        "session_id": f"call with {canary}",
        "idempotency_key": f"{canary} 2026",
        "tags": [canary],
        "metadata": {canary: [canary]},
        "source": {"app": canary, "model": canary, "description": canary},
        "trace_id": canary,
    }
    text = f"{canary}: I prefer tea."
    async with running.client(issued.json()["token"], LEGACY, name=canary) as client:
        await told(client, "store_memory", text=text, **labels)
    await planted(running.application, ALICE, url=HOOK.format(canary))
    await store(running, token, text="Bea: I own a boat.", idempotency_key=f"of {canary}")
    await store(running, token, text="Bea: I own a piano.", session_id=f"with {canary}")


async def plant_task(http: httpx2.AsyncClient, canary: str, **given: str) -> None:
    """Start a task with it in its context, its words and its webhook, which does not answer."""
    data = {"text": f"Cid: I row with {canary}.", "topic": canary, **given}
    await Wire(http).result(
        "SendMessage",
        message={
            "messageId": canary,
            "contextId": f"context of {canary}",
            "role": "ROLE_USER",
            "parts": [{"data": data}],
        },
        configuration={
            "returnImmediately": True,
            "taskPushNotificationConfig": {
                "id": f"{canary}.private",
                "url": HOOK.format(canary),
                "authentication": {"scheme": canary},
            },
        },
    )


async def plant_changes(running: Running, token: str, canary: str, **where: object) -> None:
    """Put it where changes of memories are stored: versions, disputes, undone changes."""
    async with running.http(token) as http:

        async def asked(method: str, path: str, **body: object) -> Json:
            answer = await http.request(method, path, json=body)
            assert answer.status_code == 200, answer.text
            found: Json = answer.json()
            return found

        async def said(text: str, **given: object) -> Json:
            return await asked("POST", "/v1/memories:submit", text=text, **where, **given)

        first = await said(f"Dora owns a {canary}.", evidence=f"{canary} said so")
        [added] = first["changes"]
        path = f"/v1/memories/{added['memory_id']}"
        newer = await asked("PATCH", path, text=f"Dora owns two {canary}.")
        await asked("POST", f"/v1/changes/{newer['change_id']}/undo")
        await asked("POST", f"/v1/changes/{first['change_id']}/undo", with_dependents=True)
        await running.application.services.tasks.set_policy(
            context(running.application), Policy.ASK
        )
        for place in ("Lisbon", canary, "Porto"):
            await said(f"Dora lives in {place}.")
        await running.application.services.tasks.set_policy(context(running.application), None)
        for review in (await http.get("/v1/reviews?kind=dispute")).json()["reviews"]:
            text = f"Dora lives in Lisbon and {canary}."
            path = f"/v1/reviews/{review['id']}"
            await http.post(path, json={"choice": "merge", "text": text})


async def plant_import(running: Running, canary: str) -> None:
    """Fill the columns that few protocols fill, or none."""
    lines = records(many(1))
    for line in lines:
        if line["kind"] == "episode":
            labels = registry.BY_NAME["episodes"].labels
            line.update(dict.fromkeys(labels, canary), tags=[canary], metadata={})
            line["turns"] = [turn(canary)]
        if line["kind"] == "memory":
            names = (*registry.BY_NAME["memories"].labels, "entity", "attribute", "value")
            line.update(dict.fromkeys(names, canary), tags=[canary], metadata={})
            line.update(topic=canary, container=canary)
            line["decisions"] = [judged(canary)]
    assert (await taken_in(running.application, sealed(*lines[:-1]))).new.total() == 2


def judged(canary: str) -> Json:
    return {
        "question_id": derived_id("q", "one"),
        "choice": "keep_both",
        "decided_by": "operator",
        "decided_at": "2026-03-01T12:00:00+00:00",
        "judge_reason": f"The other is about {canary}.",
        "judge_confidence": 0.9,
    }


def turn(canary: str) -> Json:
    return {
        **dict.fromkeys(("said_at", "last_accessed_at")),
        "position": 0,
        "start": 6,
        "end": 29,
        "speaker": canary,
        "session": canary,
        "importance": 0.5,
        "state": "open",
        "access_count": 0,
    }


async def erase(running: Running, token: str, canary: str, **what: str) -> tuple[Columns, Json]:
    """Return what is left when the erasure is answered, and the claims of the final receipt."""
    async with running.http(token) as http:
        answer = await http.post("/v1/erasure", json=what)
        assert answer.status_code == 200, answer.text
        meanwhile = await holding(running, canary)
        await running.extract()
        receipt = await http.get(
            f"/v1/receipts/{answer.json()['receipt_id']}",
            headers={"Recall-Receipt-Secret": answer.json()["receipt_secret"]},
        )
    assert receipt.json()["final"], receipt.text
    public = running.application.key.public
    return meanwhile, verified(receipt.json()["receipt"], public, RECEIPT_TYP)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_canary_in_every_column_is_gone_after_each_kind_of_erasure(
    serve: Serve, kind: str
) -> None:
    async with serve(push_allowed_hosts=("127.0.0.1",), erasure_limits=KINDS[kind]) as running:
        canary = CANARY.format(f"{kind[-1]}{running.application.store.engine[0]}{len(kind)}")
        token, holds = await running.token(), running.application.services.holds
        if kind == "memory":
            await plant_words(running, token, canary)
        elif kind.endswith("container"):
            await plant_words(running, token, canary, container=canary, topic=canary)
            await plant_changes(running, token, canary, container=canary)
            limited = TokenRequest(
                Rights(DEFAULT_SCOPES, AccessScope(containers=frozenset({canary})))
            )
            only = await running.token("alice", limited)
            async with running.http(only) as http:
                await plant_task(http, canary, container=canary)
            await store(running, only, text=f"Bea: I own a {canary}.", container=canary)
        else:
            await plant_words(running, token, canary)
            await plant_changes(running, token, canary)
            await plant_labels(running, token, canary)
            await plant_import(running, canary)
            await holds.place(context(running.application), f"for {canary}")
        queued = await holding(running, canary)
        if ("namespaces", "held_because") in queued:
            await holds.lift(context(running.application))
        await running.extract()
        await closed(running.application.store)
        # A rebuild that is interrupted before it compares keeps its batches.
        await derive(running.application.store, ALICE, lambda _: None)
        before = queued | await holding(running, canary)
        await store(running, token, text="Dan: I prefer the otter.")  # No erasure names this.
        await running.extract()

        what = {
            "memory": {},
            "subject": {"subject": canary.upper()},
            "container": {"container": canary},
            "namespace": {"confirm": CONFIRM},
        }[kind.rsplit(maxsplit=1)[-1]]
        if kind == "memory":
            (memory,) = [one for one in await memories(running.application) if canary in one.text]
            what = {"memory_id": memory.id}
        meanwhile, claims = await erase(running, token, canary, **what)
        before |= meanwhile
        after = await holding(running, canary)
        left = {} if kind.endswith("namespace") else await memories(running.application)
        files = await left_of(running.application.store, [canary])

    print(f"\n{kind}, {running.application.store.engine}: column, rows before, after")
    for column, count in sorted(before.items()):
        print(f"  {'.'.join(column):32} {count:3} {after[column]:3}")
    print(f"  {before.total()} in {len(before)} columns -> {after.total()}; {files.files} files")
    # The controls: the canary was there, and only in columns that the registry lists.
    assert before.keys() <= column_names()
    assert bool(left) or kind.endswith("namespace")
    stays = {("api_tokens", "containers")} if kind.endswith("container") else set()
    assert after.keys() == stays
    assert claims["physical"]["state"] == "done"
    assert claims["physical"]["left"] == ("limits of tokens (1)" if stays else "")
    assert bool(files.places) == bool(stays), files.places
    unseen = {("closed_containers", "container")}
    if kind == "large container":
        assert unseen <= before.keys()
    elif kind != "memory" and not kind.endswith("container"):
        assert column_names() - before.keys() == unseen


async def test_what_is_said_after_an_erasure_is_not_its_own(serve: Serve) -> None:
    """The job that verifies the erasure runs after that, and does not erase the new text."""
    async with serve() as running:
        token = await running.token()
        await store(running, token, text="Bea: I prefer tea.", session_id="with Zora")
        async with running.http(token) as http:
            answer = (await http.post("/v1/erasure", json={"subject": "Zora"})).json()
        await store(running, token, text="Bea: I prefer jam.", session_id="again with Zora")
        await running.extract()
        found = await holding(running, "Zora")
        (erasure,) = await select(running.application.store, "SELECT * FROM erasures")
    assert answer["counts"]["episodes"] == 1
    assert (erasure["state"], erasure["left_behind"]) == ("done", "")
    columns = {("audit_details", "details"), ("episodes", "session_id"), ("memories", "session_id")}
    assert found.keys() == columns
    assert found["audit_details", "details"] == found["episodes", "session_id"] == 1


async def test_the_receipt_names_what_the_scan_still_finds(serve: Serve) -> None:
    """Another program may have written erased data back."""
    async with serve() as running:
        token = await running.token()
        await store(running, token, text="Bea: I prefer tea.\nBea: Zora is away.")
        await running.extract()
        async with running.http(token) as http:
            await http.post("/v1/erasure", json={"subject": "Zora"})
        async with running.application.store.driver.transaction(
            namespace="alice", write=True
        ) as raw:
            await raw.fetch("UPDATE memories SET agent_id = 'Zora-bot' RETURNING id", {})
        await running.extract()
        (erasure,) = await select(running.application.store, "SELECT * FROM erasures")
    assert (erasure["state"], erasure["left_behind"]) == ("done", "memories (1)")


async def test_a_token_that_is_limited_to_an_erased_name_reaches_no_more_than_before(
    serve: Serve,
) -> None:
    """It does not see the data of another erased name of the same length either: both names were
    overwritten in the same way.
    """
    async with serve() as running:
        token = await running.token()
        limits = AccessScope(agent_id="Zora-bot"), AccessScope(topics=frozenset({"Zora", "tea"}))
        by_agent, by_topic = [
            await running.token("alice", TokenRequest(Rights(DEFAULT_SCOPES, one)))
            for one in limits
        ]
        await store(running, token, text="Bea: I prefer jam.", agent_id="Nina-bot")
        await store(running, token, text="Bea: I prefer tea.", agent_id="Zora-bot", topic="tea")
        await running.extract()
        for name in ("Nina", "Zora"):
            async with running.http(token) as http:
                await http.post("/v1/erasure", json={"subject": name})
        await running.extract()
        shown = []
        for one in (token, by_agent, by_topic):
            async with running.http(one) as http:
                answer = await http.post("/v1/search", json={"query": "prefer jam tea"})
                shown.append({hit["text"] for hit in answer.json()["results"]})
    assert any("jam" in text for text in shown[0])  # The controls.
    assert any("tea" in text for text in shown[2])
    assert shown[1] == set()
    assert not any("jam" in text for text in shown[2])
