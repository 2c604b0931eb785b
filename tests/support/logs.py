"""The log, as the log collector of an operator reads it."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from recall_server import telemetry


@contextmanager
def real_logs(level: str = "debug") -> Iterator[None]:
    """Log as in production for as long as the block lasts."""
    with logs_restored():
        telemetry.configure_logs(level)
        yield


@contextmanager
def logs_restored() -> Iterator[None]:
    """Restore the log after the block: a stream of the block is closed by then."""
    root = logging.getLogger()
    handlers, before = root.handlers[:], root.level
    # The server also silences single libraries.
    levels = {name: one.level for name, one in _loggers().items()}
    try:
        yield
    finally:
        structlog.reset_defaults()
        root.handlers[:] = handlers
        if root.level != before:
            root.setLevel(before)
        for name, one in _loggers().items():
            level = levels.get(name, logging.NOTSET)
            if one.level != level:  # setting it empties the caches of all loggers
                one.setLevel(level)


def _loggers() -> dict[str, logging.Logger]:
    known = logging.Logger.manager.loggerDict
    return {name: one for name, one in known.items() if isinstance(one, logging.Logger)}


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove all settings from the environment, and restore the log afterwards."""
    for name in [name for name in os.environ if name.startswith("RECALL_")]:
        monkeypatch.delenv(name)
    with real_logs():
        yield


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    """Restore the log after a test, since a command in this process configures it for its own
    output. Until one does, errors are shown without the values of their stack: formatting these
    takes a second.
    """
    shown = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )
    with logs_restored():
        structlog.configure(processors=[structlog.processors.add_log_level, shown])
        yield
