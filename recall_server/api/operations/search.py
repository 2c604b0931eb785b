"""Search what is remembered; and the reads of aCMF: a block for the prompt before a turn, a
grounded answer, and a snapshot. No model is called: a block and an answer consist of memories and
of words that were said.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Annotated, Literal
from xml.sax.saxutils import escape

from pydantic import Field

from recall_server.api import presenters
from recall_server.api.operations.hooks import line_of
from recall_server.api.operations.intake import NamedContainer, check_own
from recall_server.api.operations.memories import UNLISTED, UNLISTED_TIMES, Filtered, InTime
from recall_server.api.operations.operation import (
    AGENTERNAL,
    CAMILLO,
    ENGRAM,
    INT64_MAX,
    Arguments,
    Call,
    Http,
    Json,
    Mcp,
    operation,
)
from recall_server.domain.context import Context
from recall_server.domain.ids import NONE
from recall_server.domain.memory import Layer, MemoryType
from recall_server.domain.moments import Past
from recall_server.domain.permissions import AccessScope, Scope
from recall_server.domain.query import Hit, Query, SearchMode
from recall_server.domain.search.calibration import WEAK_BELOW
from recall_server.domain.search.ranking import text_tokens
from recall_server.services.auth import CONTAINERS_MAX
from recall_server.services.search import grounding
from recall_server.services.search.grounding import Grounding, Snapshot
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


@operation(
    Scope.READ,
    arguments=SearchContainers,
    present=lambda found, given: presenters.found(found, explain=given.explain),
    returns=("results", "total", "weak_evidence", "degraded", "left_out"),
    http=(
        Http("POST", "/v1/search"),
        Http("POST", "/recall", arguments=RecallMemory),
        Http("POST", "/api/v1/search", arguments=SearchEpisodes),
        Http("GET", "/api/memory/search", arguments=SearchArchival),
    ),
    mcp=Mcp(
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
async def search_memories(call: Call, given: SearchMemories) -> Found:
    """Find what is remembered about a question, best first."""
    found = await call.services.recall.search(
        given.context(call), given.to_query(given.past(call)), cite=given.explain
    )
    if found.degraded is not None:
        call.services.metrics.degraded()
    return found


OPERATIONS = (search_memories,)


# How many hits each mode reads.
CANDIDATES = {"simple": 10, "balanced": 30, "deep": 50}
WITH_CONTAINERS = "user_global_container"
NOTE = "Use as supportive context, not unquestionable fact."
ANSWER = "Based on stored memory:"
SNAPSHOT_TOKENS_MAX = 400
CONTEXT_TOKENS = 400
ANSWER_TOKENS = 500
# With fewer, the elements of a block alone would not fit.
OUTPUT_TOKENS_MIN = 100


class Budgets(Arguments):
    max_output_tokens: int | None = Field(None, ge=OUTPUT_TOKENS_MIN, le=100_000)
    max_candidate_memories: int | None = Field(None, ge=1)


class Grounded(InTime):
    """The arguments of both reads. `metadata` is for the host's own use and is not read."""

    user_id: str = ""
    containers: list[NamedContainer] = Field([], max_length=CONTAINERS_MAX)
    scope_level: Literal["user", "user_global", "user_global_container"] = "user_global"
    read_mode: Literal["simple", "balanced", "deep"] = "balanced"
    budgets: Budgets | None = None
    metadata: Json = Field({})

    def within(self) -> Collection[str]:
        named = self.containers if self.scope_level == WITH_CONTAINERS else []
        return {NONE, *(one.id for one in named)}

    def candidates(self) -> int:
        given = self.budgets.max_candidate_memories if self.budgets else None
        most = CANDIDATES[self.read_mode]
        return min(most, given or most)

    def output_tokens(self, default: int) -> int:
        return (self.budgets.max_output_tokens if self.budgets else None) or default

    def warnings(self) -> list[str]:
        if self.containers and self.scope_level != WITH_CONTAINERS:
            return [f"The containers were not read. For that send scope_level: {WITH_CONTAINERS}."]
        return []


class GetContext(Grounded):
    message: str


class AnswerQuestion(Grounded):
    query: str


class GetSnapshot(InTime):
    user_id: str


async def _ground(
    call: Call, given: Grounded, message: str, budget: int, price: Callable[[Hit], int]
) -> Grounding:
    check_own(given.user_id, "user_id", call.caller.namespace)
    found = await grounding.ground(
        call.services.recall,
        call.context,
        message,
        containers=given.within(),
        candidates=given.candidates(),
        budget=budget,
        price=price,
        past=given.past(call),
    )
    if found.degraded is not None:
        call.services.metrics.degraded()
    return found


def _block(scope: str, lines: Sequence[str]) -> str:
    """Return the block; the best line is the summary."""
    summary, rest = "".join(lines[:1]), "\n".join(lines[1:])
    return (
        f"<contextenhancement>\n<scope>{scope}</scope>\n<summary>{escape(summary)}</summary>\n"
        f"<active_context>{escape(rest)}</active_context>\n"
        f"<confidence_note>{NOTE}</confidence_note>\n</contextenhancement>"
    )


def _context(found: Grounding, given: GetContext) -> Json:
    lines = [line_of(hit).removeprefix("- ") for hit in found.used[:1]]
    lines += [line_of(hit) for hit in found.used[1:]]
    return {
        "status": "ok",
        "has_usable_context": bool(found.used),
        "context_enhancement": _block(given.scope_level, lines) if found.used else None,
        "abstained_reason": found.abstained,
        "diagnostics": _diagnostics(found, given),
    }


def _answer(found: Grounding, given: AnswerQuestion) -> Json:
    texts = " ".join(hit.in_prompt for hit in found.used)
    return {
        "status": "ok",
        "answer": f"{ANSWER} {texts}" if found.used else None,
        "abstained": not found.used,
        "abstained_reason": found.abstained,
        "used_memory_count": len(found.used),
        "diagnostics": _diagnostics(found, given),
        "evidence": [_evidence(hit, found) for hit in found.used],
    }


def _diagnostics(found: Grounding, given: Grounded) -> Json:
    ranks = [hit.scores.signals for hit in found.used]
    return {
        "scope_applied": given.scope_level,
        "read_mode": given.read_mode,
        # A namespace exists by its tokens, and one was sent.
        "user_found": True,
        "candidate_count": len(found.relevant),
        "used_memory_count": len(found.used),
        "missing_containers": list(found.missing),
        "source_breakdown": {
            "snapshot": 0,
            "vector": sum(one.get("cosine_rank") is not None for one in ranks),
            "metadata": sum(one.get("keyword_rank") is not None for one in ranks),
            "graph": 0,
        },
        "evidence_strength": round(found.evidence, 4),
        "thresholds": {"relevance": grounding.RELEVANT_FROM, "evidence": WEAK_BELOW},
        "warnings": [*given.warnings(), *([found.degraded] if found.degraded else [])],
    }


def _evidence(hit: Hit, found: Grounding) -> Json:
    """Return what a hit says for the answer. Words that are no memory are what was said: they
    support it fully.
    """
    item = hit.item
    memory = found.memories.get(item.id)
    return {
        "memory_id": item.id,
        "scope_type": "container" if item.container else "user",
        "bucket_id": item.container or None,
        "relevance": round(hit.scores.score, 4),
        "support": round(memory.confidence, 4) if memory else 1.0,
        "relation_refs": [
            presenters.relation(one)
            for one in found.relations
            if item.id in (one.from_id, one.to_id)
        ],
        "entity_refs": [memory.fact.entity] if memory and memory.fact else [],
    }


def _snapshot(found: Snapshot, given: GetSnapshot) -> Json:
    shown, left = [], SNAPSHOT_TOKENS_MAX
    for one in found.memories:
        if (tokens := text_tokens(one.text) + 1) <= left:
            shown.append(one)
            left -= tokens
    return {
        "status": "ok",
        "user_id": given.user_id,
        "generated_at": presenters.moment(found.at),
        "snapshot": {
            "summary": " ".join(one.text for one in shown),
            "memory_refs": [one.id for one in shown],
            "health_note": (
                f"{found.disputed} of these memories are disputed: `GET /v1/reviews` lists why."
                if found.disputed
                else "No contradiction among these memories is open."
            ),
        },
    }


@operation(
    Scope.READ,
    present=_context,
    returns=(
        "status",
        "has_usable_context",
        "context_enhancement",
        "abstained_reason",
        "diagnostics",
    ),
    http=(Http("POST", "/v1/context"),),
    read_only=True,
)
async def get_context(call: Call, given: GetContext) -> Grounding:
    """Return a block for the prompt of what is known about a message, or say why there is none."""
    around = text_tokens(_block(given.scope_level, []))
    budget = given.output_tokens(CONTEXT_TOKENS) - around

    def price(hit: Hit) -> int:
        return text_tokens(escape(line_of(hit))) + 1

    return await _ground(call, given, given.message, budget, price)


@operation(
    Scope.READ,
    present=_answer,
    returns=("status", "answer", "abstained", "used_memory_count", "diagnostics", "evidence"),
    http=(Http("POST", "/v1/deep-memory"),),
    read_only=True,
)
async def answer_question(call: Call, given: AnswerQuestion) -> Grounding:
    """Answer a question with what is known, and name the memories, or say why there is
    no answer.
    """
    budget = given.output_tokens(ANSWER_TOKENS) - text_tokens(ANSWER)
    return await _ground(
        call, given, given.query, budget, lambda hit: text_tokens(hit.in_prompt) + 1
    )


@operation(
    Scope.READ,
    present=_snapshot,
    returns=("status", "user_id", "generated_at", "snapshot"),
    http=(Http("GET", "/v1/snapshot/{user_id}"),),
    read_only=True,
)
async def get_snapshot(call: Call, given: GetSnapshot) -> Snapshot:
    """Sum up what is in no container: the most important of the newest memories."""
    check_own(given.user_id, "user_id", call.caller.namespace)
    return await grounding.snapshot(call.services.recall, call.context, given.past(call))


GROUNDING = (get_context, answer_question, get_snapshot)
