"""Measures how much of what was said is found again, and how well a search says that nothing is
there.

Conversations are stored as transcripts, the application's own worker processes them, and questions
go through the same service as those of every protocol.
"""

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from benchmarks.databases import scratch, settings, space
from benchmarks.fill import Say, context, tenant
from benchmarks.report import Check, Figure, Report, Row
from benchmarks.retrieval_data import UNANSWERABLE, DataSet, Question, Session, read
from benchmarks.retrieval_metrics import (
    Estimate,
    auc,
    estimates,
    measures,
    recall_at,
    weak_share,
)
from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain.episode import Source, Span, turn_id
from recall_server.domain.errors import Invalid
from recall_server.domain.ids import Namespace, namespace
from recall_server.domain.query import Hit, Query, SearchMode, Step
from recall_server.domain.search.calibration import WEAK_BELOW
from recall_server.domain.text.passages import visible_passages
from recall_server.services.memory.ingest import Submission
from recall_server.services.search.recall import Found as Searched

SEED = 20261122
TICK = timedelta(seconds=1)
DELIVERED_HITS = 10
# The doc of a hit that cites the same as another hit.
AGAIN = ""
SCORE_TOLERANCE = 1e-6
# The LoCoMo conversations with which all constants of the ranking were chosen.
TUNED_ON = ("conv-26", "conv-30", "conv-41", "conv-42", "conv-43")
# The bounds for these with the defaults, in percent.
R_AT_10_MIN = 79.0
ALL = "answerable"
ELSEWHERE = "asked of another corpus"
NOTES = (
    "In percent, with the 95 % interval (bootstrap over questions). A doc is one turn; R@k "
    "(recall) is the share of a question's evidence among the first k hits, hit@10 whether any of "
    "it is among 10; shown@10: the share of which a sentence stands in what is shown of the "
    "first 10. Questions that name no evidence do not count, and "
    f"{', '.join(sorted(UNANSWERABLE))} ones not among the {ALL}. Weak: evidence below "
    f"{WEAK_BELOW:g}; AUC: how often an answerable question has more evidence than one without an "
    f"answer. Tuned on the LoCoMo conversations {', '.join(TUNED_ON)}: there the figures flatter."
)

Places = list[tuple[Span, str]]


@dataclass(frozen=True)
class Options:
    """The options of the command line; `None` is the product's default."""

    data: Path
    db_url: str | None = None
    embedder: str | None = None
    reranker: str | None = None
    profile: SearchMode | None = None
    without: frozenset[str] = frozenset()
    limit: int = 20
    neighbours: int = 0

    @property
    def default(self) -> bool:
        """True if no option changes the ranking."""
        return not (self.embedder or self.reranker or self.profile or self.without)


@dataclass(frozen=True)
class Found:
    """One hit, and the docs that it cites."""

    item: str
    kind: str
    score: float
    keyword: float | None
    cosine: float | None
    docs: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """The hits of a question, best first, and the evidence that its answer is there. `shown`: the
    docs of which a sentence is in the text of the first `DELIVERED_HITS`, in so many `chars`;
    `delivered`: all docs that come with these and the turns around them, if asked for.
    """

    question: Question
    found: tuple[Found, ...]
    evidence: float
    shown: frozenset[str]
    chars: int
    delivered: frozenset[str] = frozenset()

    @cached_property
    def ranked(self) -> tuple[tuple[str, float], ...]:
        """Return the docs in the order of the hits, with their scores. A hit that cites nothing new
        keeps its place and shows no doc, so that ten hits stay ten.
        """
        ranked: list[tuple[str, float]] = []
        seen: set[str] = set()
        for hit in self.found:
            new = [doc for doc in hit.docs if doc not in seen]
            seen.update(new)
            ranked += [(doc, hit.score) for doc in new or [AGAIN]]
        return tuple(ranked)


@dataclass(frozen=True)
class Result:
    """The answers of one engine. `elsewhere`: the evidence for the same questions in a corpus
    without their answer. `degraded`: why the vectors took no part, if they did not.
    """

    engine: str
    options: Options
    corpora: tuple[str, ...]
    embedder: str
    query: Query
    stored: dict[str, int]
    answers: tuple[Answer, ...]
    elsewhere: tuple[float, ...]
    degraded: str | None
    space: Mapping[str, int] = field(default_factory=dict)

    def report(self) -> Report:
        rows = [*self._categories(), *self._unanswerable(), *self._space()]
        checks = []
        if self.options.default and set(self.corpora) == set(TUNED_ON):
            mean = 100 * self._estimates(self._answers_in(ALL))["R@10"].mean
            checks = [Check("R@10 in percent", mean, R_AT_10_MIN, at_least=True)]
        without = ", ".join(sorted(self.query.without))
        facts: dict[str, Figure] = {
            "profile": self.query.mode.value,
            **({"without": without} if without else {}),
            "embedder": self.embedder,
            "hits a search": self.query.limit,
            **({"degraded": self.degraded} if self.degraded else {}),
            **self.stored,
        }
        if self.options.neighbours:
            name = f"delivered by {DELIVERED_HITS} hits with {self.options.neighbours} around each"
            facts[name] = str(self.delivered())
        return Report("retrieval", self.engine, rows, checks, facts, NOTES)

    def delivered(self) -> Estimate:
        """Return the share of the evidence that comes with ten hits and the turns around them."""
        asked = self._answers_in(ALL)
        shares = [
            len(a.delivered & set(a.question.gold)) / len(set(a.question.gold)) for a in asked
        ]
        return estimates([{"delivered": share} for share in shares])["delivered"]

    def _space(self) -> Iterator[Row]:
        text = self.stored["bytes"]
        shares: dict[str, Figure] = {kind: count / text for kind, count in self.space.items()}
        if shares:
            total = sum(self.space.values()) / text
            yield Row("bytes in the database per byte of text", "", {"all": total, **shares})

    def _answers_in(self, category: str) -> list[Answer]:
        asked = [answer for answer in self.answers if answer.question.gold]
        if category == ALL:
            return [answer for answer in asked if answer.question.counts]
        return [answer for answer in asked if answer.question.category == category]

    @staticmethod
    def _estimates(answers: Sequence[Answer]) -> dict[str, Estimate]:
        return estimates(
            [
                {
                    **measures([doc for doc, _ in a.ranked], a.question.gold),
                    "shown@10": recall_at(len(a.shown), sorted(a.shown), a.question.gold),
                }
                for a in answers
            ]
        )

    def _categories(self) -> Iterator[Row]:
        """Return all answerable questions together, then each category."""
        names = dict.fromkeys(a.question.category for a in self.answers if a.question.gold)
        for name in (ALL, *names):
            if answers := self._answers_in(name):
                figures = {key: str(one) for key, one in self._estimates(answers).items()}
                chars = sum(a.chars for a in answers) / len(answers)
                figures["characters of 10"] = f"{chars:.0f}"
                yield Row("found", name, {"questions": len(answers), **figures})

    def _unanswerable(self) -> Iterator[Row]:
        """Return each kind of questions without an answer in memory, with those that have one."""
        answerable = [answer.evidence for answer in self.answers if answer.question.counts]
        kinds = {
            name: [a.evidence for a in self.answers if a.question.category == name]
            for name in sorted(UNANSWERABLE)
        }
        for name, evidence in {**kinds, ELSEWHERE: self.elsewhere}.items():
            if answerable and evidence:
                figures: dict[str, Figure] = {
                    "questions": len(evidence),
                    "AUC": auc(answerable, evidence),
                    "weak %": 100 * weak_share(evidence),
                    f"weak % of {ALL}": 100 * weak_share(answerable),
                }
                yield Row("without an answer", name, figures)


def agreement(one: Result, other: Result) -> Report:
    """Check that two engines give the same items in the same order with the same scores."""
    unlike = disagreement(one, other)
    name = f"questions of {len(one.answers)} answered unlike {one.engine}"
    row = Row("", name, {"unlike": len(unlike), "first of them": ", ".join(unlike[:10]) or "-"})
    check = Check(f"{name} (ids, order, scores within {SCORE_TOLERANCE:g})", len(unlike), 0)
    return Report("agreement", other.engine, [row], [check])


def disagreement(one: Result, other: Result) -> list[str]:
    """Return the ids of the questions that two runs answer differently."""
    return [
        first.question.id
        for first, second in zip(one.answers, other.answers, strict=True)
        if [hit.item for hit in first.found] != [hit.item for hit in second.found]
        or any(
            abs(a.score - b.score) > SCORE_TOLERANCE
            for a, b in zip(first.found, second.found, strict=True)
        )
    ]


def rankings(results: Sequence[Result]) -> Iterator[str]:
    """Yield a line of JSON for each question of each run: the docs it found, and the hits behind
    them.
    """
    for result in results:
        for answer in result.answers:
            asked = answer.question
            line = {
                "engine": result.engine,
                "id": asked.id,
                "category": asked.category,
                "gold": asked.gold,
                "ranked": [{"id": doc, "score": at} for doc, at in answer.ranked],
                "hits": [asdict(hit) for hit in answer.found],
            }
            yield json.dumps(line) + "\n"


async def retrieval(engine: str, options: Options, say: Say) -> Result:
    """Measure on a database of its own. Raises `Invalid` on data that cannot be used.

    Ids and times do not depend on the engine: everything is stored on the day after the last
    session, one second apart. As in use, a question counts as an access of the memories it finds.
    """
    data = read(options.data)
    given = {"embedder": options.embedder, "reranker": options.reranker}
    chosen = {name: value for name, value in given.items() if value is not None}
    clock = _Clock(data.after)
    with scratch(engine, options.db_url) as database:
        async with open_application(
            settings(database).model_copy(update=chosen),
            now=clock,
            random_bytes=random.Random(SEED).randbytes,  # noqa: S311 - ids must repeat
        ) as built:
            conversations = _Conversations(built, clock, lambda text: say(f"{engine}: {text}"))
            stored = await conversations.store(data)
            query = Query("", limit=options.limit, without=options.without)
            if options.profile is not None:
                query = replace(query, mode=options.profile)
            answers, degraded = await conversations.ask(data, query, options.neighbours)
            elsewhere = await conversations.ask_elsewhere(data, query)
            model = built.embedder.model if built.embedder else "none"
            if again := built.services.recall.reranking:
                model = f"{model}, re-ranker {again.reranker.name}"
        return Result(
            *(engine, options, data.corpora, model, query, stored, answers, elsewhere, degraded),
            space(database),
        )


class _Clock:
    def __init__(self, at: datetime) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at


class _Conversations:
    """A data set in an application, with a namespace for each corpus."""

    def __init__(self, built: Application, clock: _Clock, say: Say) -> None:
        self._built = built
        self._clock = clock
        self._say = say
        self._tenants: dict[str, Namespace] = {}
        self._places: dict[str, Places] = {}
        self._docs_of: dict[str, frozenset[str]] = {}

    async def store(self, data: DataSet) -> dict[str, int]:
        """Store every session and run its jobs; return the counts of docs, turns and memories."""
        for number, corpus in enumerate(data.corpora, 1):
            self._tenants[corpus] = namespace(f"corpus-{number}")
            await tenant(self._built, self._tenants[corpus])
        counts: defaultdict[str, int] = defaultdict(int, sessions=len(data.sessions))
        for number, session in enumerate(data.sessions, 1):
            self._say(f"session {number} of {len(data.sessions)}")
            episode_id = await self._remember(session)
            while await self._built.worker.run_once():
                pass
            await self._count(session, episode_id, counts)
        for owner in self._tenants.values():
            counting = context(self._built, owner, "get_memory_stats")
            stats = await self._built.services.recall.stats(counting)
            if any(vars(stats.backlog).values()):
                raise Invalid(f"The worker has not finished: {stats.backlog}.")
            counts["memories"] += stats.total
        return dict(counts)

    async def _remember(self, session: Session) -> str:
        self._clock.at += TICK
        submission = Submission(session.text, "general", source=Source(session_id=session.id))
        storing = context(self._built, self._tenants[session.corpus], "store_memory")
        return (await self._built.services.ingest.remember(storing, submission)).episode_id

    async def _count(self, session: Session, episode_id: str, counts: dict[str, int]) -> None:
        owner = self._tenants[session.corpus]
        async with self._built.store.transaction(owner, write=False) as tx:
            episode = await tx.episodes.get(episode_id)
            assert episode is not None
        places = self._places[episode_id] = session.places(episode.text)
        for turn in episode.turns:
            docs = frozenset(doc for span, doc in places if span.overlaps(turn.span))
            self._docs_of[turn_id(episode_id, turn.index)] = docs
        shown = [turn for turn in episode.turns if not turn.hidden]

        said = [span for span, _ in places]
        in_turns = _within(said, [turn.span for turn in episode.turns])
        visible = _within(in_turns, [turn.span for turn in shown])
        for name, count in {
            "docs": len(said),
            "bytes": len(episode.text.encode()),
            "turns": len(episode.turns),
            "passages": len(visible_passages(episode)),
            "docs without a turn": len(said) - len(in_turns),
            "docs hidden": len(in_turns) - len(visible),
        }.items():
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
            texts = [text for hit in answer.hits[:DELIVERED_HITS] for text in hit.texts]
            answers.append(
                Answer(
                    question,
                    found,
                    answer.evidence,
                    data.said_in(question.corpus, question.gold, "\n".join(texts)),
                    sum(map(len, texts)),
                )
            )
        if neighbours:
            # The search runs again, since the first hits leave those turns to later ones that are
            # hits too.
            wider = replace(query, limit=DELIVERED_HITS, neighbours=neighbours)
            answers = [await self._with_delivered(one, wider) for one in answers]
        return tuple(answers), degraded

    async def ask_elsewhere(self, data: DataSet, query: Query) -> tuple[float, ...]:
        """Return the evidence for questions in a corpus that has no answer to them."""
        # The evidence does not depend on the re-ranker.
        query = replace(query, without=query.without | {Step.RERANK})
        found = []
        for number, question in enumerate(data.elsewhere(), 1):
            if number % 20 == 0:
                self._say(f"question {number} without an answer")
            found.append((await self._search(question, query)).evidence)
        return tuple(found)

    async def _search(self, question: Question, query: Query) -> Searched:
        searching = context(self._built, self._tenants[question.corpus], "search_memories")
        asked = replace(query, text=question.text)
        return await self._built.services.recall.search(searching, asked, cite=True)

    async def _with_delivered(self, answer: Answer, query: Query) -> Answer:
        self._say(f"the turns around the hits of {answer.question.id}")
        docs: set[str] = set()
        for hit in (await self._search(answer.question, query)).hits:
            docs.update(self._found(hit).docs)
            for turn in hit.around:
                docs |= self._docs_of[turn.id]
        return replace(answer, delivered=frozenset(docs))

    def _found(self, hit: Hit) -> Found:
        cited = hit.item.citation
        places = self._places[cited.episode_id]
        docs = tuple(doc for span, doc in places if span.overlaps(cited.span))
        scores = hit.scores
        return Found(
            *(
                hit.item.id,
                hit.item.kind,
                scores.final,
                scores.signals["keyword"],
                scores.signals["cosine"],
                docs,
            )
        )


def _within(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """Return those of `spans` that overlap one of `others`."""
    return [span for span in spans if any(span.overlaps(one) for one in others)]
