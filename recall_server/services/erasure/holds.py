"""Holds: while an operator must keep a namespace, for a court or an authority, nothing of it can be
erased.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context
from recall_server.domain.errors import NamespaceNotFound, NotFound, OnHold
from recall_server.domain.namespace import Namespace
from recall_server.domain.text.cleaning import clean_label
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.erasure import Hold

REASON_CHARS_MAX = 256


@dataclass(frozen=True)
class Holds:
    """Place, lift and list them."""

    store: Store
    now: Callable[[], datetime]

    async def place(
        self,
        context: Context,
        because: str,
    ) -> None:
        """Hold all that is there and all that comes; a refused erasure shows `because`. Raises
        `NotFound`, and `Invalid` without a reason.
        """
        because = clean_label(because, "reason", chars_max=REASON_CHARS_MAX)
        await self._set(
            context.namespace, Hold(context.namespace, self.now(), because), context.entry
        )

    async def lift(
        self,
        context: Context,
    ) -> None:
        """Raises `NotFound` where there is no hold."""
        await self._set(context.namespace, None, context.entry)

    async def _set(self, namespace: Namespace, hold: Hold | None, entry: AuditEntry) -> None:
        async with self.store.transaction(namespace, entry=entry) as tx:
            # An erasure that is under way ends first; one that begins later sees it.
            await tx.lock()
            if hold is None and await tx.erasures.hold() is None:
                raise NotFound("This namespace is not on hold. `recall hold list` shows those.")
            if not await tx.erasures.set_hold(hold):
                raise NamespaceNotFound
            if hold is not None:
                entry.details["reason"] = hold.because

    async def all(self) -> list[Hold]:
        """All that stand, by namespace."""
        async with self.store.transaction(None, write=False) as tx:
            return await tx.erasures.holds()


async def refuse_held(tx: Transaction) -> None:
    """Raise `OnHold` where nothing may be destroyed. In the transaction that would, which must hold
    the lock of the namespace.
    """
    hold = await tx.erasures.hold()
    if hold is not None:
        raise OnHold(f"{OnHold().message} The reason that the operator gave: {hold.because}")
