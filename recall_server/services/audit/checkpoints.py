"""Signs checkpoints of every audit log at intervals and sends them to places outside
the database.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from recall_server.domain.errors import AuditBroken, RecallError
from recall_server.domain.namespace import Namespace
from recall_server.integrations.checkpoints import CheckpointStore
from recall_server.services.audit.verification import Verification

log = structlog.get_logger()

# Checkpoints per delivery.
BATCH = 500


@dataclass(frozen=True)
class Checkpoints:
    """Writes checkpoints to each of the operator's `places`; does nothing if there are none."""

    verification: Verification
    places: Sequence[CheckpointStore]
    every_s: float

    async def run(self) -> None:
        """Write checkpoints every `every_s` seconds until cancelled. A failure is retried the next
        time.
        """
        while self.places:
            try:
                await self.write([one async for one in self.verification.namespaces(grown=True)])
            except RecallError as error:
                log.error("checkpoints_delayed", code=error.code, message=error.message)  # noqa: TRY400
            except Exception:
                # An unexpected error must not end the loop.
                log.exception("checkpoints_failed")
            await asyncio.sleep(self.every_s)

    async def write(self, namespaces: Sequence[Namespace]) -> int:
        """Write a checkpoint of each namespace to every place; return how many. A broken log gets
        none, and an `audit_broken` event is logged.

        Raises `Unavailable` if a place does not accept them. They are written again then; a
        duplicate at another place does no harm.
        """
        written = 0
        for start in range(0, len(namespaces), BATCH):
            made = await self._sign(namespaces[start : start + BATCH])
            for place in self.places if made else ():
                await place.store([signed for _, _, signed in made])
            for namespace, seq, _ in made:
                async with self.verification.store.transaction(namespace) as tx:
                    await tx.audit.checkpointed(seq)
            written += len(made)
        return written

    async def _sign(self, namespaces: Sequence[Namespace]) -> list[tuple[Namespace, int, str]]:
        checkpoints = []
        for namespace in namespaces:
            try:
                found = await self.verification.checkpoint(namespace)
            except AuditBroken as error:
                log.error("audit_broken", namespace=namespace, seq=error.seq)  # noqa: TRY400
                continue
            if found is not None:
                checkpoints.append((namespace, *found))
        return checkpoints

    async def close(self) -> None:
        for place in self.places:
            await place.close()
