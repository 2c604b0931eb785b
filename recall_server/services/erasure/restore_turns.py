"""What only memories that go have spoken for is found by its own words again, and read anew."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from recall_server.domain.episode import Span
from recall_server.services.memory import indexing
from recall_server.services.memory.ingest import EXTRACT
from recall_server.storage.rows import span
from recall_server.storage.store import Transaction

SpokenTurns = Mapping[str, tuple[str, int]]
"""Turns by their ids: the episode of each, and its place there."""


async def spoken_for_by(
    tx: Transaction, memory_ids: Collection[str], gone: Collection[str]
) -> SpokenTurns:
    """The turns that no other memory speaks for, but those in episodes that are `gone`."""
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


async def reopen(tx: Transaction, turns: SpokenTurns) -> None:
    """Let search find those of these turns that a memory covered; it is gone by now."""
    opened = await tx.sources.uncover(list(turns))
    await indexing.show_again(tx, opened)


async def read_again(
    tx: Transaction, turns: SpokenTurns, new_id: Callable[[str], str], now: datetime
) -> None:
    """Promise to make memories of these turns."""
    for episode_id, turn in sorted(turns.values()):
        payload = {"episode_id": episode_id, "turn": turn}
        await tx.jobs.add(new_id("job"), EXTRACT, payload, now)


def _touched(where: Span, spans: Sequence[Span] | None) -> bool:
    return any(where.overlaps(one) for one in spans or ())
