"""Vouches for every book now and then, in places that are not the database."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from recall_server.domain.errors import AuditBroken, RecallError
from recall_server.domain.namespace import Namespace
from recall_server.integrations.checkpoints import Place
from recall_server.services.audit.verification import Verification

log = structlog.get_logger()

# Checkpoints that are handed over at once.
BATCH = 500


@dataclass(frozen=True)
class Checkpoints:
    """Writes to every one of `places`, which are the operator's; to none, where there are none."""

    verification: Verification
    places: Sequence[Place]
    every_s: float

    async def run(self) -> None:
        """Write now and then, until cancelled. What fails is tried again the next time."""
        while self.places:
            try:
                await self.write([one async for one in self.verification.namespaces(grown=True)])
            except RecallError as error:
                log.error("checkpoints_wait", code=error.code, message=error.message)  # noqa: TRY400
            except Exception:
                # One bad time must not be the last.
                log.exception("checkpoints_failed")
            await asyncio.sleep(self.every_s)

    async def write(self, namespaces: Sequence[Namespace]) -> int:
        """Put a checkpoint of each into every place; how many. A broken book gets none, and the
        log says so. Raises `Unavailable` where a place does not take them: then they are written
        again, and no harm is done where another has them twice.
        """
        written = 0
        for start in range(0, len(namespaces), BATCH):
            made = await self._made(namespaces[start : start + BATCH])
            for place in self.places if made else ():
                await place.keep([signed for _, _, signed in made])
            for namespace, seq, _ in made:
                async with self.verification.store.transaction(namespace) as tx:
                    await tx.audit.vouched(seq)
            written += len(made)
        return written

    async def _made(self, namespaces: Sequence[Namespace]) -> list[tuple[Namespace, int, str]]:
        made = []
        for namespace in namespaces:
            try:
                found = await self.verification.checkpoint(namespace)
            except AuditBroken as error:
                log.error("audit_broken", namespace=namespace, seq=error.seq)  # noqa: TRY400
                continue
            if found is not None:
                made.append((namespace, *found))
        return made

    async def close(self) -> None:
        for place in self.places:
            await place.close()
