"""What the demo shows, one function a scene; each asks over MCP and prints what it is told."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from rich.table import Column

from recall_server.demo import connecting
from recall_server.demo.agent import Agent
from recall_server.demo.page import Page, cited, day, fact, shown
from recall_server.demo.story import Part
from recall_server.domain.errors import MemoryNotFound
from recall_server.domain.memory import MemoryType
from recall_server.domain.query import Query
from recall_server.domain.search.ranking import weights
from recall_server.storage.tables.audit import AuditRecord

Json = dict[str, Any]
STORES_SHOWN = 8
MEMORIES_SHOWN = 12
MEMORIES_READ = 400
HITS_SHOWN = 2
LINES_SHOWN = 11
POLL_S = 0.05
WAIT_S = 30.0
CHARS_A_SECOND = 2_000  # far less than a slow machine extracts; only bounds the wait


async def store(page: Page, agent: Agent, parts: Sequence[Part]) -> None:
    page.heading(
        "Store",
        "Each session goes in with a topic and an idempotency key. The answer does not wait for "
        "the extraction; from then on the text is kept, and found by its words.",
    )
    rows = []
    first = ""
    for part in parts:
        began = perf_counter()
        answer = await _stored(agent, part)
        took = f"{(perf_counter() - began) * 1000:.0f} ms"
        first = first or answer["job_id"]
        said = day(part.said_at.isoformat() if part.said_at else None)
        rows.append((shown(part.topic, 30), said, str(part.turns), answer["job_id"], took))
    columns = [Column(name) for name in ("topic", "said", "turns", "job", "answered in")]
    page.table(columns, rows[:STORES_SHOWN])
    if len(rows) > STORES_SHOWN:
        page.line(f"... and {len(rows) - STORES_SHOWN} more.")
    again = await _stored(agent, parts[0])
    job = "the same job" if again["job_id"] == first else "another job"
    page.line(f"The first one again, as after a lost answer: cached={again['cached']}, {job}.")


async def _stored(agent: Agent, part: Part) -> Json:
    answer = await agent.call(
        "store_memory", text=part.text, topic=part.topic, idempotency_key=part.key
    )
    return {"cached": False, **answer}


async def extract(page: Page, agent: Agent, parts: Sequence[Part]) -> list[Json]:
    """Waits for the worker, and shows what it made: all memories, up to `MEMORIES_READ`."""
    began = perf_counter()
    done = await _settled(page, agent, parts)
    took = perf_counter() - began
    stats = await agent.call("get_memory_stats")
    memories = sorted(await agent.memories(MEMORIES_READ), key=_place)
    kinds = [f"{n:,} {kind}{'s' * (n != 1)}" for kind, n in stats["by_type"].items() if n]
    active = "1 active memory" if stats["total"] == 1 else f"{stats['total']:,} active memories"
    page.heading(
        "What was made of it",
        f"From {sum(part.turns for part in parts):,} turns came {active} in {took:.1f} s "
        f"({', '.join(kinds) or 'none'}). Questions, greetings, ifs and maybes "
        "stay text: searchable, but nothing to believe.",
    )
    if not done:
        page.line(f"The worker is not done after {took:.0f} s; this is what there is so far.")
    if stats["failed_extractions"]:
        page.line(f"{stats['failed_extractions']} texts could not be extracted.")
    if memories:
        _list(page, _picked(memories), stats["total"])
    else:
        page.line("Nothing in it is plainly stated; the text itself can still be searched.")
    return memories


async def _settled(page: Page, agent: Agent, parts: Sequence[Part]) -> bool:
    """Whether all is extracted and embedded: without its vectors, answers differ between runs."""
    deadline = perf_counter() + WAIT_S + sum(len(part.text) for part in parts) / CHARS_A_SECOND
    with page.progress() as progress:
        bar = progress.add_task("Extracting", total=len(parts))
        while perf_counter() < deadline:
            stats = await agent.call("get_memory_stats")
            pending = stats["pending_extractions"]
            progress.update(bar, completed=len(parts) - pending)
            if not pending and not stats["pending_embeddings"]:
                return True
            await asyncio.sleep(POLL_S)
    return False


def _picked(memories: Sequence[Json]) -> list[Json]:
    """The weightiest and newest of each type in turn, in the order in which they were said."""
    of_type = [
        sorted((m for m in reversed(memories) if m["type"] == kind), key=lambda m: -m["importance"])
        for kind in MemoryType
    ]
    rounds = max(map(len, of_type))
    turns = [one[number] for number in range(rounds) for one in of_type if number < len(one)]
    return sorted(turns[:MEMORIES_SHOWN], key=_place)


def _place(memory: Json) -> tuple[str, int, str]:
    """Where in the conversation it was said; several may come from the same words."""
    return memory["source"]["said_at"], memory["source"]["start"], memory["text"]


def _list(page: Page, memories: Sequence[Json], total: int) -> None:
    columns = [
        Column("type", no_wrap=True),
        Column("said", no_wrap=True),
        Column("memory", max_width=41),
        Column("entity · attribute · value", max_width=33),
    ]
    page.table(
        columns,
        [
            (m["type"], day(m["source"]["said_at"]), shown(m["text"], 72), fact(m, 60))
            for m in memories
        ],
    )
    if total > len(memories):
        page.line(f"... and {total - len(memories):,} more.")


async def change(page: Page, agent: Agent, memories: Sequence[Json]) -> None:
    chains = []
    for memory in memories:
        answer = await agent.call("inspect_memories", memory_id=memory["id"])
        if answer["total"] > 1:
            chains.append(answer["memories"])
    if not chains:
        page.heading("A change of mind", "Nothing in this text superseded anything before it.")
        return
    page.heading(
        "A change of mind",
        f"Later words put {len(chains)} memories in the place of older ones. One, with its whole "
        "history: only the last is found by a search, and each cites the words it rests on.",
    )
    for memory in max(chains, key=_plainness):
        until = day(memory["valid_until"]) if memory["valid_until"] else "this day"
        span = f"true {day(memory['valid_from'])} to {until}"
        page.line(f"{memory['status']:<12}{span:<34}{fact(memory, page.width - 47)}", style="bold")
        page.line(f"{'':12}{cited(memory['source'], page.width - 12)}")


def _plainness(chain: Sequence[Json]) -> tuple[int, bool, bool, int]:
    """Long, one value in place of another, of the same attribute, and brief is easiest to read."""
    attributes = {memory["attribute"] for memory in chain}
    denied = any(memory["negated"] for memory in chain)
    return len(chain), not denied, len(attributes) == 1, -sum(len(m["text"]) for m in chain)


async def search(page: Page, agent: Agent, questions: Sequence[str]) -> None:
    names = ("rrf", "recency", "importance", "use")
    parts = zip(names, weights(Query("").recency_weight), strict=True)
    page.heading(
        "Search",
        f"score = {' + '.join(f'{weight:.2f} {name}' for name, weight in parts)}; rrf joins the "
        "ranks by keyword (kw) and by meaning (mean). Asked to explain, an answer tells each part "
        "of its scores, and the words behind them.",
    )
    page.line(" score   rrf  kw  mean   rec   imp   use  found", style="dim")
    for question in questions:
        answer = await agent.call("search_memories", query=question, limit=HITS_SHOWN, explain=True)
        degraded = f" ({answer['degraded']})" if answer["degraded"] else ""
        page.line(f"? {shown(question, page.width - 4)}{degraded}", style="bold")
        for rank, hit in enumerate(answer["results"]):
            page.line(f"{_scores(hit['scores'])}  {shown(hit['text'], page.width - 44)}")
            if rank == 0:
                page.line(f"{'':14}cites {cited(hit['source'], page.width - 20)}")
        if not answer["results"]:
            page.line("  nothing")


def _scores(scores: Json) -> str:
    ranks = [scores["keyword_rank"], scores["cosine_rank"]]
    keyword, meaning = (f"#{rank}" if rank else "-" for rank in ranks)
    return (
        f"{scores['final']:6.3f} {scores['rrf']:5.2f} {keyword:>3} {meaning:>5} "
        f"{scores['recency']:5.2f} {scores['importance']:5.2f} {scores['strength']:5.2f}"
    )


async def stranger(page: Page, agent: Agent, question: str, memories: Sequence[Json]) -> None:
    page.heading(
        "Another tenant",
        "The token alone says whose memory it is; no argument can name another's. A second token:",
    )
    answer = await agent.call("search_memories", query=question)
    page.line(f'search "{shown(question, 60)}": {answer["total"]} results')
    if memories:
        foreign = await _refusal(agent, memories[0]["id"])
        unknown = await _refusal(agent, "mem_that_nobody_has")
        page.line(f"inspect an id of the first tenant: {foreign}; an id that nobody has: {unknown}")


async def _refusal(agent: Agent, memory_id: str) -> str:
    try:
        answer = await agent.call("inspect_memories", memory_id=memory_id)
    except MemoryNotFound as error:
        return error.code
    return f"{answer['total']} memories"


def book(page: Page, records: Sequence[AuditRecord]) -> None:
    errors = sum(record.code is not None for record in records)
    page.heading(
        "The book",
        "Every operation wrote one line in the transaction of its effect: who, what, how it ended; "
        f"never what was said. {len(records):,} lines so far, {errors} of them errors. The newest "
        "of each kind, as `recall audit tail` shows them:",
    )
    newest: dict[tuple[str, ...], AuditRecord] = {}
    times: Counter[tuple[str, ...]] = Counter()
    for record in records:
        kind = (record.namespace, record.operation, record.code or "")
        newest.setdefault(kind, record)
        times[kind] += 1
    lines = sorted(list(newest.items())[:LINES_SHOWN], key=lambda pair: pair[1].at)
    names = ("at", "namespace", "door", "operation", "outcome", "ms", "counts", "times")
    page.table(
        [Column(name, no_wrap=True) for name in names],
        [(*_line(record), str(times[kind])) for kind, record in lines],
    )


def _line(record: AuditRecord) -> tuple[str, ...]:
    counts = " ".join(f"{key}={number}" for key, number in record.counts.items() if number)
    return (
        f"{record.at:%H:%M:%S}",
        record.namespace,
        record.protocol,
        record.operation,
        record.code or str(record.outcome),
        f"{record.milliseconds:.1f}",
        shown(counts, 22),
    )


def connect(page: Page, url: str, token: str, why: str) -> None:
    page.heading("Connect", why)
    for place, text in connecting.configurations(url, token):
        page.line(place, style="bold")
        page.code(text)
