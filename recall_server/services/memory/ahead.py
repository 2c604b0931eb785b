"""Large changes are planned ahead: the plan reads and computes without a lock, and the transaction,
for which others wait, only writes.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from recall_server.domain.context import Context
from recall_server.domain.errors import Stale
from recall_server.domain.ids import Namespace
from recall_server.storage.index.words import Statistics
from recall_server.storage.store import Store, Transaction

# How often a change is planned without a lock, if others change memories meanwhile; then it is
# planned under the lock.
PLANS_MAX = 3
# A call or a task with more statements than this is planned without a lock.
PLANNED_INSIDE_MAX = 10

P = TypeVar("P")
R = TypeVar("R")
Plan = Callable[[Transaction], Awaitable[P]]
Write = Callable[[Transaction, P], Awaitable[R]]


@dataclass(frozen=True)
class Planned(Generic[P]):
    """A plan, and the statistics of the index when it was made: while they stay, no memory, text or
    entry changes.
    """

    known: Statistics
    plan: P


async def planned(store: Store, namespace: Namespace, plan: Plan[P]) -> Planned[P]:
    """Plan without a lock, so that nobody waits for it."""
    async with store.transaction(namespace, write=False) as tx:
        return Planned(await tx.words.statistics(), await plan(tx))


async def written(
    store: Store, context: Context, made: Planned[P], plan: Plan[P], write: Write[P, R]
) -> R:
    """Write what was planned, in an erasing transaction with the lock of the namespace. If memories
    have changed since, it is planned anew first, and `write` is called again.
    """
    for _ in range(PLANS_MAX):
        with suppress(Stale):
            return await _written(store, context, made, None, write)
        made = await planned(store, context.namespace, plan)
    return await _written(store, context, made, plan, write)


async def _written(
    store: Store, context: Context, made: Planned[P], plan: Plan[P] | None, write: Write[P, R]
) -> R:
    """With `plan`, plan under the lock; without, raise `Stale` if something has changed."""
    async with store.transaction(
        context.namespace, entry=context.entry, erasing=True, locked=True
    ) as tx:
        if plan is not None:
            return await write(tx, await plan(tx))
        # Not read: on SQLite nobody waits for a transaction that needs no rows yet.
        await tx.words.expect(made.known, Stale)
        return await write(tx, made.plan)


async def apply_planned(
    store: Store, context: Context, plan: Plan[P], write: Write[P, R], *, inside: bool = False
) -> R:
    """Plan changes of memories without a lock, and write them in a transaction with the lock of the
    namespace; both are limited to the access scope. The plan reads statement by statement, so that
    a long one takes no connection from others. If memories have changed since, it is planned anew.
    `inside`: plan in the transaction, as that is short.
    """
    for _ in range(0 if inside else PLANS_MAX):
        tables = store.autocommit(context.namespace, access_scope=context.scope)
        basis = await tables.events.basis()
        made = await plan(tables)
        with suppress(Stale):
            async with store.change(context) as tx:
                if not basis.stands(await tx.events.basis(basis.last_event)):
                    raise Stale
                return await write(tx, made)
    async with store.change(context) as tx:
        return await write(tx, await plan(tx))
