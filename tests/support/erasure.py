"""Erasing through the services, and the rows that are left."""

from collections.abc import Sequence
from typing import Any

from recall_server.application import Application
from recall_server.domain.episode import Span
from recall_server.domain.extraction import Candidate
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import Fact, MemoryType
from recall_server.domain.query import Query
from recall_server.services.erasure import Erased
from recall_server.storage.store import Store
from recall_server.storage.tables.registry import DELETED
from tests.support.conversation import ALICE, context

CONFIRM = "DELETE MY DATA"


def candidate(text: str, quote: str, said: str, fact: Fact | None = None) -> Candidate:
    """Return a memory that rests on `quote`, wherever that is in `said`."""
    start = said.index(quote)
    return Candidate(text, MemoryType.FACT, Span(start, start + len(quote)), fact)


async def erase_all(application: Application, namespace: Namespace = ALICE) -> Erased:
    return await application.services.erase.namespace(context(application, namespace), CONFIRM)


async def rows(store: Store, namespace: Namespace = ALICE) -> dict[str, int]:
    """Return the number of rows that a namespace has in each table that an erasure empties."""
    async with store.transaction(namespace, write=False) as tx:
        return await tx.erasures.counts()


async def select(store: Store, sql: str, namespace: Namespace = ALICE) -> list[dict[str, Any]]:
    async with store.driver.transaction(namespace=namespace, write=False) as connection:
        return [dict(row) for row in await connection.fetch(sql, {})]


async def found(
    application: Application, query: str, namespace: Namespace = ALICE
) -> Sequence[str]:
    """Return the texts that a search finds."""
    answer = await application.services.recall.search(context(application, namespace), Query(query))
    return [hit.item.text for hit in answer.hits]


NOTHING = dict.fromkeys(DELETED, 0)
