"""How much of what was said is found again: conversations are handed in as transcripts, worked
through by the house's own worker, and asked about through the same service as the doors use.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from recall_server.application import Application
from recall_server.bench.abstaining import elsewhere
from recall_server.bench.databases import scratch, settings
from recall_server.bench.retrieval_data import DataSet, Question, Session, read
from recall_server.bootstrap import open_application
from recall_server.domain.episode import Episode, Source, Span
from recall_server.domain.errors import Invalid
from recall_server.domain.memory import Memory
from recall_server.domain.namespace import Namespace, namespace
from recall_server.domain.query import Hit, ItemKind, Part, Query, SearchMode
from recall_server.services.memory.ingest import Submission
from recall_server.services.search.recall import Found as Answered
from recall_server.storage.tables.episodes import turn_id

SEED = 20261122
TICK = timedelta(seconds=1)

Say = Callable[[str], None]
Places = list[tuple[Span, str]]


@dataclass(frozen=True)
class Wishes:
    """What is asked for on the command line; `None` is what the product does by itself."""

    data: Path
    db_url: str | None
    embedder: str | None
    reranker: str | None
    profile: SearchMode | None
    without: frozenset[Part]
    limit: int
    neighbours: int


@dataclass(frozen=True)
class Ingested:
    """What became of the docs. `unmapped`: no turn holds them. `hidden`: their turns are held back.
    `covered`: found through memories only. `lost`: neither a turn nor a memory that search finds
    cites them.
    """

    sessions: int
    docs: int
    turns: int
    memories: int
    covered_turns: int
    unmapped: int
    hidden: int
    covered: int
    lost: int


DELIVERED_HITS = 10
# Stands for a doc in the place of a hit that cites what another one did.
AGAIN = ""


@dataclass(frozen=True)
class Found:
    """One hit, and the docs that it cites."""

    item: str
    kind: ItemKind
    score: float
    keyword: float | None
    cosine: float | None
    docs: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What a question found, best first, and the evidence that its answer is there. `delivered`:
    all docs that come with the first `DELIVERED_HITS`, where the turns around them were asked for.
    """

    question: Question
    found: tuple[Found, ...]
    evidence: float
    delivered: frozenset[str] = frozenset()

    @cached_property
    def ranked(self) -> tuple[tuple[str, float], ...]:
        """The docs in the order of the hits, with their scores. A hit that cites nothing new has
        its place too, and shows no doc: who asks for ten hits gets ten.
        """
        ranked: list[tuple[str, float]] = []
        seen: set[str] = set()
        for hit in self.found:
            new = [doc for doc in hit.docs if doc not in seen]
            seen.update(new)
            ranked += [(doc, hit.score) for doc in new or [AGAIN]]
        return tuple(ranked)


@dataclass(frozen=True)
class RetrievalRun:
    """What one engine found. `elsewhere`: the evidence for the same questions where they have no
    answer. `degraded`: why the vectors took no part, if they did not.
    """

    engine: str
    corpora: tuple[str, ...]
    embedder: str
    query: Query
    neighbours: int
    ingested: Ingested
    answers: tuple[Answer, ...]
    elsewhere: tuple[float, ...]
    degraded: str | None


async def run(engine: str, wishes: Wishes, say: Say) -> RetrievalRun:
    """Measure on a database that is made for it. Raises `Invalid` on data that cannot be used.

    Ids and times do not depend on the engine: all is handed in on the day after the last session,
    one second apart. As in use, a question counts as an access of what it finds.
    """
    data = read(wishes.data)
    given = {"embedder": wishes.embedder, "reranker": wishes.reranker}
    chosen = {name: value for name, value in given.items() if value is not None}
    clock = _Clock(data.after)
    with scratch(engine, wishes.db_url) as database:
        async with open_application(
            settings(database).model_copy(update=chosen),
            now=clock,
            random_bytes=random.Random(SEED).randbytes,  # noqa: S311 - ids that repeat are what is wanted
        ) as built:
            told = _Told(built, clock, engine, say)
            ingested = await told.take_in(data)
            query = Query("", limit=wishes.limit, without=wishes.without)
            if wishes.profile is not None:
                query = replace(query, mode=wishes.profile)
            answers, degraded = await told.ask(data, query, wishes.neighbours)
            others = await told.ask_elsewhere(data, query)
            model = built.embedder.model if built.embedder else "none"
            if again := built.services.recall.reranking:
                model = f"{model}, re-ranker {again.reranker.name}"
    return RetrievalRun(
        *(engine, data.corpora, model, query, wishes.neighbours, ingested),
        *(answers, others, degraded),
    )


def disagreement(one: RetrievalRun, other: RetrievalRun) -> list[str]:
    """The questions that two runs do not answer alike: the same items in the same order, scores
    within 1e-6.
    """
    return [
        first.question.id
        for first, second in zip(one.answers, other.answers, strict=True)
        if [hit.item for hit in first.found] != [hit.item for hit in second.found]
        or any(
            abs(a.score - b.score) > 1e-6 for a, b in zip(first.found, second.found, strict=True)
        )
    ]


class _Clock:
    def __init__(self, at: datetime) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at


class _Told:
    """A house that is told a data set, a namespace for each corpus, and asked about it."""

    def __init__(self, built: Application, clock: _Clock, engine: str, say: Say) -> None:
        self._built = built
        self._clock = clock
        self._say: Say = lambda text: say(f"{engine}: {text}")
        self._tenants: dict[str, Namespace] = {}
        self._places: dict[str, Places] = {}
        self._docs_of: dict[str, frozenset[str]] = {}

    async def take_in(self, data: DataSet) -> Ingested:
        for number, corpus in enumerate(data.corpora, 1):
            self._tenants[corpus] = namespace(f"corpus-{number}")
            await self._found_tenant(self._tenants[corpus])
        counts: defaultdict[str, int] = defaultdict(int)
        for number, session in enumerate(data.sessions, 1):
            self._say(f"session {number} of {len(data.sessions)}")
            episode_id = await self._remember(session)
            while await self._built.worker.run_once():
                pass
            await self._count(session, episode_id, counts)
        for tenant in self._tenants.values():
            entry = self._built.services.audit.begin(tenant, "get_memory_stats", "bench", None)
            stats = await self._built.services.recall.stats(tenant, entry=entry)
            if any(vars(stats.backlog).values()):
                raise Invalid(f"The worker has not come to its end: {stats.backlog}.")
            counts["memories"] += stats.total
        return Ingested(sessions=len(data.sessions), **counts)

    async def _found_tenant(self, tenant: Namespace) -> None:
        services = self._built.services
        entry = services.audit.begin(tenant, "create_token", "bench", None)
        await services.access.issue(tenant, label="bench", entry=entry)

    async def _remember(self, session: Session) -> str:
        services, tenant = self._built.services, self._tenants[session.corpus]
        self._clock.at += TICK
        submission = Submission(session.text, "general", source=Source(session_id=session.id))
        entry = services.audit.begin(tenant, "store_memory", "bench", None)
        return (await services.ingest.remember(tenant, submission, entry=entry)).episode_id

    async def _count(self, session: Session, episode_id: str, counts: dict[str, int]) -> None:
        tenant = self._tenants[session.corpus]
        async with self._built.store.transaction(tenant, write=False) as tx:
            episode = await tx.episodes.get(episode_id)
            assert episode is not None
            open_turns = {item.id for item in await tx.episodes.open_turns(episode_id)}
            memories = await tx.memories.of_episode(episode_id)
        places = self._places[episode_id] = session.places(episode.text)
        for turn in episode.turns:
            docs = frozenset(doc for span, doc in places if span.overlaps(turn.span))
            self._docs_of[turn_id(episode_id, turn.index)] = docs
        state = _State(episode, open_turns, memories)
        for name, count in state.counts(places).items():
            counts[name] += count

    async def ask(
        self, data: DataSet, query: Query, neighbours: int
    ) -> tuple[tuple[Answer, ...], str | None]:
        answers, degraded = [], None
        for number, question in enumerate(data.questions, 1):
            if number % 20 == 0:
                self._say(f"question {number} of {len(data.questions)}")
            answer = await self._search(question, query)
            degraded = degraded or answer.degraded
            found = tuple(map(self._found, answer.hits))
            answers.append(Answer(question, found, answer.evidence))
        if neighbours:
            # Asked again: the first hits leave those turns to the later ones that are hits too.
            wider = replace(query, limit=DELIVERED_HITS, neighbours=neighbours)
            answers = [await self._with_delivered(one, wider) for one in answers]
        return tuple(answers), degraded

    async def ask_elsewhere(self, data: DataSet, query: Query) -> tuple[float, ...]:
        """The evidence for questions that have no answer where they are asked."""
        # It does not depend on how many hits there are, or on who looks at them again.
        query = replace(query, limit=1, without=query.without | {Part.RERANK})
        found = []
        for number, question in enumerate(elsewhere(data), 1):
            if number % 20 == 0:
                self._say(f"question {number} without an answer")
            found.append((await self._search(question, query)).evidence)
        return tuple(found)

    async def _search(self, question: Question, query: Query) -> Answered:
        services, tenant = self._built.services, self._tenants[question.corpus]
        entry = services.audit.begin(tenant, "search_memories", "bench", None)
        asked = replace(query, text=question.text)
        return await services.recall.search(tenant, asked, cite=True, entry=entry)

    async def _with_delivered(self, answer: Answer, query: Query) -> Answer:
        self._say(f"the turns around what {answer.question.id} finds")
        docs: set[str] = set()
        for hit in (await self._search(answer.question, query)).hits:
            docs.update(self._found(hit).docs)
            for said in hit.around:
                docs |= self._docs_of[said.turn_id]
        return replace(answer, delivered=frozenset(docs))

    def _found(self, hit: Hit) -> Found:
        cited = hit.item.citation
        assert cited is not None
        places = self._places[cited.episode_id]
        docs = tuple(doc for span, doc in places if span.overlaps(cited.span))
        scores = hit.scores
        return Found(
            *(hit.item.id, hit.item.kind, scores.final, scores.keyword, scores.cosine, docs)
        )


@dataclass(frozen=True)
class _State:
    """An episode after the worker has gone through it."""

    episode: Episode
    open_turns: set[str]
    memories: list[Memory]

    def counts(self, places: Places) -> dict[str, int]:
        shown = [turn for turn in self.episode.turns if not turn.hidden]
        opened = [t for t in shown if turn_id(self.episode.id, t.index) in self.open_turns]
        cited = [memory.citation.span for memory in self.memories]

        def within(span: Span, spans: list[Span]) -> bool:
            return any(span.overlaps(one) for one in spans)

        said = [span for span, _ in places]
        told = [span for span in said if within(span, [t.span for t in self.episode.turns])]
        seen = [span for span in told if within(span, [t.span for t in shown])]
        covered = [span for span in seen if not within(span, [t.span for t in opened])]
        return {
            "docs": len(said),
            "turns": len(self.episode.turns),
            "covered_turns": len(shown) - len(opened),
            "unmapped": len(said) - len(told),
            "hidden": len(told) - len(seen),
            "covered": len(covered),
            "lost": sum(not within(span, cited) for span in covered),
        }
