"""An application with a scripted re-ranker."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain.context import Context
from recall_server.domain.ids import Namespace, namespace
from recall_server.integrations.rerankers import Passage, RerankQuery
from recall_server.services.memory.ingest import Submission
from tests.support.application import settings_for
from tests.support.models import HashEmbedder
from tests.support.runtime import Clock

ANA = namespace("ana")
TALK = """Ana: Where did you go for the holidays?
Bo: We went to the quokka island with my sister.
Ana: How lovely!
Bo: My old printer is broken.
Ana: Buy a new one, then."""


class Scripted:
    """A re-ranker that records its questions, and prefers texts with a word."""

    name = "scripted"

    def __init__(self, likes: str, *, judges: bool = False) -> None:
        self.judges = judges
        self.likes = likes
        self.asked: list[tuple[RerankQuery, list[Passage]]] = []
        self.forgotten: list[Namespace] = []

    async def load(self) -> None: ...

    async def close(self) -> None: ...

    def forget(self, namespace: Namespace) -> None:
        self.forgotten.append(namespace)

    async def scores(self, look: RerankQuery, passages: Sequence[Passage]) -> list[float]:
        self.asked.append((look, list(passages)))
        return [float(self.likes in passage.text) for passage in passages]


@asynccontextmanager
async def opened(
    database: Path | str, clock: Clock, reranker: Scripted
) -> AsyncIterator[Application]:
    async with open_application(
        settings_for(database), embedder=HashEmbedder(), reranker=reranker, now=clock
    ) as built:
        entry = built.services.audit.begin(ANA, "create_token", "test", None)
        await built.services.access.issue(Context(entry), label="test")
        entry = built.services.audit.begin(ANA, "store_memory", "test", None)
        await built.services.ingest.remember(Context(entry), Submission(TALK, "general"))
        while await built.worker.run_once():
            pass
        yield built
