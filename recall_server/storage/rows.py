"""Between plain values and what an engine takes and gives: SQLite keeps times and documents as
text.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from recall_server.domain.audit import AccessCount
from recall_server.domain.episode import Span
from recall_server.domain.memory import Fact
from recall_server.storage.driver import Document, Row


def moment(value: Any) -> datetime:
    """A time, aware of its zone."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def moment_or_none(value: Any) -> datetime | None:
    return None if value is None else moment(value)


def document(value: Any) -> Any:
    """A JSON document."""
    return json.loads(value) if isinstance(value, str) else value


def span(row: Row) -> Span:
    return Span(row["span_start"], row["span_end"])


def fact(row: Row) -> Fact | None:
    if row["entity"] is None:
        return None
    return Fact(row["entity"], row["attribute"], row["value"], bool(row["negated"]))


def accesses(counts: Iterable[AccessCount]) -> Document:
    """Access counts as queries take them, with times as SQLite keeps them."""
    return Document(
        [[one.id, one.times, one.last.isoformat(timespec="microseconds")] for one in counts]
    )
