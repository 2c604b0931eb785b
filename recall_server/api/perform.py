"""What surrounds every operation of every door: a deadline, a line in the book, and an error that
a caller can act on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from recall_server.api.caller import Caller
from recall_server.domain.audit import AuditEntry, Outcome
from recall_server.domain.errors import (
    AuditUnavailable,
    Busy,
    DeadlineExceeded,
    InsufficientScope,
    RecallError,
)
from recall_server.services.audit.audit import Audit

log = structlog.get_logger()

T = TypeVar("T")


@dataclass(frozen=True)
class Calls:
    """How operations are run; the doors share one."""

    audit: Audit
    deadline_s: float

    async def perform(
        self,
        caller: Caller,
        door: str,
        operation: str,
        work: Callable[[AuditEntry], Awaitable[T]],
    ) -> T:
        """Run `work`, if the caller's token may, and see to it that it leaves exactly one line in
        the book.

        `work` hands the entry to the transaction of its effect; where it has none, the line is
        written here. Raises `RecallError` and nothing else; if the book cannot be written, the
        operation has failed.
        """
        entry = self.audit.begin(caller.namespace, operation, door, caller.accessor)
        try:
            caller.rights.require(operation)
            self.audit.check(entry)
            async with asyncio.timeout(self.deadline_s):
                result = await work(entry)
                if not entry.written:
                    await self.audit.note(entry)
        except TimeoutError:
            error: RecallError = DeadlineExceeded()
        except RecallError as raised:
            error = raised
        except MemoryError:
            error = Busy("The server has no memory for this just now. Send less at once.")
        except Exception:
            log.exception("operation_failed", operation=operation, request_id=entry.request_id)
            error = RecallError(
                f"Something went wrong here. Ask the operator, naming {entry.request_id}."
            )
        else:
            self._log(entry)
            return result
        if isinstance(error, InsufficientScope):
            caller.refused.append(error)
        await self._note(entry, error)
        raise error from None

    async def _note(self, entry: AuditEntry, error: RecallError) -> None:
        entry.outcome, entry.code = Outcome.ERROR, error.code
        entry.ids.clear()
        entry.counts.clear()
        entry.details.clear()
        self._log(entry)
        if isinstance(error, AuditUnavailable):
            return  # nothing can be recorded; the log has said why, once
        try:
            async with asyncio.timeout(self.deadline_s):
                await self.audit.note(entry)
        except Exception:
            # The caller already gets an error; which one must not depend on the book.
            log.exception("audit_write_failed", request_id=entry.request_id)

    def _log(self, entry: AuditEntry) -> None:
        log.info(
            "operation",
            door=entry.door,
            operation=entry.operation,
            accessor=entry.accessor,
            request_id=entry.request_id,
            outcome=entry.outcome,
            code=entry.code,
            ms=round(entry.elapsed_ms(), 2),
        )
