"""Durable background work."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from recall_server.domain.namespace import Namespace


class JobState(StrEnum):
    """The life cycle of a job."""

    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True)
class Job:
    """Durable work. `attempt` is the fencing token: only the holder of the newest one may finish
    it.
    """

    id: str
    namespace: Namespace
    kind: str
    payload: Mapping[str, Any]
    attempt: int = 0
    failures: int = 0
    created_at: datetime | None = None


@dataclass(frozen=True)
class TextJob:
    """What is stored of a job about a text: `error_code` is why its last attempt failed."""

    id: str
    kind: str
    state: JobState
    attempts: int
    failures: int
    created_at: datetime
    finished_at: datetime | None
    error_code: str | None
    episode_id: str
