"""The text that a run was given, read; and the runs that this process has accepted a moment ago,
so that whoever works on them next need not read them again.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from recall_server.domain.episode import Episode
from recall_server.domain.namespace import Namespace
from recall_server.domain.task import Task
from recall_server.services.memory.embedding import Texts
from recall_server.services.memory.episodes import read
from recall_server.services.memory.ingest import INLINE_CHARS_MAX
from recall_server.storage.index.codes import Floats
from recall_server.storage.index.words import Postings

HELD_MAX = 128
# What is made of so much touches so few rows that others can wait for it.
BRIEF_CHARS_MAX = 2_000


@dataclass(frozen=True)
class Text:
    """What was handed in, as the episode that it will be, and the words that find it; `vectors` by
    the texts that they are of.
    """

    episode: Episode
    words: Postings
    vectors: Mapping[Texts, Floats] = field(default_factory=dict)

    @property
    def brief(self) -> bool:
        """Whether a transaction about it is (`Driver.transaction`)."""
        return len(self.episode.text) <= BRIEF_CHARS_MAX


async def task_text(task: Task) -> Text | None:
    """None where the run is about what is in memory already."""
    request, work = task.request, task.work
    if not request.text:
        return None
    episode = Episode(
        id=work.episode_id,
        text=request.text,
        topic=request.topic,
        occurred_at=work.started_at,
        recorded_at=work.started_at,
        content_hash=hashlib.sha256(request.text.encode()).hexdigest(),
        job_id=task.id,
        source=request.source,
        container=request.container,
    )
    if len(request.text) > INLINE_CHARS_MAX:
        return Text(*await asyncio.to_thread(read, episode))
    return Text(*read(episode))


class TaskCache:
    """The newest runs of short texts, each given once. What happened to one since, here or in
    another process, shows when it is to be saved: another version is there, or none.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[Namespace, str], tuple[Task, Text]] = OrderedDict()

    def put(self, namespace: Namespace, task: Task, text: Text) -> None:
        if len(text.episode.text) > INLINE_CHARS_MAX:
            return
        self._held[namespace, task.id] = task, text
        if len(self._held) > HELD_MAX:
            self._held.popitem(last=False)

    def take(self, namespace: Namespace, task_id: str) -> tuple[Task, Text] | None:
        return self._held.pop((namespace, task_id), None)
