"""Operators see ids, log lines, metrics and spans of calls and jobs, and never a text."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from mcp_types import RequestParamsMeta
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from prometheus_client.parser import text_string_to_metric_families

from recall_server.api.probes import with_metrics
from recall_server.telemetry import NOT_RECORDED, send_spans, tracer
from tests.support.engines import on_sqlite
from tests.support.logs import real_logs
from tests.support.paths import ROOT
from tests.support.server import Running, Serve
from tests.support.sockets import answered

CANARY = "zr5kq2wn7vhx4mtb3yfojlep"
MONITORING = ROOT / "docs" / "operate" / "monitoring"
# The samples of a counter end with `_total`.
NAMES = {
    "recall_requests",
    "recall_request_seconds",
    "recall_jobs",
    "recall_oldest_job_seconds",
    "recall_model_tokens",
    "recall_judgements",
    "recall_degraded",
    "recall_cache_bytes",
    "recall_erasures_open",
}
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
CALLED = {"store_memory", "search_memories", "embed", "rank", "commit"}


@contextmanager
def recording(provider: TracerProvider) -> Iterator[InMemorySpanExporter]:
    """Record the spans of the block that the provider's sampler takes."""
    exporter = InMemorySpanExporter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracer, "provider", None)
        patch.setattr(tracer, "end", None)
        tracer.record_to(provider, SimpleSpanProcessor(exporter))
        yield exporter


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    with recording(TracerProvider()) as exporter:
        yield exporter


async def scraped(running: Running) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples of our metrics, by name."""
    text = bytes((await with_metrics(running.application)["/metrics"]()).body).decode()
    assert CANARY not in text
    assert "alice" not in text
    return {
        family.name: [(one.labels, one.value) for one in family.samples]
        for family in text_string_to_metric_families(text)
        if family.name.startswith("recall_")
    }


async def test_metrics_count_calls_jobs_and_errors_without_a_tenant(serve: Serve) -> None:
    async with serve() as running, running.http(await running.token()) as http:
        said = {"text": f"User: My favourite tea is {CANARY}."}
        assert (await http.post("/v1/memories", json=said)).status_code == 202
        before = await scraped(running)
        await running.extract()
        assert (await http.post("/v1/search", json={"query": CANARY})).status_code == 200
        assert (await http.get("/v1/memories/mem_none")).status_code == 404
        async with running.http("rcl_wrong") as stranger:
            assert (await stranger.get("/v1/stats")).status_code == 401
        after = await scraped(running)

    counted = {
        (labels["protocol"], labels["operation"], labels["outcome"]): value
        for labels, value in after["recall_requests"]
        if "outcome" in labels
    }
    assert after.keys() == NAMES
    assert ({"kind": "extract", "state": "queued"}, 1.0) in before["recall_jobs"]
    assert before["recall_oldest_job_seconds"][0][1] >= 0
    assert after["recall_jobs"] == []
    assert after["recall_cache_bytes"][0][1] > 0
    assert after["recall_erasures_open"] == [({}, 0.0)]
    assert counted["http", "store_memory", "ok"] >= 1
    assert counted["http", "search_memories", "ok"] >= 1
    assert counted["http", "none", "UNAUTHENTICATED"] >= 1
    assert any(outcome == "MEMORY_NOT_FOUND" for _, _, outcome in counted), counted


async def test_the_metrics_answer_although_the_database_does_not(
    serve: Serve, database: Path | str
) -> None:
    async with serve() as running:
        if isinstance(database, Path):
            gone = database.with_name("gone.db")
            await asyncio.to_thread(database.rename, gone)
            found = await scraped(running)
            await asyncio.to_thread(gone.rename, database)
        else:
            await running.application.store.driver.close()
            found = await scraped(running)

    assert found.keys() == NAMES
    assert found["recall_jobs"] == []


@on_sqlite
async def test_every_answer_has_an_id_that_the_log_and_the_audit_log_have_too(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server ignores an id that the caller sends. A refused call is logged with its address."""
    token = await running.token()
    with real_logs("info"):
        async with running.http(token) as http:
            good = await http.get("/v1/stats", headers={"X-Request-Id": CANARY})
            missing = await http.get("/v1/memories/mem_none")
            nothing = await http.get(f"/nowhere?text={CANARY}")
            audit = (await http.get("/v1/audit")).json()["records"]
        async with running.http("rcl_wrong") as stranger:
            refused = await stranger.get("/v1/stats")
        async with running.http() as http:
            foreign = await http.get("/docs", headers={"Host": "evil.example"})
    written = capsys.readouterr().err
    lines = [json.loads(line) for line in written.splitlines()]
    by_id = {line["request_id"]: line for line in lines if "request_id" in line}
    ids = [one.headers["X-Request-Id"] for one in (good, missing, nothing, refused, foreign)]

    assert len(set(ids)) == 5
    assert CANARY not in written
    assert "alice" not in written
    assert audit[1]["request_id"] == good.headers["X-Request-Id"]
    assert missing.json()["instance"] == missing.headers["X-Request-Id"]
    assert (
        by_id[ids[0]].items()
        >= {
            "event": "operation",
            "operation": "get_memory_stats",
            "client": "127.0.0.1",
            "path": "/v1/stats",
        }.items()
    )
    assert re.fullmatch("[0-9a-f]{16}", by_id[ids[0]]["namespace"])
    assert by_id[ids[0]]["accessor"]
    for one, code, path in (
        (ids[3], "UNAUTHENTICATED", "/v1/stats"),
        (ids[4], "HOST_NOT_ALLOWED", "/docs"),
    ):
        assert (
            by_id[one].items()
            >= {
                "event": "refused",
                "code": code,
                "client": "127.0.0.1",
                "path": path,
            }.items()
        )


@on_sqlite
async def test_a_refusal_before_there_is_a_request_is_logged_with_the_address(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serve(header_s=0.1) as running:
        with real_logs("info"):
            await answered(running, b"what?\r\n\r\n")
            await answered(running, b"GET /health HTTP/1.1\r\n")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    refused = [(one["code"], one["client"]) for one in lines if one["event"] == "refused"]

    assert refused == [("INVALID_ARGUMENT", "127.0.0.1"), ("REQUEST_TOO_SLOW", "127.0.0.1")]


@on_sqlite
async def test_a_job_leaves_one_line(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    async with running.http(await running.token()) as http:
        await http.post("/v1/memories", json={"text": f"User: I live in {CANARY}."})
    with real_logs("info"):
        await running.extract()
    written = capsys.readouterr().err
    jobs = [json.loads(line) for line in written.splitlines() if '"event": "job"' in line]

    assert [(one["kind"], one["outcome"], one["level"]) for one in jobs] == [
        ("extract", "ok", "info"),
        ("embed", "ok", "info"),
    ]
    assert all(one["job"] and one["namespace"] and one["ms"] >= 0 for one in jobs)
    assert CANARY not in written


async def test_spans_go_on_with_the_trace_of_the_caller_and_hold_no_text(
    serve: Serve, spans: InMemorySpanExporter
) -> None:
    async with serve() as running:
        token = await running.token()
        headers = {"traceparent": PARENT}
        async with running.http(token) as http:
            said = {"text": f"User: My favourite tea is {CANARY}."}
            await http.post("/v1/memories", json=said, headers=headers)
            await running.extract()
            await http.post("/v1/search", json={"query": CANARY}, headers=headers)
            await http.get(f"/v1/memories/{CANARY}")
        async with running.client(token, "auto") as client:
            await client.call_tool("search_memories", {"query": CANARY})
    sent: list[ReadableSpan] = list(spans.get_finished_spans())
    by_id = {one.context.span_id: one for one in sent if one.context}
    lines = {tuple(reversed([above.name for above in _upwards(one, by_id)])) for one in sent}
    traced = {one.name for one in sent if one.context and f"{one.context.trace_id:032x}" == TRACE}
    of_tools = [one for one in sent if dict(one.attributes or {}).get("gen_ai.tool.name")]

    assert traced == {"HTTP POST", *CALLED}
    assert lines >= {
        ("HTTP POST", "store_memory", "commit"),
        ("HTTP POST", "search_memories", "embed"),
        ("HTTP POST", "search_memories", "rank"),
        ("job extract", "extract"),
        ("job extract", "commit"),
        ("job embed", "embed"),
    }
    assert [one.name for one in of_tools] == ["search_memories"]
    assert all(one.end_time and one.start_time and one.end_time > one.start_time for one in sent)
    (missed,) = (one for one in sent if not one.status.is_unset)
    assert dict(missed.attributes or {})["recall.outcome"] == "MEMORY_NOT_FOUND"
    everything = "".join(one.to_json() for one in sent)
    assert CANARY not in everything
    assert "alice" not in everything


@on_sqlite
async def test_an_operation_goes_on_with_the_trace_that_an_mcp_message_names(
    running: Running, spans: InMemorySpanExporter
) -> None:
    named = cast("RequestParamsMeta", {"traceparent": PARENT})
    async with running.client(await running.token(), "auto") as client:
        await client.call_tool("search_memories", {"query": "tea"}, meta=named)
    of_call = [
        one
        for one in spans.get_finished_spans()
        if one.context and f"{one.context.trace_id:032x}" == TRACE
    ]

    assert {one.name for one in of_call} == {"search_memories", "embed", "rank"}
    (first,) = (one for one in of_call if one.name == "search_memories")
    assert first.parent
    assert f"{first.parent.span_id:016x}" == PARENT.split("-")[2]


@on_sqlite
async def test_a_trace_that_is_not_sampled_has_no_spans(running: Running) -> None:
    """The caller decides whether its trace is sampled; without one the sampler decides once."""
    none = TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.0)))
    with recording(none) as exporter:
        async with running.http(await running.token()) as http:
            await http.post("/v1/search", json={"query": "tea"})
            await running.extract()
            nothing = exporter.get_finished_spans()
            await http.post("/v1/search", json={"query": "x"}, headers={"traceparent": PARENT})

    assert nothing == ()
    assert {one.name for one in exporter.get_finished_spans()} >= {"HTTP POST", "rank"}


def test_the_variables_of_opentelemetry_choose_the_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "provider", None)
    monkeypatch.setattr(tracer, "end", None)
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    send_spans("http://127.0.0.1:1", "1")()
    assert tracer.provider is None

    monkeypatch.delenv("OTEL_SDK_DISABLED")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    rest = send_spans("http://127.0.0.1:1", "1")
    with tracer.trace("HTTP GET", {}):
        assert tracer.part("rank") is NOT_RECORDED
    rest()


def _upwards(span: ReadableSpan, by_id: dict[int, ReadableSpan]) -> Iterator[ReadableSpan]:
    """Yield a span, the one that it is a part of, and so on."""
    above: ReadableSpan | None = span
    while above is not None:
        yield above
        above = by_id.get(above.parent.span_id) if above.parent else None


@pytest.mark.parametrize("name", ["grafana.json", "alerts.yaml"])
def test_dashboard_and_alerts_name_metrics_that_there_are(name: str) -> None:
    """The dashboard and the alerts together use every metric."""
    text = (MONITORING / name).read_text("utf-8")
    suffixes = r"(_total|_bucket|_count|_sum)?"
    known = {re.sub(f"{suffixes}$", "", one) for one in re.findall(r"\brecall_[a-z_]+", text)}

    assert known
    assert known <= NAMES
    both = "".join((MONITORING / one).read_text("utf-8") for one in ("grafana.json", "alerts.yaml"))
    assert all(metric in both for metric in NAMES)
