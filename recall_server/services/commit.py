"""The one place where a plan becomes memory: check, apply, index."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from recall_server.domain.errors import Stale
from recall_server.domain.model import Citation, Item, Status
from recall_server.domain.plan import Add, Change, Forget, Plan, Reinforce, Supersede
from recall_server.services import finding
from recall_server.storage.store import Transaction


async def apply(tx: Transaction, plan: Plan, now: datetime, *, planned: str = "") -> None:
    """Make the changes of `plan`, all within `tx`, and keep the indexes true to them; note who
    decided what no rule could. `planned` is the episode that was kept knowing the plan, if any.

    Raises `Stale` where a change does not find what it expects; nothing of the plan holds then,
    as the caller's transaction rolls back.
    """
    assert not plan.questions
    for change in plan.changes:
        await _apply(tx, change, now)
    begun, ended = _believed(plan)
    await finding.show(tx, begun - ended)
    await finding.hide(tx, ended - begun)
    for citation in plan.citations():
        if citation.episode_id != planned:
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
    await finding.hide(tx, ids)
