"""Search what is remembered."""

from collections.abc import Collection
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from recall_server.api import presenters
from recall_server.api.arguments import INT64_MAX
from recall_server.api.operations.intake import check_own
from recall_server.api.operations.memories import UNLISTED, UNLISTED_TIMES, Filtered
from recall_server.api.operations.operation import (
    AGENTERNAL,
    CAMILLO,
    ENGRAM,
    Call,
    Http,
    Mcp,
    Operation,
)
from recall_server.domain.context import Context
from recall_server.domain.memory import Layer, MemoryType
from recall_server.domain.moments import Past
from recall_server.domain.permissions import AccessScope, Scope
from recall_server.domain.query import Query, SearchMode
from recall_server.services.auth.access import CONTAINERS_MAX
from recall_server.services.search.recall import Found


class SearchMemories(Filtered):
    query: str
    limit: int = Field(20, ge=1, le=50)
    recency_weight: float = Field(0.3, ge=0, le=1)
    mmr_lambda: float = Field(0.5, ge=0, le=1, description="0 diverse, 1 relevance only")
    score_threshold: float = Field(0.0, ge=0, le=1)
    max_tokens: int = Field(0, ge=0, le=INT64_MAX, description="0: no budget")
    mode: Annotated[SearchMode, Field(strict=False)] = SearchMode.HYBRID
    neighbours: int = Field(0, ge=0, le=5, description="turns shown around each")
    explain: bool = Field(default=False, description="add scores and the cited words")
    topic: str = ""
    type: Annotated[MemoryType | None, Field(strict=False)] = None
    reinforce: bool = Field(default=True, description="count the hits as accessed")

    def narrowed(self, scope: AccessScope) -> AccessScope:
        return super().narrowed(scope).filtered(topic=self.topic, type_=self.type)

    def to_query(self, past: Past) -> Query:
        asked = "score_threshold" in self.model_fields_set
        return Query(
            text=self.query,
            limit=self.limit,
            mode=self.mode,
            neighbours=self.neighbours,
            recency_weight=self.recency_weight,
            mmr_lambda=self.mmr_lambda,
            score_threshold=self.score_threshold if asked else None,
            max_tokens=self.max_tokens or None,
            past=past,
            reinforce=self.reinforce,
            include_expired=self.include_expired,
        )


class SearchContainers(SearchMemories):
    """With several containers, where "" means those in none; the tool for models lacks this
    argument.
    """

    containers: list[str] | None = Field(None, min_length=1, max_length=CONTAINERS_MAX)

    def within(self) -> Collection[str] | None:
        named = super().within()
        return named if self.containers is None else {*(named or ()), *self.containers}


class RecallMemory(SearchMemories):
    """The body that Camillo takes. Namespaces share nothing, and no memory is linked to others
    because they were found together: asking for either includes nothing more.
    """

    namespace: str = ""
    top_k: int = Field(10, ge=1, le=50)
    include_hebbian: bool = False
    include_shared: bool = False

    def context(self, call: Call) -> Context:
        check_own(self.namespace, "namespace", call.caller.namespace)
        return super().context(call)

    def to_query(self, past: Past) -> Query:
        asked = "limit" in self.model_fields_set
        return replace(super().to_query(past), limit=self.limit if asked else self.top_k)


class RecallQuietly(RecallMemory):
    """Camillo's tool, which changes nothing, in contrast to its route."""

    reinforce: bool = Field(default=False, description="count the hits as accessed")


class SearchEpisodes(SearchMemories):
    """The arguments that Engram takes."""

    search_mode: Annotated[SearchMode, Field(strict=False)] = SearchMode.HYBRID
    source: str = ""
    max_results: int = Field(10, ge=1, le=50)
    min_similarity: float | None = Field(None, ge=0, le=1)

    def narrowed(self, scope: AccessScope) -> AccessScope:
        return super().narrowed(scope).filtered(app=self.source)

    def to_query(self, past: Past) -> Query:
        query, given = super().to_query(past), self.model_fields_set
        if "mode" not in given:
            query = replace(query, mode=self.search_mode)
        if "limit" not in given:
            query = replace(query, limit=self.max_results)
        if "score_threshold" not in given:
            query = replace(query, score_threshold=self.min_similarity)
        return query


class SearchArchival(SearchMemories):
    """The query that Agenternal takes."""

    query: str = Field(alias="q")


class SearchConversations(SearchMemories):
    """A search of what was said: passages and episodic memories."""

    layer: Annotated[Layer | None, Field(strict=False)] = Layer.EPISODIC


class SearchPatterns(SearchMemories):
    layer: Annotated[Layer | None, Field(strict=False)] = Layer.SCHEMA


class SearchDecisions(SearchMemories):
    """A search of decisions. Agenternal's agents ask by topic or domain alone: its words then are
    the question, since they need not be the label of any text.
    """

    query: str = ""
    domain: str = ""
    type: Annotated[MemoryType | None, Field(strict=False)] = MemoryType.DECISION

    def narrowed(self, scope: AccessScope) -> AccessScope:
        given = self if self.query else self.model_copy(update={"topic": ""})
        return super(SearchDecisions, given).narrowed(scope)

    def to_query(self, past: Past) -> Query:
        words = (self.query, self.domain, "" if self.query else self.topic)
        return replace(super().to_query(past), text=" ".join(filter(None, words)))


async def search(call: Call, given: SearchMemories) -> Found:
    found = await call.services.recall.search(
        given.context(call), given.to_query(given.past(call)), cite=given.explain
    )
    if found.degraded is not None:
        call.services.metrics.degraded()
    return found


SEARCH_MEMORIES = Operation(
    "search_memories",
    Scope.READ,
    "Find what is remembered about a question, best first.",
    SearchContainers,
    search,
    lambda found, given: presenters.found(found, explain=given.explain),
    ("results", "total", "weak_evidence", "degraded", "left_out"),
    http=(
        Http("POST", "/v1/search"),
        Http("POST", "/recall", arguments=RecallMemory),
        Http("POST", "/api/v1/search", arguments=SearchEpisodes),
        Http("GET", "/api/memory/search", arguments=SearchArchival),
    ),
    mcp=Mcp(
        "Search memories",
        "Find what is remembered about a question, best first: memories and passages. With "
        "'weak_evidence' the answer is likely missing; 'degraded' says why.",
        SearchMemories,
        unlisted=UNLISTED | UNLISTED_TIMES | {"type", "reinforce"},
        aliases={
            "recall_memory": (RecallQuietly, CAMILLO),
            "search": (SearchEpisodes, ENGRAM),
            "conversation_search": (SearchConversations, AGENTERNAL),
            "decision_search": (SearchDecisions, AGENTERNAL),
            "memory_insights": (SearchPatterns, AGENTERNAL),
        },
        idempotent=True,
    ),
    cli="recall search",
    read_only=True,
)

OPERATIONS = (SEARCH_MEMORIES,)
