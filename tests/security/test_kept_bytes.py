"""Every stored byte is counted, and everything stored is bounded. Whatever one token sends, the
database grows by at most a fixed multiple of what its quota counts.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from recall_server.application import Application
from recall_server.domain.episode import Source
from recall_server.domain.errors import ExportDamaged, TextTooLong
from recall_server.domain.ids import Namespace
from recall_server.domain.plan import Policy
from recall_server.domain.task import TaskState
from recall_server.services.memory.ingest import Submission
from recall_server.storage.bound_connection import load
from recall_server.storage.driver import Document
from recall_server.storage.tables import registry
from tests.support.a2a_bindings import Wire, message
from tests.support.conversation import ALICE, context, drained
from tests.support.counted import counted, interrupted
from tests.support.erasure import select
from tests.support.length import has_full_length, on_both_at_full_length
from tests.support.server import Json, Running, Serve
from tests.support.transfer import exported, sealed, taken_in

BOB = Namespace("bob")
# Bytes of rows for each byte that is counted. docs/operate/limits.md has the factor for the
# database.
ROWS_PER_BYTE = 5
ITEM_BYTES = 256
RECEIPT_BYTES_MAX = 4_000
# The number of calls bounds the audit log; the stored data does not.
UNCOUNTED = {"tool_call_records", "audit_details", "audit_heads", "call_counts", "api_tokens"}
TOWNS = " ".join(f"I live in Town{chr(97 + n % 26)}{chr(97 + n // 26)}." for n in range(60))
TAGS = tuple(f"tag {number} {'x' * 50}" for number in range(32))
METADATA = {"note": "m" * 4_000}
FOUR_BYTES = "\N{GRINNING FACE}"
LONGEST = Source(
    session_id=FOUR_BYTES * 256,
    agent_id=FOUR_BYTES * 256,
    client=FOUR_BYTES * 256,
    tags=tuple(f"{number:02}{FOUR_BYTES * 62}" for number in range(32)),
    metadata={"note": FOUR_BYTES * 1_000},
)


def size_of(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes | memoryview):
        return len(bytes(value))
    if isinstance(value, dict | list):
        return len(Document(value).text)
    return 8


async def rows_of(application: Application, *tables: str) -> int:
    """Return the bytes of Alice's rows of these tables."""
    size = 0
    async with application.store.driver.transaction(namespace=ALICE, write=False) as raw:
        for table in tables:
            for row in await raw.fetch(f"SELECT * FROM {table} WHERE namespace = 'alice'", {}):
                size += sum(map(size_of, dict(row).values()))
    return size


async def grown(application: Application) -> tuple[int, int]:
    """Return the bytes of all of Alice's rows, and the bytes that are counted."""
    rows = await rows_of(application, *(one for one in registry.TENANT if one not in UNCOUNTED))
    async with application.store.driver.transaction(namespace=ALICE, write=False) as raw:
        (row,) = await raw.fetch(
            "SELECT stored_bytes, documents FROM namespaces WHERE namespace = 'alice'", {}
        )
    return rows, int(row["stored_bytes"]) + ITEM_BYTES * int(row["documents"])


async def stored(running: Running, text: str, **given: object) -> None:
    submission = Submission(text, "life", **given)  # type: ignore[arg-type]
    await running.application.services.ingest.remember(context(running.application), submission)


async def short_paragraphs(running: Running, _: Wire) -> None:
    await stored(running, "\n\n".join("abcdefghij"[n % 10] for n in range(7_000)))


async def short_items(running: Running, _: Wire) -> None:
    await stored(running, "\n".join("- a" for _ in range(1_000)))


async def short_turns(running: Running, _: Wire) -> None:
    await stored(running, "\n".join("User: a\nBot: b" for _ in range(500)))


async def short_texts(running: Running, _: Wire) -> None:
    for number in range(30):
        await stored(running, chr(0x4E00 + number), idempotency_key=f"k{number}")


async def labelled_texts(running: Running, wire: Wire) -> None:
    for number in range(5):
        body = {
            "text": " ".join(f"I like fig {number} {n}." for n in range(10)),
            "tags": list(TAGS),
            "metadata": METADATA,
        }
        answer = await wire.http.post("/v1/memories", json=body)
        assert answer.status_code == 202, answer.text


async def many_memories_of_longest_labels(running: Running, _: Wire) -> None:
    """Each memory has a copy of the labels of its text."""
    await stored(running, TOWNS, source=LONGEST)


async def relabelled_memories(running: Running, wire: Wire) -> None:
    """Give a text the longest labels when it has its memories."""
    await stored(running, TOWNS)
    await drained(running.application)
    (text, *_) = (await wire.http.get("/v1/texts")).json()["texts"]
    body = {"tags": list(LONGEST.tags), "metadata": LONGEST.metadata}
    answer = await wire.http.patch(f"/v1/texts/{text['id']}", json=body)
    assert answer.status_code == 200, answer.text


async def turns_of_longest_names(running: Running, _: Wire) -> None:
    name = "\N{GRINNING FACE}" * 30
    await stored(running, "\n".join(f"{name}: a" for _ in range(300)), source=LONGEST)


async def metadata_of_messages(_: Running, wire: Wire) -> None:
    for number in range(4):
        await wire.task(
            {"data": {"text": f"hi {number}", "topic": "life"}, "metadata": {"a": "x" * 50_000}},
            metadata={"anything": "y" * 300_000},
            extensions=["https://example.com/" + "z" * 50_000],
        )


async def unclear_answers(running: Running, wire: Wire) -> None:
    task = await asking(running, wire)
    for _ in range(30):
        await wire.task({"text": "hm"}, taskId=task["id"])
        body = {"resolution": "hm"}
        assert (await wire.http.post(f"/a2a/{task['id']}/resume", json=body)).status_code == 200


async def dry_runs(running: Running, wire: Wire) -> None:
    await stored(running, "User: I live in Lisbon.")
    await drained(running.application)
    for _ in range(3):
        await wire.task({"data": {"text": TOWNS, "topic": "life", "dry_run": True}})
        await drained(running.application)


async def forgotten_and_restored(running: Running, wire: Wire, container: str = "") -> None:
    await stored(running, "User: I like figs with cream and sugar.", container=container)
    await drained(running.application)
    memory, *_ = (await wire.http.get("/v1/memories")).json()["memories"]
    path = f"/v1/memories/{memory['id']}"
    for _ in range(30):
        assert (await wire.http.delete(path)).status_code == 200
        assert (await wire.http.post(f"{path}/restore", json={})).status_code == 200


async def taken_back_again_and_again(running: Running, wire: Wire) -> None:
    await stored(running, TOWNS)
    await drained(running.application)
    (change,) = (await wire.http.get("/v1/changes")).json()["changes"]
    for _ in range(12):
        answer = await wire.http.post(f"/v1/changes/{change['id']}/undo", json={})
        assert answer.status_code == 200, answer.text
        change = {"id": answer.json()["change_id"]}


async def contradictions(running: Running, _: Wire) -> None:
    """Store contradictions, of which the namespace keeps both sides."""
    async with running.application.store.transaction(ALICE) as tx:
        await tx.access.set_policy(Policy.ASK)
    for number in range(60):
        await stored(running, f"User: I live in Town{number}.")
    await drained(running.application)


HOSTILE: dict[str, Callable[[Running, Wire], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        short_paragraphs,
        short_items,
        short_turns,
        short_texts,
        labelled_texts,
        many_memories_of_longest_labels,
        relabelled_memories,
        turns_of_longest_names,
        metadata_of_messages,
        unclear_answers,
        dry_runs,
        forgotten_and_restored,
        taken_back_again_and_again,
        contradictions,
    )
}


async def asking(running: Running, wire: Wire) -> Json:
    """Start a task with as many questions as a task may have."""
    await stored(running, "User: I live in Lisbon.")
    await drained(running.application)
    task = await wire.task({"data": {"text": TOWNS, "topic": "life", "policy": "ask"}})
    await drained(running.application)
    return await wire.result("GetTask", id=task["id"])


@pytest.fixture
async def wire(running: Running) -> AsyncIterator[Wire]:
    async with running.http(await running.token()) as http:
        yield Wire(http)


@pytest.fixture
async def running(serve: Serve) -> AsyncIterator[Running]:
    async with serve(worker_jobs=0) as one:
        yield one


@pytest.mark.parametrize("name", HOSTILE)
async def test_the_database_grows_by_no_more_than_is_counted(
    running: Running, wire: Wire, name: str
) -> None:
    """Control: something is stored and counted."""
    rows_before, counted_before = await grown(running.application)
    await HOSTILE[name](running, wire)
    await drained(running.application)
    rows, counted = await grown(running.application)
    rows, counted = rows - rows_before, counted - counted_before

    print(f"{name}: {rows} bytes of rows, {counted} counted, {rows / max(counted, 1):.1f}")
    assert counted > 0
    assert rows <= ROWS_PER_BYTE * counted


async def test_an_answer_that_is_not_understood_leaves_a_line(running: Running, wire: Wire) -> None:
    """It stores neither the questions again nor an event. Control: an answer that is understood
    makes an event.
    """
    task = await asking(running, wire)
    application = running.application

    async def events() -> int:
        async with application.store.transaction(ALICE, write=False) as tx:
            return len(await tx.tasks.events(task["id"], 0))

    await wire.task({"text": "hm"}, taskId=task["id"])
    before, events_before = await rows_of(application, "runs", "run_events"), await events()
    for _ in range(5):
        # Each answer is different.
        await wire.task({"data": {"resolutions": []}}, taskId=task["id"])
        unclear = await wire.task({"text": "hm"}, taskId=task["id"])
    grown_by = await rows_of(application, "runs", "run_events") - before
    same = await events()
    await wire.task({"text": "1: keep_new"}, taskId=task["id"])

    assert "problem" in unclear["status"]["message"]["parts"][1]["data"]
    assert grown_by < 10 * 1_500
    assert same == events_before
    assert await events() == events_before + 1


async def test_an_answer_that_says_nothing_writes_no_task(running: Running, wire: Wire) -> None:
    """The task is large, and everybody would wait for the write. The client is told why. Control:
    an answer to one question writes the task.
    """
    task = await asking(running, wire)
    path = f"/a2a/{task['id']}/resume"

    async def version() -> int:
        (row,) = await select(running.application.store, "SELECT version FROM runs")
        return int(row["version"])

    before = await version()
    told = (await wire.http.post(path, json={"resolution": "hm"})).json()
    after = await version()
    await wire.http.post(path, json={"resolution": "1: keep_new"})

    assert "not clear which side" in str(told)
    assert told["status"] == "input-required"
    assert (after, await version()) == (before, before + 1)


async def test_a_task_asks_so_much_at_once_and_the_rest_behind_it(serve: Serve) -> None:
    async with (
        serve(worker_jobs=0, task_questions_max=8) as running,
        running.http(await running.token()) as http,
    ):
        wire = Wire(http)
        task = await asking(running, wire)
        rounds = []
        while task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED":
            asked = task["status"]["message"]["parts"][1]["data"]["contradictions"]
            rounds.append(len(asked))
            await wire.task({"text": "keep_existing"}, taskId=task["id"])
            await drained(running.application)
            task = await wire.result("GetTask", id=task["id"])

    assert rounds == [8, 8, 8, 8, 3]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_task_grows_to_its_limit_and_can_still_be_ended(serve: Serve) -> None:
    """Control: the first answer is taken."""
    async with (
        serve(worker_jobs=0, task_bytes_max=260_000) as running,
        running.http(await running.token()) as http,
    ):
        wire = Wire(http)
        task = await asking(running, wire)
        first = await wire.answer(
            "SendMessage", message=message({"text": "hm" * 20_000}, taskId=task["id"])
        )
        faults = [
            await wire.answer(
                "SendMessage", message=message({"text": "hm" * 20_000}, taskId=task["id"])
            )
            for _ in range(5)
        ]
        size = await rows_of(running.application, "runs", "run_events")
        ended = await wire.result("CancelTask", id=task["id"])

    assert "error" not in first.json()
    assert "LIMIT_REACHED" in faults[-1].text
    assert size < 270_000
    assert ended["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_task_keeps_the_newest_messages_that_fit(serve: Serve) -> None:
    """Each answer writes all that are kept, and others wait for that. Control: the first are there
    as long as they fit.
    """
    async with (
        serve(worker_jobs=0, task_history_bytes_max=100_000) as running,
        running.http(await running.token()) as http,
    ):
        wire = Wire(http)
        task = await asking(running, wire)
        kept = []
        for number in range(8):
            await wire.task({"text": f"hm {number} " + "hm" * 10_000}, taskId=task["id"])
            (row,) = await select(running.application.store, "SELECT messages FROM runs")
            history = (await wire.result("GetTask", id=task["id"], historyLength=50))["history"]
            said = [one["parts"][0]["text"][:4] for one in history if "hm " in str(one)]
            kept.append((size_of(row["messages"]), said))

    assert kept[0][1] == ["hm 0"]
    assert all(size <= 101_000 for size, _ in kept)
    assert [said[-1] for _, said in kept] == [f"hm {number}" for number in range(8)]
    assert kept[-1][1] == ["hm 4", "hm 5", "hm 6", "hm 7"]


async def test_a_task_that_is_answered_or_cancelled_is_read_before_the_lock(
    running: Running, wire: Wire
) -> None:
    """A large task is read and its rows are made while others write. Of two answers at once both
    count. Control: it is written under the lock.
    """
    task = await asking(running, wire)
    tasks, calling = running.application.services.tasks, context(running.application)
    first, second = (await tasks.get(calling, task["id"])).status.questions[:2]

    async def between() -> None:
        await tasks.answer(
            context(running.application), task["id"], [{"id": first.id, "choice": "keep_new"}]
        )

    with counted(running.application) as counts, interrupted(running.application, None, between):
        after = await tasks.answer(calling, task["id"], [{"id": second.id, "choice": "keep_both"}])
        ended = await tasks.cancel(context(running.application), task["id"])

    queries = load(running.application.store.engine)
    reads = {queries["run"].sql, queries["run"].unlimited}
    assert not reads & {*counts.under_lock}
    assert queries["lock_namespace"].sql in counts.written
    assert ended.status.state is TaskState.CANCELED
    assert [one.question_id for one in after.work.resolutions] == [first.id, second.id]
    assert calling.entry.ids == [task["id"]]


async def test_a_full_namespace_can_end_what_it_has_begun(serve: Serve) -> None:
    """A full namespace has no space for a long answer. A choice and the end of a task are still
    accepted.
    """
    async with serve(worker_jobs=0) as running, running.http(await running.token()) as http:
        wire = Wire(http)
        task = await asking(running, wire)
        _, full = await grown(running.application)
    async with (
        serve(worker_jobs=0, namespace_bytes_max=full) as running,
        running.http(await running.token()) as http,
    ):
        wire = Wire(http)
        other = await wire.answer("SendMessage", message=message({"text": "I ski."}))
        long = await wire.answer(
            "SendMessage", message=message({"text": "hm" * 20_000}, taskId=task["id"])
        )
        ended = await wire.result("CancelTask", id=task["id"])

    assert "QUOTA_EXCEEDED" in other.text
    assert "QUOTA_EXCEEDED" in long.text
    assert ended["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_full_namespace_forgets_and_takes_nothing_back(serve: Serve) -> None:
    """A full namespace can always forget. It cannot forget and restore without end."""
    async with serve(worker_jobs=0) as running, running.http(await running.token()) as http:
        await stored(running, "User: I like figs.")
        await drained(running.application)
        (memory,) = (await http.get("/v1/memories")).json()["memories"]
        path = f"/v1/memories/{memory['id']}"
        await http.delete(path)
        (forgotten, *_) = (await http.get("/v1/changes")).json()["changes"]
        there_is_room = await http.post(f"{path}/restore", json={})
        _, full = await grown(running.application)
    async with (
        serve(worker_jobs=0, namespace_bytes_max=full) as running,
        running.http(await running.token()) as http,
    ):
        forgets = await http.delete(path)
        restored = await http.post(f"{path}/restore", json={})
        (latest, *_) = (await http.get("/v1/changes")).json()["changes"]
        undone = await http.post(f"/v1/changes/{latest['id']}/undo", json={})

    assert forgotten["operation"] == latest["operation"] == "delete_memory"
    assert there_is_room.status_code == forgets.status_code == 200
    for refused in (restored, undone):
        assert (refused.status_code, refused.json()["code"]) == (507, "QUOTA_EXCEEDED")


@on_both_at_full_length
@has_full_length
async def test_what_is_erased_is_not_counted_any_more(running: Running, wire: Wire) -> None:
    """Its events and its old index entries are not counted any more either."""
    await stored(running, "User: I own a boat.", container="home")
    await drained(running.application)
    _, before = await grown(running.application)
    await forgotten_and_restored(running, wire, container="red")
    _, kept = await grown(running.application)
    erased = await wire.http.post("/v1/erasure", json={"container": "red"})
    await drained(running.application)
    _, after = await grown(running.application)

    assert erased.status_code == 200, erased.text
    assert kept > before
    # The receipt is kept, and counted as it was first written.
    assert before < after < before + RECEIPT_BYTES_MAX


async def test_receipts_are_counted_and_a_full_namespace_can_erase_only_what_is_there(
    serve: Serve,
) -> None:
    """Each receipt takes 2 KB for ever, so a token could fill the disk with erasures of nobody."""
    async with serve(worker_jobs=0) as running, running.http(await running.token()) as http:
        await stored(running, "Ana: I own a boat.")
        await drained(running.application)
        first = await http.post("/v1/erasure", json={"subject": "Nobody"})
        rows, full = await grown(running.application)
    async with (
        serve(worker_jobs=0, namespace_bytes_max=full) as running,
        running.http(await running.token()) as http,
    ):
        nobody = await http.post("/v1/erasure", json={"subject": "Nobody"})
        dry = await http.post("/v1/erasure", json={"subject": "Nobody", "dry_run": True})
        ana = await http.post("/v1/erasure", json={"subject": "Ana"})

    assert first.status_code == dry.status_code == ana.status_code == 200, ana.text
    assert (nobody.status_code, nobody.json()["code"]) == (507, "QUOTA_EXCEEDED")
    assert rows <= ROWS_PER_BYTE * full
    assert ana.json()["counts"]["episodes"] == 1


@on_both_at_full_length
@has_full_length
async def test_a_history_shows_its_newest_messages(running: Running, wire: Wire) -> None:
    task = await asking(running, wire)
    for number in range(15):
        await wire.task({"text": f"hm {number}"}, taskId=task["id"])
    shown = await wire.result("GetTask", id=task["id"])
    all_of_it = await wire.result("GetTask", id=task["id"], historyLength=100)

    assert len(shown["history"]) == 20
    assert len(all_of_it["history"]) == 31
    assert shown["history"] == all_of_it["history"][-20:]


@on_both_at_full_length
@has_full_length
async def test_a_page_of_tasks_has_so_many_bytes(running: Running, wire: Wire) -> None:
    """Control: the following pages hold all other tasks."""
    text = "We had a long day. " * 13_000
    ids = {(await wire.task({"data": {"text": f"{n} {text}"}}))["id"] for n in range(8)}
    pages, found, token = 0, set(), ""
    while pages == 0 or token:
        page = await wire.result("ListTasks", historyLength=0, pageToken=token)
        found |= {one["id"] for one in page["tasks"]}
        pages, token = pages + 1, page["nextPageToken"]

    assert 1 < pages < 8
    assert found == ids


async def test_a_text_falls_into_so_many_passages_at_most(serve: Serve) -> None:
    """The limit holds on every protocol. Control: a text with one passage less is accepted."""
    items = "\n".join("- a" for _ in range(101))
    async with (
        serve(worker_jobs=0, text_passages_max=100) as running,
        running.http(await running.token()) as http,
    ):
        wire = Wire(http)
        await stored(running, items.removesuffix("\n- a"))
        with pytest.raises(TextTooLong):
            await stored(running, items)
        task = await wire.answer("SendMessage", message=message({"text": items}))

    assert "TEXT_TOO_LONG" in task.text


@pytest.mark.usefixtures("wire")
async def test_very_short_paragraphs_are_joined(running: Running) -> None:
    """A turn with 30,000 letters would have a row and a vector for each. Control: a few short
    paragraphs stay apart.
    """
    await stored(running, "\n\n".join("a" for _ in range(100)), idempotency_key="few")
    few = await rows_of_table(running.application, "turns")
    await stored(running, "\n\n".join("abcdefghij"[n % 10] for n in range(30_000)))

    assert few == 100
    assert await rows_of_table(running.application, "turns") < few + 90_000 / 1_000
    assert await rows_of_table(running.application, "documents") < few + 90_000 / 80


async def rows_of_table(application: Application, table: str) -> int:
    async with application.store.driver.transaction(namespace=ALICE, write=False) as raw:
        rows = await raw.fetch(f"SELECT 1 FROM {table} WHERE namespace = 'alice'", {})
    return len(rows)


@pytest.mark.usefixtures("wire")
async def test_a_text_is_read_once_for_all_of_its_vectors(running: Running) -> None:
    """The text is not read again for each batch. Control: all passages have vectors."""
    await stored(running, "\n".join(f"User: a{n}\nBot: b{n}" for n in range(600)))
    turns = await rows_of_table(running.application, "turns")
    with counted(running.application) as counts:
        await drained(running.application)

    assert await rows_of_table(running.application, "embeddings") >= turns == 1_200
    # The extraction and the vectors each read it once. Then passages without a vector are looked
    # for.
    assert counts.read[False] <= 4 * turns


@pytest.mark.usefixtures("wire")
async def test_turns_that_overlap_are_not_taken_in(running: Running) -> None:
    """They would be stored and found as often as they overlap. Control: the same turns without
    overlap are accepted.
    """
    await stored(running, "Ana: I like figs.\nBen: I like plums.\nAna: So be it.")
    file = await exported(running.application)
    lines = [json.loads(line) for line in file.splitlines()]
    (episode,) = [one for one in lines if one["kind"] == "episode"]
    for turn in episode["turns"]:
        turn["start"], turn["end"] = 0, len(episode["text"])
    hostile = sealed(*lines[:-1])

    await taken_in(running.application, file, BOB)
    with pytest.raises(ExportDamaged):
        await taken_in(running.application, hostile, Namespace("carl"))
