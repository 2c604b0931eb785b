"""The log as an operator's collector gets it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from recall_server import observe


@contextmanager
def real_logs(level: str = "debug") -> Iterator[None]:
    """Log as in production for as long as the block lasts."""
    root = logging.getLogger()
    handlers, before = root.handlers[:], root.level
    observe.configure(level)
    try:
        yield
    finally:
        structlog.reset_defaults()
        root.handlers[:] = handlers
        root.setLevel(before)
