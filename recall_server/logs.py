"""Logs: one JSON line per event on standard error, without callers' text and without secrets."""

import logging
import sys
from typing import Any

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


def configure(level: str) -> None:
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
