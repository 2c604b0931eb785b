"""The Python client is tested with a real server, and compared with the registry of operations."""

import ast
import asyncio
import inspect
import runpy
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_type_hints

import httpx2
import pytest

import recall_client
from recall_client import AsyncRecallClient, RecallClient, errors
from recall_client._calls import ROUTES, from_environment
from recall_server.api import app as every_protocol
from recall_server.api.operations import OPERATIONS
from recall_server.domain import errors as known
from recall_server.domain.ids import namespace
from recall_server.domain.permissions import Rights, Scope
from recall_server.services.auth import TokenRequest
from tests.support.a2a_clients import at_work
from tests.support.engines import on_sqlite
from tests.support.server import Running
from tests.support.webhooks import planted

PACKAGE = Path(recall_client.__file__).parent
# The client erases with `POST /v1/erasure` in place of the first. The others belong to A2A, which
# has its own SDKs.
LEFT_TO_OTHERS = {
    "delete_namespace_data",
    "send_message",
    "list_tasks",
    "create_push_config",
    "get_push_config",
    "delete_push_config",
    "get_extended_card",
    "read_metrics",  # Prometheus reads it.
    "answer_hook",  # Hosts and `recall hook` call it.
}


@pytest.fixture
async def client(running: Running) -> AsyncIterator[AsyncRecallClient]:
    async with AsyncRecallClient(running.address, await running.token()) as client:
        yield client


def test_every_operation_is_a_method_that_takes_its_arguments() -> None:
    for operation in OPERATIONS:
        if operation.name in LEFT_TO_OTHERS or not (operation.http or operation.a2a):
            continue
        method = getattr(AsyncRecallClient, operation.name)
        if operation.http:
            route = operation.http[0]
            asked = ROUTES[operation.name]
            assert (asked.method, asked.path) == (route.method, route.path)
            takes = _taken(method)
            assert takes == {*(route.arguments or operation.arguments).model_fields}, operation.name


def _taken(method: Callable[..., Any]) -> set[str]:
    named = {*inspect.signature(method).parameters} - {"self", "given"}
    further = get_type_hints(method).get("given")
    return named | {*get_type_hints(*get_args(further))} if further else named


def test_a_call_is_repeated_only_where_that_changes_nothing() -> None:
    reads = {one.name for one in OPERATIONS if one.read_only}
    repeated = {name for name, route in ROUTES.items() if route.repeatable}

    assert repeated >= reads & ROUTES.keys()
    assert not repeated & {"issue_token", "rotate_token", "consolidate_memories", "erase"}


def test_every_code_of_the_server_is_a_class() -> None:
    def codes(kind: type[known.RecallError]) -> set[str]:
        return {kind.code}.union(*map(codes, kind.__subclasses__()))

    assert every_protocol.__doc__, "imported, as each protocol defines errors of its own"
    assert codes(known.RecallError) <= errors.BY_CODE.keys()


def test_the_client_without_an_event_loop_is_made_of_the_other() -> None:
    unasync = runpy.run_path(str(PACKAGE.parent / "unasync.py"))
    made = unasync["unasync"]((PACKAGE / "_async_client.py").read_text(encoding="utf-8"))
    kept = (PACKAGE / "_sync_client.py").read_text(encoding="utf-8")

    # The formatter breaks other lines there, since they are shorter.
    assert ast.dump(ast.parse(made)) == ast.dump(ast.parse(kept)), "run clients/python/unasync.py"


def test_the_client_never_imports_the_server() -> None:
    for module in PACKAGE.glob("*.py"):
        assert "recall_server" not in module.read_text(encoding="utf-8"), module


@on_sqlite
async def test_a_text_is_stored_found_listed_forgotten_and_restored(
    running: Running, client: AsyncRecallClient
) -> None:
    stored = await client.store_memory(
        "Ann: I live in Lisbon.",
        container="work",
        tags=["home"],
        metadata={"ticket": 7},
        occurred_at=datetime(2026, 3, 1, tzinfo=UTC),
    )
    await running.extract()
    job = await client.wait_for_job(stored.job_id)
    found = await client.search_memories("Where does Ann live?", containers=["work"], explain=True)
    page = await client.inspect_memories(metadata={"ticket": 7}, tags=["home"])
    [memory] = page.memories
    deleted = await client.delete_memory(memory.id)
    nothing = await client.inspect_memories()
    restored = await client.restore_memory(memory.id)
    history = await client.get_memory_history(memory.id)
    timeline = await client.get_timeline(memory.entity or "", memory.attribute or "")
    stats = await client.get_memory_stats()

    assert job.memory_ids == [memory.id] == [deleted.deleted] == [restored.restored]
    assert found.results[0].id == memory.id
    assert memory.valid_from == datetime(2026, 3, 1, tzinfo=UTC)
    assert nothing.memories == []
    assert [one.id for one in history.memories] == [memory.id]
    assert timeline.values[0].true.begin == memory.valid_from
    assert (stats.total, stats.by_type["fact"]) == (1, 1)


@on_sqlite
async def test_a_task_is_watched_answered_and_ends(running: Running) -> None:
    async with (
        AsyncRecallClient(running.address, await running.token()) as client,
        at_work(running),
    ):
        await client.wait_for_job((await client.store_memory("Ann: I live in Lisbon.")).job_id)
        task = await client.create_task({"text": "Ann: I live in Porto.", "policy": "ask"})
        events = [event async for event in client.subscribe_to_task(task.id)]
        asked = await client.get_task(task.id)
        conflicts = await client.list_conflicts()
        answered = await client.resume_task(task.id, resolution="keep_new")
        _ = [event async for event in client.subscribe_to_task(task.id)]
        ended = await client.get_task(task.id)
        after = [event async for event in client.subscribe_to_task(task.id)]

    assert events[-1].state == "input-required"
    assert asked.status == "input-required"
    assert [one.id for one in asked.contradictions] == [one.id for one in conflicts.conflicts]
    assert answered.id == ended.task_id == task.id
    assert ended.status == "completed"
    assert [event.state for event in after] == ["completed"]


@on_sqlite
async def test_tokens_are_issued_delegated_rotated_and_revoked(client: AsyncRecallClient) -> None:
    issued = await client.issue_token(scopes=["memory:read"], label="reader", uses=9)
    child = await client.delegate_token(expires_in_s=60)
    shown = await client.show_token(issued.accessor)
    rotated = await client.rotate_token(issued.accessor, overlap_s=0)
    revoked = await client.revoke_token(rotated.accessor)
    gone = await client.revoke_own_child(child.accessor.partition("/")[2])
    listed = await client.list_tokens()

    assert (shown.label, shown.scopes, shown.uses_left) == ("reader", ["memory:read"], 9)
    assert revoked.revoked == [rotated.accessor]
    assert len(gone.revoked) == 1
    assert {issued.accessor, rotated.accessor} <= {one.accessor for one in listed.tokens}


@on_sqlite
async def test_aliases_are_set_listed_and_removed(client: AsyncRecallClient) -> None:
    made = await client.set_aliases("Dana", ["me", "D/K & co?"])
    removed = await client.remove_alias("D/K & co?")
    with pytest.raises(errors.NotFound):
        await client.remove_alias("D/K & co?")
    listed = await client.list_aliases()

    assert [one.alias for one in made.aliases] == ["D/K & co?", "me"]
    assert (removed.removed, listed.aliases) == ("D/K & co?", made.aliases[1:])


@on_sqlite
async def test_webhooks_are_listed_tested_and_removed(
    client: AsyncRecallClient, running: Running
) -> None:
    webhook_id = await planted(running.application, namespace("alice"))
    [listed] = (await client.list_webhooks()).webhooks
    tested = await client.test_webhook(webhook_id)
    removed = await client.remove_webhook(webhook_id)
    with pytest.raises(errors.SecretKeyMissing):
        await client.add_webhook("https://93.184.215.14/hook", kinds=["memory.added"])

    assert (listed.id, listed.state, listed.pending) == (webhook_id, "active", 0)
    assert (tested.delivered, tested.code) == (False, "SECRET_KEY_MISSING")
    assert (removed.removed, (await client.list_webhooks()).webhooks) == (webhook_id, [])


async def test_an_administrator_reads_exports_and_erases(
    running: Running, client: AsyncRecallClient
) -> None:
    await client.store_memory("Ann: I live in Lisbon.")
    await running.extract()
    lines = [line async for line in client.export_namespace()]
    suspects = await client.list_quarantine()
    shown = await client.erase(subject="Ann", dry_run=True)
    erased = await client.erase(confirm="DELETE MY DATA")
    assert erased.receipt_id is not None
    assert erased.receipt_secret is not None
    receipt = await client.collect_receipt(erased.receipt_id, erased.receipt_secret)

    assert len(lines) > 3
    assert suspects.suspects == []
    assert shown.dry_run
    assert receipt.receipt
    with pytest.raises(errors.Unauthenticated):
        await client.whoami()


@on_sqlite
async def test_the_audit_log_is_read_page_by_page(client: AsyncRecallClient) -> None:
    await client.store_memory("Ann: I live in Lisbon.")
    await client.store_memory("Ann: I work at Acme.")
    first = await client.read_audit(operation="store_memory", limit=1)
    second = await client.read_audit(operation="store_memory", limit=1, cursor=first.next_cursor)

    assert first.records[0]["id"] != second.records[0]["id"]


@on_sqlite
async def test_a_refusal_is_the_class_of_its_code_with_the_next_step(running: Running) -> None:
    reader = TokenRequest(Rights(frozenset({Scope.READ})))
    async with AsyncRecallClient(running.address, await running.token("bob", reader)) as client:
        with pytest.raises(errors.MemoryNotFound, match="Take an id from") as missing:
            await client.get_memory("mem_unknown")
        with pytest.raises(errors.InsufficientScope, match="memory:write"):
            await client.store_memory("Ann: I live in Lisbon.")
        with pytest.raises(errors.Invalid):
            await client.search_memories("Lisbon", limit=0)

    assert isinstance(missing.value, errors.NotFound)
    assert (missing.value.code, missing.value.status) == ("MEMORY_NOT_FOUND", 404)
    assert (missing.value.request_id or "").startswith("req_")


async def test_a_program_asks_for_a_block_an_answer_and_a_summary(
    running: Running, client: AsyncRecallClient
) -> None:
    await client.store_memory("Ann: I prefer pytest over unittest.", container="work")
    await running.extract()
    inside: dict[str, Any] = {
        "scope_level": "user_global_container",
        "containers": [{"id": "work"}],
    }

    block = await client.get_context("Does Ann prefer pytest or unittest?", **inside)
    answered = await client.answer_question("Does Ann prefer pytest or unittest?", **inside)
    unknown = await client.get_context("What is the tax rate of Peru?")
    summary = await client.get_snapshot("alice")

    assert block.has_usable_context
    assert "pytest" in (block.context_enhancement or "")
    assert "pytest" in (answered.answer or "")
    assert [one.bucket_id for one in answered.evidence] == ["work"]
    assert (unknown.context_enhancement, unknown.abstained_reason) == (None, "no_relevant_memory")
    assert unknown.diagnostics["used_memory_count"] == 0
    assert summary.snapshot.memory_refs == []
    assert summary.user_id == "alice"


@on_sqlite
async def test_a_client_without_an_event_loop_does_the_same(running: Running) -> None:
    token = await running.token()

    def work() -> list[str]:
        with RecallClient(running.address, token) as client:
            client.store_memory("Ann: I live in Lisbon.", idempotency_key="once")
            again = client.store_memory("Ann: I live in Lisbon.", idempotency_key="once")
            assert again.cached
            assert len([*client.export_namespace()]) > 1
            return [hit.text for hit in client.search_memories("Lisbon").results]

    assert await asyncio.to_thread(work) == ["Ann: I live in Lisbon."]


def answering(
    *answers: httpx2.Response | Exception,
) -> tuple[list[httpx2.Request], httpx2.AsyncClient]:
    """Return a list of the requests, and a client that gets these answers one after the other."""
    asked: list[httpx2.Request] = []
    rest = iter(answers)

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        given = next(rest)
        if isinstance(given, Exception):
            raise given
        return given

    transport = httpx2.MockTransport(answer)
    return asked, httpx2.AsyncClient(transport=transport, base_url="http://recall.test")


def busy(wait_s: str) -> httpx2.Response:
    return httpx2.Response(
        503, json={"code": "BUSY", "detail": "Wait."}, headers={"Retry-After": wait_s}
    )


STORED = httpx2.Response(202, json={"queued": True, "job_id": "job_1"})


@pytest.mark.parametrize(
    "fault",
    [busy("0"), httpx2.Response(502), httpx2.ReadTimeout("slow"), httpx2.ConnectError("refused")],
    ids=["busy", "proxy", "timeout", "refused"],
)
async def test_a_text_is_sent_again_under_the_key_of_the_first_time(
    fault: httpx2.Response | Exception,
) -> None:
    asked, http = answering(fault, STORED)
    async with AsyncRecallClient("http://recall.test", http=http) as client:
        await client.store_memory("Ann: I live in Lisbon.")
    first, second = (request.read() for request in asked)

    assert first == second
    assert b'"idempotency_key"' in first


@pytest.mark.parametrize(
    ("fault", "kind", "times"),
    [
        (lambda: httpx2.ReadTimeout("slow"), errors.NoAnswer, 1),
        (lambda: busy("600"), errors.Busy, 1),
        (lambda: busy("0"), errors.Busy, 2),
        (lambda: httpx2.ConnectError("refused"), errors.Unreachable, 2),
    ],
)
async def test_what_may_have_been_done_is_not_sent_again(
    fault: Callable[[], httpx2.Response | Exception], kind: type[Exception], times: int
) -> None:
    asked, http = answering(*(fault() for _ in range(times)))
    async with AsyncRecallClient("http://recall.test", http=http, retries=1) as client:
        with pytest.raises(kind):
            await client.issue_token()

    assert len(asked) == times


async def test_an_answer_of_something_else_is_told_as_such() -> None:
    _, http = answering(httpx2.Response(200, text="<html>"), httpx2.Response(404, text="<html>"))
    async with AsyncRecallClient("http://recall.test", http=http) as client:
        with pytest.raises(errors.AnswerUnknown, match="another release"):
            await client.whoami()
        with pytest.raises(errors.AnswerUnknown, match="the address is right"):
            await client.whoami()


async def test_a_code_that_this_release_does_not_know_is_of_the_kind_of_its_status() -> None:
    body = {"code": "BRAND_NEW", "detail": "Do this."}
    _, http = answering(httpx2.Response(409, json=body), httpx2.Response(422, json=body))
    async with AsyncRecallClient("http://recall.test", http=http) as client:
        with pytest.raises(errors.Stale, match=r"Do this\. \[BRAND_NEW\]"):
            await client.whoami()
        with pytest.raises(errors.Invalid):
            await client.whoami()


async def test_a_server_that_is_not_there_is_named() -> None:
    address = "http://127.0.0.1:1"
    async with AsyncRecallClient(address, "token", retries=0) as client:
        with pytest.raises(errors.Unreachable, match=address):
            await client.whoami()


async def test_a_time_without_a_zone_is_not_guessed() -> None:
    _, http = answering()
    async with AsyncRecallClient("http://recall.test", http=http) as client:
        with pytest.raises(ValueError, match="time zone"):
            await client.search_memories("Lisbon", said_after=datetime(2026, 3, 1))  # noqa: DTZ001


def test_the_environment_says_where_and_who(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("rcl_secret\n")

    assert from_environment({"RECALL_TOKEN": "t"}) == ("http://127.0.0.1:8000", "t")
    assert from_environment({"RECALL_URL": "https://m", "RECALL_TOKEN_FILE": str(file)}) == (
        "https://m",
        "rcl_secret",
    )
    with pytest.raises(errors.SettingMissing, match="create-token"):
        from_environment({})
    with pytest.raises(errors.SettingMissing, match="cannot be read"):
        from_environment({"RECALL_TOKEN_FILE": str(tmp_path / "none")})
