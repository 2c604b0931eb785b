"""When a claim ceased to hold, and which claim ended it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from recall_server.domain.memory import Memory, Status
from recall_server.services.memory.beliefs import Beliefs


def outdated(memory: Memory, by: Memory) -> Memory:
    """Return a claim as history that another one ended."""
    return replace(
        memory,
        status=Status.SUPERSEDED,
        superseded_by=by.id,
        retired_at=memory.recorded_at,
        valid_until=end_of(memory, by),
    )


def end_of(old: Memory, new: Memory) -> datetime:
    """Return when the older claim ceased to hold: at the start of the newer claim, if that is after
    its own start, else when the newer one was said; never before its own start.
    """
    ended = new.valid_from if new.valid_from > old.valid_from else new.said_at
    return max(ended, old.valid_from)


async def neighbours(
    memory: Memory, ending: Sequence[Memory], beliefs: Beliefs
) -> tuple[Memory, list[Memory]]:
    """Return the claim that ended a late report, and the claims that it ended. `ending`: the later
    claims that are believed. Claims that are history by now count too, so that the order in which
    claims arrive does not matter.
    """
    mine, history = beliefs.trust(memory), await beliefs.superseded(memory)
    await beliefs.load_witnesses(history)
    later = [one for one in history if one.said_at > memory.said_at and beliefs.trust(one) >= mine]
    earlier = [
        one
        for one in history
        if one.said_at < memory.said_at
        and beliefs.trust(one) <= mine
        and one.valid_until is not None
        and end_of(one, memory) < one.valid_until
    ]
    return min([*ending, *later], key=lambda one: (one.said_at, one.id)), earlier
