"""A run of retrieval as tables for a person, as JSON for a script, and question by question."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from recall_server.bench.abstaining import Parted, parted
from recall_server.bench.retrieval import DELIVERED_HITS, RetrievalRun, disagreement
from recall_server.bench.retrieval_data import UNANSWERABLE
from recall_server.bench.retrieval_metrics import Estimate, estimates, measures
from recall_server.domain.search.abstention import WEAK_BELOW

# Whatever constant of the ranking was chosen by what it finds was chosen on these.
TUNED_ON = ("conv-26", "conv-30", "conv-41", "conv-42", "conv-43")
TUNED_ON_NAME = "the LoCoMo conversations"
ALL = "answerable"
# The same questions, asked of another corpus with the names of its people.
ELSEWHERE = "asked of another corpus"


def as_json(runs: list[RetrievalRun]) -> list[dict[str, Any]]:
    return [
        {
            "engine": run.engine,
            "profile": run.query.mode,
            "embedder": run.embedder,
            "limit": run.query.limit,
            "corpora": run.corpora,
            "tuned_on": TUNED_ON,
            "ingested": asdict(run.ingested),
            "degraded": run.degraded,
            "categories": {
                name: {"questions": questions, **{m: asdict(e) for m, e in estimated.items()}}
                for name, questions, estimated in _rows(run)
            },
            "neighbours": run.neighbours,
            "delivered": asdict(_delivered(run)) if run.neighbours else None,
            "weak_below": WEAK_BELOW,
            "unanswerable": {name: asdict(one) for name, one in _unanswerable(run)},
            "answered_unlike_" + runs[0].engine: disagreement(runs[0], run),
        }
        for run in runs
    ]


def rankings(runs: Sequence[RetrievalRun]) -> Iterator[str]:
    """A line of JSON for each question of each run: the docs it found, and the hits behind them."""
    for run in runs:
        for answer in run.answers:
            asked = answer.question
            line = {
                "engine": run.engine,
                "id": asked.id,
                "category": asked.category,
                "gold": asked.gold,
                "ranked": [{"id": doc, "score": at} for doc, at in answer.ranked],
                "hits": [asdict(hit) for hit in answer.found],
            }
            yield json.dumps(line) + "\n"


def show(run: RetrievalRun, console: Console) -> None:
    made = run.ingested
    console.print(
        f"\n[bold]{run.engine}[/bold]: retrieval, profile {run.query.mode}"
        f"{_without(run)}, embedder {run.embedder}, {run.query.limit} hits a search\n"
        f"handed in: {made.docs} docs in {made.sessions} sessions of {len(run.corpora)} corpora\n"
        f"found in them: {made.turns} turns; docs without a turn: {made.unmapped}, held back: "
        f"{made.hidden}\n"
        f"made of them: {made.memories} memories, which take the place of {made.covered_turns} "
        f"turns; docs found through memories only: {made.covered}, not at all: {made.lost}"
    )
    if run.degraded:
        console.print(f"[bold]degraded[/bold]: {run.degraded}")
    console.print(_table(run))
    if run.neighbours:
        console.print(
            f"{DELIVERED_HITS} hits with {run.neighbours} before and after each deliver "
            f"{_cell(_delivered(run), ' ')} of the evidence"
        )
    _show_unanswerable(run, console)


def _show_unanswerable(run: RetrievalRun, console: Console) -> None:
    for name, one in _unanswerable(run):
        console.print(
            f"without an answer, {name}: {one.questions} asked, AUC {one.auc:.2f} against those "
            f"with one; weak evidence, below {WEAK_BELOW:g}: {100 * one.weak:.1f} % of them, and "
            f"{100 * one.answerable_weak:.1f} % of those with one"
        )


def _unanswerable(run: RetrievalRun) -> Iterator[tuple[str, Parted]]:
    """Each kind of questions whose answer is not in memory."""
    answerable = [answer.evidence for answer in run.answers if answer.question.counts]
    kinds = {
        name: [a.evidence for a in run.answers if a.question.category == name]
        for name in sorted(UNANSWERABLE)
    }
    for name, evidence in {**kinds, ELSEWHERE: run.elsewhere}.items():
        if (one := parted(answerable, evidence)) is not None:
            yield name, one


def _without(run: RetrievalRun) -> str:
    parts = sorted(run.query.without)
    return f" without {', '.join(parts)}" if parts else ""


def show_agreement(runs: Sequence[RetrievalRun], console: Console) -> bool:
    """Whether two engines give the same items in the same order with the same scores."""
    one, other = runs
    unlike = disagreement(one, other)
    verdict = f"[bold]{len(unlike)} differ[/bold]: {', '.join(unlike[:10])}" if unlike else "all"
    console.print(
        f"\nquestions with the same ids, order and scores (1e-6) on {one.engine} and "
        f"{other.engine}, of {len(one.answers)}: {verdict}"
    )
    return not unlike


def explain(console: Console) -> None:
    console.print(
        "\nIn percent, below each its 95 % interval (bootstrap over questions). A doc is one turn; "
        "R@k (recall) is the share of a question's evidence among the first k hits, hit@10 whether "
        "any of it is among 10. Questions that name no evidence do not count, and "
        f"{', '.join(sorted(UNANSWERABLE))} ones not among the {ALL}.\n"
        f"Tuned on {TUNED_ON_NAME} {', '.join(TUNED_ON)}: on these the numbers flatter."
    )


def _table(run: RetrievalRun) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("category", min_width=11)
    table.add_column("asked", justify="right")
    rows = list(_rows(run))
    for heading in ("R@5", "R@10", "R@20", "hit@10", "NDCG@10", "MRR"):
        table.add_column(heading, justify="right")
    for name, questions, estimated in rows:
        table.add_row(name, str(questions), *(_cell(one, "\n") for one in estimated.values()))
    return table


def _rows(run: RetrievalRun) -> Iterator[tuple[str, int, dict[str, Estimate]]]:
    """All answerable questions together, then each category."""
    asked = [answer for answer in run.answers if answer.question.gold]
    groups = {ALL: [answer for answer in asked if answer.question.counts]}
    for answer in asked:
        groups.setdefault(answer.question.category, []).append(answer)
    for name, answers in groups.items():
        if answers:
            each = [measures([doc for doc, _ in a.ranked], a.question.gold) for a in answers]
            yield name, len(answers), estimates(each)


def _delivered(run: RetrievalRun) -> Estimate:
    """The share of the evidence that comes with ten hits and the turns around them."""
    answers = [answer for answer in run.answers if answer.question.counts]
    shares = [len(a.delivered & set(a.question.gold)) / len(set(a.question.gold)) for a in answers]
    return estimates([{"delivered": share} for share in shares])["delivered"]


def _cell(one: Estimate, gap: str) -> str:
    return f"{100 * one.mean:.1f}{gap}{100 * one.low:.1f}-{100 * one.high:.1f}"
