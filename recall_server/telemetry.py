"""Logs and spans. A log line is one JSON object per event on standard error, without callers' text
and without secrets.

Spans are of a request, its operation, extract, merge, judge, embed, rank and commit, and of a job.
None holds a text, nor the message of an error. Without an address to send them to, they cost next
to nothing. A span is plain values until it has ended, and only then one of the SDK of
OpenTelemetry. The SDK's own tracer takes several times as long, and would record the spans of
libraries too, which quote errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any

from opentelemetry import context, propagate, trace
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from recall_server.domain.errors import Invalid

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
import logging
import sys

import structlog

from recall_server.domain.text.cleaning import plain_json

# These libraries log what they send and receive, which includes callers' text.
_CHATTY = (
    "anthropic",
    "openai",
    "httpx",
    "httpx2",
    "httpcore",
    "mcp",
    "a2a",
    "uvicorn.access",
    "asyncio",
)


_places = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)


def _tracebacks(_: Any, __: str, event: Any) -> Any:
    """Add the stack of an error, without messages and values, which may hold callers' text."""
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()
    elif isinstance(error, BaseException):
        error = (type(error), error, error.__traceback__)
    if error and error[0] is not None:
        stacks = _places(error)
        for stack in stacks:
            stack.pop("exc_value", None)
        event["exception"] = stacks
    return event


def _unquoted(_: Any, __: str, event: Any) -> Any:
    """Drop the values from messages of the A2A SDK, which quote callers' text."""
    record = event["_record"]
    if record.name.startswith("a2a"):
        event["event"] = str(record.msg)
    return event


def tell(event: str, words: str, **fields: Any) -> None:
    """Tell a person at a terminal in words that a process starts, waits or stops; without a
    terminal, log the event.
    """
    if sys.stderr.isatty():
        sys.stderr.write(f"{words}\n")
        sys.stderr.flush()
    else:
        structlog.get_logger().info(event, **fields)


def configure_logs(level: str) -> None:
    """Send our events and the warnings of libraries to standard error."""
    threshold = getattr(logging, level.upper())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _tracebacks,
    ]
    # JSON in ASCII, so that a line break or an escape sequence in a value stays inside its line.
    as_json = structlog.processors.JSONRenderer(ensure_ascii=True)

    def render(logger: Any, name: str, event: Any) -> str:
        return plain_json(str(as_json(logger, name, event)))

    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_unquoted, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


SAMPLED = TraceFlags(TraceFlags.SAMPLED)
FAILED = Status(StatusCode.ERROR)

# The span that this task is in, if it is recorded.
_current: ContextVar[SpanContext | None] = ContextVar("recall_span", default=None)


Attributes = dict[str, str | int]
Span = AbstractContextManager[Attributes]
"""A `with` block that is a span; it yields the attributes, to which more may be added."""

# Nobody reads the attributes that are added to it.
NOT_RECORDED: Span = nullcontext({})


@contextmanager
def _recorded(
    end: Callable[..., None],
    name: str,
    own: SpanContext,
    parent: SpanContext | None,
    attributes: Attributes,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
) -> Iterator[Attributes]:
    token, begun = _current.set(own), time_ns()
    given: dict[str, Any] = {}
    try:
        yield attributes
    except Exception as error:
        attributes["error.type"] = type(error).__qualname__
        given["status"] = FAILED
        raise
    finally:
        _current.reset(token)
        end(
            name,
            own,
            parent,
            attributes=attributes,
            kind=kind,
            start_time=begun,
            end_time=time_ns(),
            **given,
        )


@dataclass
class Tracer:
    """Makes the spans of a process, for `with` blocks: none is recorded before `record_to`."""

    provider: TracerProvider | None = None
    end: Callable[..., None] = field(default=lambda: None)

    def record_to(self, provider: TracerProvider, processor: SpanProcessor) -> None:
        """Give `processor` the spans of all traces that the sampler of `provider` takes."""
        from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

        readable = partial(
            ReadableSpan,
            resource=provider.resource,
            instrumentation_scope=InstrumentationScope("recall_server"),
        )
        self.end = lambda *values, **named: processor.on_end(readable(*values, **named))
        self.provider = provider

    def trace(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        headers: Mapping[str, str] | None = None,
    ) -> Span:
        """Return the first span of a trace in this process. It continues the trace that W3C trace
        context in `headers` names.
        """
        if self.provider is None:
            return NOT_RECORDED
        return self._sampled(name, attributes, kind, propagate.extract(headers or {}))

    def operation(self, name: str, attributes: Attributes) -> Span:
        """Return a part of the request or, if the `_meta` of an MCP message names a trace, the next
        span of that. The SDK of MCP has made it the current one of OpenTelemetry.
        """
        if self.provider is None or not trace.get_current_span().get_span_context().is_valid:
            return self.part(name, attributes)
        return self._sampled(name, attributes, SpanKind.INTERNAL, context.get_current())

    def part(self, name: str, attributes: Attributes | None = None) -> Span:
        """Return a span within the open one. Outside of any, it is not recorded."""
        parent = _current.get()
        if parent is None or self.provider is None:
            return NOT_RECORDED
        own = self._span(parent.trace_id, parent.trace_state)
        return _recorded(self.end, name, own, parent, attributes or {})

    def _sampled(
        self,
        name: str,
        attributes: Attributes,
        kind: SpanKind,
        caller: context.Context,
    ) -> Span:
        assert self.provider is not None
        remote = trace.get_current_span(caller).get_span_context()
        parent = remote if remote.is_valid else None
        trace_id = parent.trace_id if parent else self.provider.id_generator.generate_trace_id()
        chosen = self.provider.sampler.should_sample(caller, trace_id, name, kind, attributes)
        if chosen.decision.name != "RECORD_AND_SAMPLE":
            return NOT_RECORDED
        own = self._span(trace_id, chosen.trace_state)
        return _recorded(self.end, name, own, parent, attributes, kind=kind)

    def _span(self, trace_id: int, state: TraceState | None) -> SpanContext:
        assert self.provider is not None
        span_id = self.provider.id_generator.generate_span_id()
        return SpanContext(trace_id, span_id, False, SAMPLED, state)


tracer = Tracer()


def send_spans(endpoint: str, version: str) -> Callable[[], None]:
    """Send the spans of this process to an OTLP endpoint over HTTP. Return a function that sends
    the rest of them at the end. Raises `Invalid` if the extra is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError:
        raise Invalid(
            "RECALL_OTLP_ENDPOINT is set and the packages for it are not installed. Run: "
            "pip install 'recall-server[tracing]'."
        ) from None
    resource = Resource.create({"service.name": "recall-server", "service.version": version})
    processor = BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces"))
    # Reads from the environment which traces are sampled, and whether any are.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if not isinstance(provider.get_tracer("recall_server"), trace.NoOpTracer):
        tracer.record_to(provider, processor)
    return processor.shutdown
