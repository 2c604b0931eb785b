"""Turns that only erased memories cited: search finds them by their own words again, and memories
are made of them anew.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from recall_server.domain.episode import Span
from recall_server.services.memory import indexing
from recall_server.services.memory.ingest import EXTRACT
from recall_server.storage.rows import span
from recall_server.storage.store import Transaction

SpokenTurns = Mapping[str, tuple[str, int]]
"""Turns by their ids: the episode of each, and its place there."""


async def cited_only_by(
    tx: Transaction, memory_ids: Collection[str], gone: Collection[str]
) -> SpokenTurns:
    """The turns that no other memory cites, but those in episodes that are `gone`."""
    lost: dict[str, list[Span]] = {}
    for row in await tx.erasures.citations(memory_ids):
        if row["episode_id"] not in gone:
            lost.setdefault(row["episode_id"], []).append(span(row))
    still: dict[str, list[Span]] = {}
    for row in await tx.erasures.citations_in(lost):
        if row["memory_id"] not in memory_ids:
            still.setdefault(row["episode_id"], []).append(span(row))
    found: dict[str, tuple[str, int]] = {}
    for turn in await tx.sources.turns(lost):
        episode_id, where = turn["episode_id"], span(turn)
        if _touched(where, lost.get(episode_id)) and not _touched(where, still.get(episode_id)):
            found[turn["id"]] = (episode_id, turn["position"])
    return found


async def show_turns(tx: Transaction, turns: SpokenTurns) -> None:
    """Let search find those of these turns that a memory covered, which is erased by now."""
    opened = await tx.sources.uncover(list(turns))
    await indexing.show_again(tx, opened)


async def restore_turns(
    tx: Transaction, turns: SpokenTurns, new_id: Callable[[str], str], now: datetime
) -> None:
    """Add the jobs that make memories of these turns."""
    for episode_id, turn in sorted(turns.values()):
        payload = {"episode_id": episode_id, "turn": turn}
        await tx.jobs.add(new_id("job"), EXTRACT, payload, now)


def _touched(where: Span, spans: Sequence[Span] | None) -> bool:
    return any(where.overlaps(one) for one in spans or ())
