"""Another embedder, and the lines that the command prints."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from recall_server.application import Application
from recall_server.domain.audit import AuditEntry
from recall_server.domain.errors import EmbedderUnavailable
from recall_server.domain.ids import Namespace
from recall_server.integrations.embeddings import Vectors
from tests.support.conversation import ALICE
from tests.support.models import HashEmbedder

Entry = Callable[[str], AuditEntry]


class Other(HashEmbedder):
    """Another model, which answers so many times and then fails; it awaits `meanwhile` first."""

    model = "other/64"

    def __init__(self, answers: int = 1_000) -> None:
        super().__init__()
        self.answers = answers
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if self.meanwhile is not None:
            happening, self.meanwhile = self.meanwhile, None
            await happening()
        if self.answers == 0:
            raise EmbedderUnavailable
        self.answers -= 1
        return -await super().embed(texts)


def lines(application: Application, namespace: Namespace = ALICE) -> Entry:
    return partial(application.services.audit.begin, namespace, protocol="cli", accessor=None)
