"""The one place where a plan becomes memory: check, apply, index."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from recall_server.domain.episode import Citation, Episode
from recall_server.domain.errors import Stale
from recall_server.domain.memory import Status
from recall_server.domain.plan import Add, Change, Forget, Plan, Reinforce, Supersede
from recall_server.domain.query import Item
from recall_server.domain.search.index_entry import Findable
from recall_server.domain.text.transcript import turn_at
from recall_server.services.memory import indexing
from recall_server.storage.index.words import Postings
from recall_server.storage.store import Transaction


@dataclass(frozen=True)
class Planned:
    """An episode that was kept knowing the plan, and the words that find those of its turns that
    no memory speaks for.
    """

    episode: Episode
    words: Postings


async def apply(
    tx: Transaction, plan: Plan, now: datetime, *, planned: Planned | None = None
) -> None:
    """Make the changes of `plan`, all within `tx`, and keep the indexes true to them; note who
    decided what no rule could.

    Raises `Stale` where a change does not find what it expects; nothing of the plan holds then,
    as the caller's transaction rolls back.
    """
    assert not plan.questions
    for change in plan.changes:
        await _apply(tx, change, now)
    begun, ended = _believed(plan)
    found = _found(plan, planned.episode) if planned else {}
    new = {memory_id: found[memory_id] for memory_id in begun - ended if memory_id in found}
    if planned:
        await indexing.show_new(tx, new, planned.words)
    await indexing.show(tx, begun - ended - new.keys())
    await indexing.hide(tx, ended - begun)
    for citation in plan.citations():
        if planned is None or citation.episode_id != planned.episode.id:
            await cover(tx, citation)
    for decision in plan.decisions:
        await tx.memories.note(decision)


async def _apply(tx: Transaction, change: Change, now: datetime) -> None:
    match change:
        case Add(memory, also):
            await tx.memories.add(memory)
            for citation in also:
                await tx.memories.cite(memory.id, citation)
        case Reinforce(memory_id, citation, counts):
            if not await tx.memories.reinforce(memory_id, counts=counts):
                raise Stale
            await tx.memories.cite(memory_id, citation)
        case Supersede(memory_id, by, valid_until):
            if not await tx.memories.retire(
                memory_id, Status.SUPERSEDED, now, superseded_by=by, valid_until=valid_until
            ):
                raise Stale
        case Forget(memory_id):
            if not await tx.memories.retire(memory_id, Status.FORGOTTEN, now):
                raise Stale


def _believed(plan: Plan) -> tuple[set[str], set[str]]:
    """The memories that the plan adds as active ones, and those that it retires."""
    begun, ended = set[str](), set[str]()
    for change in plan.changes:
        match change:
            case Add(memory, _) if memory.status is Status.ACTIVE:
                begun.add(memory.id)
            case Supersede(memory_id) | Forget(memory_id):
                ended.add(memory_id)
    return begun, ended


def _found(plan: Plan, episode: Episode) -> dict[str, Findable]:
    """What the memories are found by that the plan makes of the episode, as it will be read."""
    found: dict[str, Findable] = {}
    for change in plan.changes:
        if isinstance(change, Add) and change.memory.citation.episode_id == episode.id:
            memory = change.memory
            turn = turn_at(episode.turns, memory.citation.span.start)
            if turn is None:
                found[memory.id] = Findable(memory.searchable)
                continue
            said = episode.text[turn.span.start : turn.span.end]
            found[memory.id] = Findable(memory.searchable, turn.speaker, said)
    return found


async def cover(tx: Transaction, citation: Citation) -> None:
    """Take the turns that a memory cites out of the search: the memory speaks for them now."""
    covered = await tx.episodes.open_at(citation)
    if covered:
        await close(tx, covered, "covered")


async def close(
    tx: Transaction, turns: Sequence[Item], state: Literal["covered", "hidden"]
) -> None:
    """Take open turns out of the search, and of all that serves it."""
    ids = [turn.id for turn in turns]
    await tx.episodes.close(ids, state)
    await indexing.hide(tx, ids)
