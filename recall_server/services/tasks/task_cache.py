"""The prepared text of a task, and a cache of the tasks that this process accepted a moment ago, so
that its worker need not read them again.
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
from recall_server.services.memory.episodes import prepare_episode
from recall_server.services.memory.ingest import INLINE_CHARS_MAX
from recall_server.storage.index.codes import Floats
from recall_server.storage.index.words import Postings

HELD_MAX = 128


@dataclass(frozen=True)
class Text:
    """A submitted text as an episode with its postings; `vectors` are keyed by the texts they
    embed.
    """

    episode: Episode
    words: Postings
    vectors: Mapping[Texts, Floats] = field(default_factory=dict)


async def task_text(task: Task) -> Text | None:
    """Return the prepared text; None if the task has none."""
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
        return Text(*await asyncio.to_thread(prepare_episode, episode))
    return Text(*prepare_episode(episode))


class TaskCache:
    """The newest tasks with short texts; each is taken once. If another process changed a task
    since, saving it fails on its version.
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
