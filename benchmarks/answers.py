"""Count the answers that a default search shows: for texts that people write, and for statements of
which later ones overwrite earlier ones. The same run ranks the lines of the texts by .3 BM25 and .7
of the same vectors.
"""

import random
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from pydantic import TypeAdapter

from benchmarks.databases import scratch, settings
from benchmarks.fill import Say, context, tenant
from benchmarks.report import Check, Figure, Report, Row
from benchmarks.retrieval_data import read_lines
from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain.errors import Invalid
from recall_server.domain.ids import Namespace, namespace
from recall_server.domain.query import Query
from recall_server.domain.search.ranking import bm25plus
from recall_server.domain.text.terms import terms
from recall_server.integrations.embeddings import Embedder, Vectors
from recall_server.services.memory.ingest import Submission
from recall_server.services.search.recall import Found

SEED = 20261122
LIMIT = 5
CURRENCY_LIMIT = 10
PAGE = 200
PROGRESS_EACH = 20
KEYWORD_SHARE = 0.3
# The minimums for the texts that are given for tuning, in percent; the characters of an answer.
ALONE_MIN, TOGETHER_MIN, WEAK_MIN, CAUGHT_MIN, CHARS_MAX = 97, 93, 50, 60, 900
# The minimums for statements, by the size of the set: the first hit, and among ten.
FIRST_MIN = {"6k": 95, "32k": 92}
AMONG_TEN_MIN = 98
ANSWERS_NOTES = (
    "In percent. Shown: the pattern of the question stands in what is shown of a hit. Flagged "
    "weak: of the questions whose answer is not shown, those with weak evidence. Caught: questions "
    "whose pattern stands in a memory of their text. Lines: the lines of the texts, by .3 BM25 and "
    ".7 of the vectors of the product's embedder."
)
CURRENCY_NOTES = (
    "In percent: an answer stands in the first hit, and in one of the first ten. Each statement is "
    "handed in as a text of its own, in order."
)


@dataclass(frozen=True)
class Question:
    """A question about a text, and the pattern of any string that shows its answer."""

    text: str
    question: str
    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Statement:
    """A statement that a later one may overwrite."""

    text: str


@dataclass(frozen=True)
class CurrentQuestion:
    """A question about statements, and its answers: any of them is right."""

    question: str
    answers: Sequence[str]


@dataclass
class Tally:
    """Counts over questions."""

    questions: int = 0
    shown: int = 0
    missed_weak: int = 0
    chars: int = 0
    lines_shown: int = 0
    lines_chars: int = 0
    missed: list[str] = field(default_factory=list)

    def add(self, asked: Question, found: Found, lines: Sequence[str]) -> None:
        texts = [text for hit in found.hits for text in hit.texts]
        self.questions += 1
        self.chars += sum(map(len, texts))
        self.lines_chars += sum(map(len, lines))
        self.lines_shown += any(map(asked.pattern.search, lines))
        if any(map(asked.pattern.search, texts)):
            self.shown += 1
        else:
            self.missed_weak += found.weak_evidence
            self.missed.append(asked.question)

    @property
    def share(self) -> float:
        return 100 * self.shown / self.questions

    def figures(self) -> dict[str, Figure]:
        missed = self.questions - self.shown
        return {
            "questions": self.questions,
            "shown": self.share,
            "characters": self.chars / self.questions,
            "missed, flagged weak": 100 * self.missed_weak / missed if missed else None,
            "lines: shown": 100 * self.lines_shown / self.questions,
            "lines: characters": self.lines_chars / self.questions,
        }


async def answers(
    engine: str,
    say: Say,
    *,
    data: Annotated[
        Path,
        typer.Option(
            help="Folder with texts/*.txt and questions.jsonl (text, question, pattern).",
            file_okay=False,
        ),
    ],
    db_url: str | None = None,
) -> Report:
    """Answers that a default search shows of texts handed in, beside the plain lines of them."""
    texts = _texts(data)
    asked = _questions(data, texts)
    alone, together, caught, memories = Tally(), Tally(), 0, 0

    async def measure(built: Application) -> None:
        nonlocal caught, memories
        for number, (name, text) in enumerate(texts.items(), 1):
            say(f"{engine}: text {number} of {len(texts)}")
            owner = await _holding(built, f"text-{number}", [text])
            mine = [one for one in asked if one.text == name]
            plain = await _Baseline.read(built, text)
            for one in mine:
                found = await _search(built, owner, one.question, LIMIT)
                alone.add(one, found, await plain.best(one.question))
            kept = await _memories(built, owner)
            memories += len(kept)
            caught += sum(any(map(one.pattern.search, kept)) for one in mine)
        owner = await _holding(built, "all", list(texts.values()))
        plain = await _Baseline.read(built, "\n".join(texts.values()))
        for one in asked:
            found = await _search(built, owner, one.question, LIMIT)
            together.add(one, found, await plain.best(one.question))

    await _on_scratch(engine, db_url, measure)
    missed = together.questions + alone.questions - together.shown - alone.shown
    weak = together.missed_weak + alone.missed_weak
    checks = [
        Check("shown, each text alone", alone.share, ALONE_MIN, at_least=True),
        Check("shown, all together", together.share, TOGETHER_MIN, at_least=True),
        Check("characters of an answer", together.chars / together.questions, CHARS_MAX),
        Check("facts caught by memories", 100 * caught / len(asked), CAUGHT_MIN, at_least=True),
    ]
    if missed:
        checks.append(
            Check("of what is missed, flagged weak", 100 * weak / missed, WEAK_MIN, at_least=True)
        )
    rows = [Row("", "alone", alone.figures()), Row("", "together", together.figures())]
    facts: dict[str, Figure] = {
        "texts": len(texts),
        "memories": memories,
        "not shown": "; ".join(dict.fromkeys([*alone.missed, *together.missed])) or "-",
    }
    return Report("answers", engine, rows, checks, facts, ANSWERS_NOTES)


async def currency(
    engine: str,
    say: Say,
    *,
    data: Annotated[
        Path,
        typer.Option(
            help="Folder with facts-SIZE.jsonl (text) and questions-SIZE.jsonl (question, "
            "answers).",
            file_okay=False,
        ),
    ],
    db_url: str | None = None,
) -> Report:
    """Count how often the newest of statements that overwrite each other is found first."""
    rows, checks = [], []
    for size in _sizes(data):
        statements = read_lines(data / f"facts-{size}.jsonl", TypeAdapter(Statement))
        asked = read_lines(data / f"questions-{size}.jsonl", TypeAdapter(CurrentQuestion))
        right: list[list[bool]] = []
        measure = partial(
            _ask_current,
            statements=[one.text for one in statements],
            asked=asked,
            right=right,
            on_progress=partial(_say_size, say, f"{engine}, {size}"),
        )
        await _on_scratch(engine, db_url, measure)
        first = 100 * sum(one[:1] == [True] for one in right) / len(asked)
        among = 100 * sum(map(any, right)) / len(asked)
        figures: dict[str, Figure] = {"statements": len(statements), "questions": len(asked)}
        rows.append(Row("", size, {**figures, "first": first, "among ten": among}))
        if size in FIRST_MIN:
            checks.append(Check(f"{size}: first hit", first, FIRST_MIN[size], at_least=True))
        checks.append(Check(f"{size}: among ten", among, AMONG_TEN_MIN, at_least=True))
    return Report("currency", engine, rows, checks, notes=CURRENCY_NOTES)


def _say_size(say: Say, size: str, done: str) -> None:
    say(f"{size}: {done}")


async def _ask_current(
    built: Application,
    *,
    statements: Sequence[str],
    asked: Sequence[CurrentQuestion],
    right: list[list[bool]],
    on_progress: Say,
) -> None:
    """For each question, add to `right` which of its hits have an answer."""
    owner = await _holding(built, "statements", statements, on_progress)
    for one in asked:
        found = await _search(built, owner, one.question, CURRENCY_LIMIT)
        texts = [_plain(hit.text) for hit in found.hits]
        right.append([any(_plain(answer) in text for answer in one.answers) for text in texts])


@dataclass(frozen=True)
class _Baseline:
    """The lines of a text, ranked by their words and by their vectors."""

    embedder: Embedder
    lines: Sequence[str]
    vectors: Vectors

    @classmethod
    async def read(cls, built: Application, text: str) -> "_Baseline":
        assert built.embedder is not None
        lines = [line for line in text.splitlines() if line.strip()]
        return cls(built.embedder, lines, await built.embedder.embed(lines))

    async def best(self, question: str) -> list[str]:
        (vector,) = await self.embedder.embed([question])
        keyword = np.array(bm25plus(terms(question), [terms(line) for line in self.lines]))
        cosine = self.vectors @ vector
        scores = KEYWORD_SHARE * keyword / max(keyword.max(), 1e-9)
        scores += (1 - KEYWORD_SHARE) * (cosine - cosine.min()) / max(float(np.ptp(cosine)), 1e-9)
        return [self.lines[place] for place in np.argsort(-scores, kind="stable")[:LIMIT]]


async def _on_scratch(
    engine: str, db_url: str | None, measure: Callable[[Application], Awaitable[None]]
) -> None:
    with scratch(engine, db_url) as database:
        async with open_application(
            settings(database),
            random_bytes=random.Random(SEED).randbytes,  # noqa: S311 - ids must repeat
        ) as built:
            await measure(built)


async def _holding(
    built: Application, name: str, texts: Sequence[str], on_progress: Say = lambda _: None
) -> Namespace:
    """Yield a new namespace in which the texts were stored, with all jobs done."""
    await tenant(built, name)
    owner = namespace(name)
    for number, text in enumerate(texts, 1):
        submission = Submission(text, "general", idempotency_key=f"text {number}")
        acting = context(built, owner, "store_memory")
        await built.services.ingest.remember(acting, submission)
        while await built.worker.run_once():
            pass
        if number % PROGRESS_EACH == 0:
            on_progress(f"text {number:,} of {len(texts):,}")
    return owner


async def _search(built: Application, owner: Namespace, question: str, limit: int) -> Found:
    acting = context(built, owner, "search_memories")
    return await built.services.recall.search(acting, Query(question, limit=limit))


async def _memories(built: Application, owner: Namespace) -> list[str]:
    page = await built.services.recall.inspect(
        context(built, owner, "inspect_memories"), limit=PAGE, offset=0, type_="", topic=""
    )
    return [memory.text for memory in page.memories]


def _texts(data: Path) -> dict[str, str]:
    """Return the texts by the first part of their names."""
    files = sorted((data / "texts").glob("*.txt"))
    if not files:
        raise Invalid(f"{data / 'texts'} has no *.txt.")
    return {file.stem.split("_")[0]: file.read_text(encoding="utf-8") for file in files}


def _sizes(data: Path) -> list[str]:
    sizes = sorted(path.stem.removeprefix("facts-") for path in data.glob("facts-*.jsonl"))
    if not sizes:
        raise Invalid(f"{data} has no facts-*.jsonl.")
    return sizes


def _questions(data: Path, texts: Collection[str]) -> Sequence[Question]:
    """Return the questions, of which each must be about one of these texts."""
    found = read_lines(data / "questions.jsonl", TypeAdapter(Question))
    if unknown := sorted({one.text for one in found}.difference(texts)):
        raise Invalid(f"questions.jsonl names texts that are not there: {', '.join(unknown)}.")
    return found


def _plain(text: str) -> str:
    """Return a text without case and punctuation."""
    return " ".join(re.sub(r"\W+", " ", text.casefold()).split())
