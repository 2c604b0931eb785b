"""The log as an operator's collector gets it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from recall_server import logs


@contextmanager
def real_logs(level: str = "debug") -> Iterator[None]:
    """Log as in production for as long as the block lasts."""
    with logs_restored():
        logs.configure(level)
        yield


@contextmanager
def logs_restored() -> Iterator[None]:
    """Whatever the block configures ends with it: a stream of its own is closed by then."""
    root = logging.getLogger()
    handlers, before = root.handlers[:], root.level
    try:
        yield
    finally:
        structlog.reset_defaults()
        root.handlers[:] = handlers
        root.setLevel(before)
