"""Proposals: changes that wait until somebody accepts, edits or rejects them. An accepted one is
reconciled like any other statement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from recall_server.domain.context import Context, Runtime
from recall_server.domain.errors import Invalid, NotWaiting, ReviewNotFound
from recall_server.domain.intents import Intent
from recall_server.domain.memory import BELIEVED, FINDABLE, Memory, Status
from recall_server.domain.permissions import Rights
from recall_server.domain.plan import Change, Forget, Plan
from recall_server.domain.proposal import Proposal, ProposalKind
from recall_server.services.memory import commit, reconcile
from recall_server.services.memory.embedding import promise_vectors
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Intents, Wish
from recall_server.storage.store import Store, Transaction

# How many proposals are read at once; some of them may be outside of the access scope.
PAGE = 100
_WAITING = frozenset({Status.FORGOTTEN, Status.QUARANTINED})


@dataclass(frozen=True)
class Proposed:
    """A proposal with the memories that it would add, and those it would replace or forget."""

    proposal: Proposal
    new: tuple[Memory, ...]
    targets: tuple[Memory, ...]


@dataclass(frozen=True)
class Proposals:
    """Lists proposals, and answers each once."""

    store: Store
    runtime: Runtime
    intents: Intents
    embeds: bool

    async def waiting(self, context: Context, *, limit: int) -> list[Proposed]:
        """Return the open proposals that are wholly in the access scope, oldest first."""
        found: list[Proposed] = []
        offset = 0
        async with self.store.view(context) as tx:
            while page := await tx.proposals.page(limit=PAGE, offset=offset):
                offset += PAGE
                ids = {one for proposal in page for one in (*proposal.new, *proposal.targets)}
                known = await tx.memories.get(sorted(ids))
                for proposal in page:
                    proposed = _proposed(proposal, known)
                    if proposed is not None and _is_open(proposed):
                        found.append(proposed)
                    if len(found) == limit:
                        return found
        return found

    async def accept(self, context: Context, rights: Rights, proposal_id: str) -> None:
        """Make the change that is proposed. Raises `ReviewNotFound` if this caller can see no
        proposal with this id, `NotWaiting` if it was answered before or its target is gone, and
        `InsufficientScope`.
        """
        async with self.store.change(context) as tx:
            await tx.lock()
            now = self.runtime.now()
            proposed = await self._close(context, tx, rights, proposal_id, "accept", now)
            for plan in await _plans(tx, proposed, now):
                await commit.apply(tx, plan, now)
                await self.intents.ingest.judgements.promise(tx, plan, context.entry.began_by)
                context.entry.ids += plan.ids()
                for name, number in plan.counts().items():
                    context.entry.counts[name] = context.entry.counts.get(name, 0) + number
            if self.embeds:
                ids = [one.id for one in (*proposed.new, *proposed.targets)]
                words = await tx.memories.citations(ids)
                await promise_vectors(tx, self.runtime, {one.episode_id for one in words})
        self.runtime.wake()

    async def reject(self, context: Context, rights: Rights, proposal_id: str) -> None:
        """Close a proposal without its change: the memories it would have added stay hidden. Raises
        what `accept` raises.
        """
        async with self.store.change(context) as tx:
            await tx.lock()
            await self._close(context, tx, rights, proposal_id, "reject", self.runtime.now())
            context.entry.counts["rejected"] = 1

    async def edit(self, context: Context, rights: Rights, proposal_id: str, text: str) -> None:
        """Make the change with other words than those proposed; they count as the caller's own.
        Raises what `accept` raises, and `Invalid` if the text is empty or the proposal adds
        nothing.
        """
        async with self.store.view(context) as tx:
            proposed = await _read(tx, proposal_id)
        _require(proposed, rights)
        if not proposed.new:
            raise Invalid("Only what is to be remembered can be edited. Accept or reject this one.")
        if not text.strip():
            raise Invalid("edit needs text: the words that take the place of those proposed.")
        memory = proposed.new[0]
        target = proposed.targets[0].id if proposed.targets else ""
        await self.intents.submit(
            context,
            Wish(
                Intent.CORRECT if target else Intent.REMEMBER,
                Submission(text, memory.topic, container=memory.container),
                target,
                memory.type,
                by_hand=bool(target),
                edits=proposal_id,
            ),
        )

    async def _close(  # noqa: PLR0917  # the answer, and to what
        self,
        context: Context,
        tx: Transaction,
        rights: Rights,
        proposal_id: str,
        choice: str,
        now: datetime,
    ) -> Proposed:
        proposed = await _read(tx, proposal_id)
        _require(proposed, rights)
        await tx.proposals.close(proposal_id, choice, context.entry.by, now)
        context.entry.ids.append(proposal_id)
        return proposed


async def _plans(tx: Transaction, proposed: Proposed, now: datetime) -> Sequence[Plan]:
    """Return the proposed changes, reconciled with what is known now, one plan per memory."""
    if proposed.proposal.kind is ProposalKind.FORGET:
        forgotten: list[Change] = [Forget(one.id) for one in proposed.targets]
        return [Plan(tuple(forgotten))]
    corrected = proposed.targets[0] if proposed.targets else None
    settling = await reconcile.settling(tx)
    first, *others = proposed.new
    plans = [await reconcile.restored(tx, first, now, settling, corrected)]
    return [*plans, *[await reconcile.restored(tx, one, now, settling) for one in others]]


async def _read(tx: Transaction, proposal_id: str) -> Proposed:
    """Return the proposal, if it is wholly in the access scope. Raises `ReviewNotFound`."""
    proposal = await tx.proposals.get(proposal_id)
    known = {}
    if proposal is not None:
        known = await tx.memories.get([*proposal.new, *proposal.targets])
    proposed = _proposed(proposal, known) if proposal else None
    if proposed is None:
        raise ReviewNotFound
    return proposed


def _proposed(proposal: Proposal, known: dict[str, Memory]) -> Proposed | None:
    """Return the proposal with its memories; None if one is outside of the access scope."""
    if not known.keys() >= {*proposal.new, *proposal.targets}:
        return None
    new = tuple(known[one] for one in proposal.new)
    return Proposed(proposal, new, tuple(known[one] for one in proposal.targets))


def _is_open(proposed: Proposed) -> bool:
    """True if it can be accepted: nobody has answered, and its targets are still there."""
    proposal = proposed.proposal
    standing = FINDABLE if proposal.kind is ProposalKind.FORGET else BELIEVED
    return (
        proposal.closed_at is None
        and proposal.whole
        and all(one.status in _WAITING for one in proposed.new)
        and all(one.status in standing for one in proposed.targets)
    )


def _require(proposed: Proposed, rights: Rights) -> None:
    """Raise `NotWaiting` if the proposal can no longer be accepted, and `InsufficientScope` if the
    rights do not allow its change.
    """
    proposal = proposed.proposal
    rights.require(proposal.kind.scope, whole_namespace=False)
    if proposal.closed_at is not None and proposal.decided_by:
        raise NotWaiting(
            f"{proposal.decided_by} has answered it at {proposal.closed_at:%Y-%m-%dT%H:%M:%SZ}. "
            "List what still waits."
        )
    if not _is_open(proposed):
        raise NotWaiting("Nothing is left to ask: a side of it is gone. List what still waits.")
