"""Run an operation for any protocol: the required scope, a deadline, one record in the audit log,
and an error that a client can act on.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from structlog.contextvars import bound_contextvars

from recall_server.api.operations.operation import Arguments, Call, Caller, Operation, Presenter
from recall_server.domain.audit import AuditEntry, Outcome
from recall_server.domain.errors import (
    AuditUnavailable,
    Busy,
    DeadlineExceeded,
    Deadlocked,
    InsufficientScope,
    RecallError,
)
from recall_server.services import Services
from recall_server.tracing import tracer

log = structlog.get_logger()

# The pauses before a call in a deadlock is tried again, one for each try.
DEADLOCK_PAUSES_S = (0.1, 0.5)

T = TypeVar("T")


@dataclass(frozen=True)
class Calls:
    """Runs operations; the protocols share one."""

    services: Services
    deadline_s: float

    async def run(
        self,
        caller: Caller,
        protocol: str,
        operation: Operation,
        *,
        read: Callable[[], Arguments],
        present: Presenter,
        client: str | None = None,
    ) -> Any:
        """Return the data of the answer to a call of a registered operation. `read` returns its
        arguments or raises. Raises `RecallError` and nothing else.
        """
        arguments: Arguments | None = None
        fault: Exception | None = None
        try:
            arguments = read()
        except Exception as error:  # noqa: BLE001 - raised again below, where it is recorded
            fault = error

        async def work(entry: AuditEntry) -> Any:
            if fault is not None:
                raise fault
            assert operation.handler is not None
            if arguments is not None:
                entry.inputs = hashlib.sha256(arguments.model_dump_json().encode()).digest()
            value = await operation.handler(Call(self.services, caller, entry, client), arguments)
            return present(value, arguments)

        asked = operation
        if operation.becomes and arguments:
            asked = operation.becomes(arguments, caller.rights)
        return await self.perform(caller, protocol, asked, work)

    async def perform(
        self,
        caller: Caller,
        protocol: str,
        operation: Operation,
        work: Callable[[AuditEntry], Awaitable[T]],
    ) -> T:
        """Run `work`, if the caller's token may, and leave exactly one record in the audit log.

        `work` hands the entry to the transaction of its effect; where it has none, the record is
        written here. Raises `RecallError` and nothing else; if the record cannot be written, the
        operation has failed.
        """
        entry = self.services.audit.begin(
            caller.namespace,
            operation.name,
            protocol,
            caller.accessor,
            read_only=operation.read_only,
            request_id=caller.request_id,
        )
        # The attributes of the semantic conventions for tools of MCP, and our own.
        attributes: dict[str, str | int] = {"recall.protocol": protocol}
        if protocol == "mcp":
            attributes |= {"mcp.method.name": "tools/call", "gen_ai.tool.name": operation.name}
        with (
            bound_contextvars(request_id=entry.request_id),
            tracer.operation(operation.name, attributes) as span,
        ):
            try:
                return await self._performed(caller, operation, entry, work)
            finally:
                span.set({"recall.outcome": entry.code or "ok"})

    async def _performed(
        self,
        caller: Caller,
        operation: Operation,
        entry: AuditEntry,
        work: Callable[[AuditEntry], Awaitable[T]],
    ) -> T:
        audit = self.services.audit
        entry.bearer = caller.token.bearer if caller.token else None
        try:
            caller.rights.require(operation.scope, whole_namespace=operation.whole_namespace)
            audit.check(entry)
            async with asyncio.timeout(self.deadline_s):
                result = await _undisturbed(work, entry)
                if not entry.written:
                    await audit.note(entry)
        except TimeoutError:
            error: RecallError = DeadlineExceeded()
        except RecallError as raised:
            error = raised
        except MemoryError:
            error = Busy("The server has no memory for this just now. Send less at once.")
        except Exception:
            log.exception(
                "operation_failed", operation=entry.operation, request_id=entry.request_id
            )
            error = RecallError(
                f"Something went wrong here. Ask the operator, naming {entry.request_id}."
            )
        else:
            self._ended(entry)
            return result
        if isinstance(error, InsufficientScope):
            caller.refused.append(error)
        error.request_id = entry.request_id
        await self._record(entry, error)
        raise error from None

    def _ended(self, entry: AuditEntry) -> None:
        self.services.metrics.called(entry)
        log.info(
            "operation",
            protocol=entry.protocol,
            operation=entry.operation,
            accessor=entry.accessor,
            namespace=self.services.log_name(entry.namespace),
            request_id=entry.request_id,
            outcome=entry.outcome,
            code=entry.code,
            ms=round(entry.elapsed_ms(), 2),
        )

    async def _record(self, entry: AuditEntry, error: RecallError) -> None:
        entry.outcome, entry.code = Outcome.ERROR, error.code
        _empty(entry)
        self._ended(entry)
        if entry.written:
            return  # only the wait for the work failed
        if isinstance(error, AuditUnavailable):
            return  # nothing can be recorded; the log says why, once
        try:
            async with asyncio.timeout(self.deadline_s):
                await self.services.audit.note(entry)
        except Exception:
            # The client already gets an error; which one must not depend on the audit log.
            log.exception("audit_write_failed", request_id=entry.request_id)


async def _undisturbed(work: Callable[[AuditEntry], Awaitable[T]], entry: AuditEntry) -> T:
    """Run `work`, and run it again if a deadlock rolled it back. A pause before that lets the other
    side of the deadlock take the lock.
    """
    for pause_s in DEADLOCK_PAUSES_S:
        try:
            return await work(entry)
        except Deadlocked:
            if entry.written:
                raise
        _empty(entry)
        await asyncio.sleep(pause_s)
    return await work(entry)


def _empty(entry: AuditEntry) -> None:
    """Clear the entry after an attempt that has changed nothing."""
    for noted in (entry.ids, entry.counts, entry.details):
        noted.clear()
