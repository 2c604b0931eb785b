"""Texts to search, and the hits of a search of them."""

from collections.abc import Sequence
from typing import Any

from recall_server.application import Application
from recall_server.domain.episode import Source
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.domain.query import Hit, Query, Scores, SearchMode
from recall_server.domain.search import ranking
from recall_server.services import search
from recall_server.services.memory.ingest import Submission
from recall_server.services.search.hits import finalize
from tests.support.conversation import ALICE, context
from tests.support.runtime import NOON

QUOKKA = "Ann: The quokka nibbled jam and figs."
HERON = "Ben: The heron of the harbour nibbled fish."
MODES = list(SearchMode)


async def tell(
    application: Application,
    text: str,
    namespace: Namespace = ALICE,
    *,
    topic: str = "life",
    session: str | None = None,
    agent: str | None = None,
) -> None:
    await application.services.ingest.remember(
        context(application, namespace), Submission(text, topic, None, Source(session, agent))
    )


async def looked(
    application: Application,
    query: Query,
    namespace: Namespace = ALICE,
    access_scope: AccessScope = FULL_ACCESS,
) -> list[Hit]:
    """Return the answer to a question, without counting an access."""
    tx = application.store.autocommit(namespace, access_scope=access_scope)
    prepared = await search.prepare(tx, application.embedder, namespace, query)
    found = await search.retrieve(tx, application.embedder, prepared, NOON)
    found = await finalize(tx, found, query)
    return ranking.fit_budget(found.hits(), query.max_tokens, ranking.tokens)


async def asked(application: Application, question: str, **query: Any) -> list[Hit]:
    """Return the hits that a caller gets."""
    found = await application.services.recall.search(context(application), Query(question, **query))
    return list(found.hits)


def texts(hits: Sequence[Hit]) -> list[str]:
    return [hit.item.text for hit in hits]


def scores(hits: Sequence[Hit]) -> dict[str, Scores]:
    """Return every score of every hit by its text, since the ids of two namespaces differ."""
    return {hit.item.text: hit.scores for hit in hits}


CONVERSATIONS = (
    "--- 8 May 2023 ---\nCaroline: I live in Lisbon near the river.\nMel: I prefer green tea.",
    "--- 8 May 2023 ---\nCaroline: The harbour was nice last week.\nMel: My sister's dog ran off.",
    "--- 9 July 2023 ---\nMel: I moved from Lisbon to Porto.\nCaroline: I am allergic to peanuts.",
    "User: I work at Initech.\nAssistant: Good to know!\nUser: I prefer tabs over spaces.",
    "Élodie: J'habite à Montréal.\nZoë: The café was closed, 小明 said so.\n小明: 我喜欢绿茶。",
    "A plain note without anybody: the river floods in spring, and green tea is sold out.",
    "Mel: The dog came back.\nMel: The dog came back.\nCaroline: The dog, the river, the harbour!",
)
