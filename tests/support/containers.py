"""The contents of a container, and its erasure."""

from recall_server.application import Application
from recall_server.domain.task import Mode, Request, Task
from recall_server.services.memory.ingest import Accepted, Submission
from tests.support.conversation import context
from tests.support.erasure import select

RED, BLUE = "projects/red", "chat:Blue-7"
OTTER = "Bea: I prefer the otter.\nBea: The tower is tall and white."


async def put(
    application: Application, text: str, container: str, *, key: str | None = None
) -> Accepted:
    submission = Submission(text, "life", key, container=container)
    return await application.services.ingest.remember(context(application), submission)


async def start(application: Application, text: str, container: str) -> Task:
    request = Request(Mode.INGEST, "life", text=text, container=container)
    return await application.services.consolidate.start(context(application), request)


WORDS = (
    "memory_counts",
    "episodes",
    "turns",
    "memories",
    "citations",
    "runs",
    "run_events",
    "quarantine",
)


async def everything(application: Application) -> set[str]:
    """Return all rows of the namespace that hold words, and the hits of searches by words and
    vectors.
    """
    asked = [
        *(f"SELECT * FROM {table}" for table in WORDS),
        "SELECT term, documents FROM terms",
        "SELECT item_id, findable FROM documents",
        "SELECT item_id, model FROM embeddings",
    ]
    return {
        str({name: value for name, value in row.items() if "access" not in name})
        for sql in asked
        for row in await select(application.store, sql)
    }
