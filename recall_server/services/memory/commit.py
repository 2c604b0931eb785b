"""Applies plans: the only code that changes memories. Checks, applies and indexes."""

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
    """An episode that was stored together with its plan, and the postings of the turns that no
    memory of the plan covers.
    """

    episode: Episode
    words: Postings


async def apply(
    tx: Transaction, plan: Plan, now: datetime, *, planned: Planned | None = None
) -> None:
    """Make the changes of `plan` within `tx`, update the indexes, and store the decisions.

    Raises `Stale` if a change does not find what it expects; the caller's transaction rolls back.
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
    """Return the ids that the plan adds as active, and those that it retires."""
    begun, ended = set[str](), set[str]()
    for change in plan.changes:
        match change:
            case Add(memory, _) if memory.status is Status.ACTIVE:
                begun.add(memory.id)
            case Supersede(memory_id) | Forget(memory_id):
                ended.add(memory_id)
    return begun, ended


def _found(plan: Plan, episode: Episode) -> dict[str, Findable]:
    """Return the index entries of the memories that the plan makes from the episode."""
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
    """Remove the turns that a memory cites from search: the memory represents them now."""
    covered = await tx.episodes.open_at(citation)
    if covered:
        await close_turns(tx, covered, "covered")


async def close_turns(
    tx: Transaction, turns: Sequence[Item], state: Literal["covered", "hidden"]
) -> None:
    """Remove open turns from search and from all indexes."""
    ids = [turn.id for turn in turns]
    await tx.episodes.close(ids, state)
    await indexing.hide(tx, ids)
