"""`GET /v1/audit`: a namespace's own book (FEATURES J01)."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from recall_server.api.arguments import Arguments
from recall_server.api.caller import caller_of
from recall_server.api.http.performing import performed, queried
from recall_server.api.perform import Calls
from recall_server.domain.audit import AuditEntry, Outcome
from recall_server.domain.errors import Invalid
from recall_server.domain.text.cleaning import storable
from recall_server.services import Services
from recall_server.storage.tables.audit import AuditRecord, Filter

# A day from either end: engines shift times between zones.
EARLIEST = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
LATEST = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)


class ReadAudit(Arguments):
    """The query of a request. `id`: of a memory, task or token that an operation touched."""

    operation: str = ""
    accessor: str = ""
    outcome: Annotated[Outcome, Field(strict=False)] | None = None
    since: str = ""
    until: str = ""
    id: str = ""
    limit: int = Field(50, ge=1, le=200, strict=False)
    cursor: str = ""

    def filter(self) -> Filter:
        """Raises `Invalid`."""
        for text in (self.operation, self.accessor, self.id):
            storable(text)
        return Filter(
            since=_time(self.since, "since") if self.since else EARLIEST,
            until=_time(self.until, "until") if self.until else LATEST,
            operation=self.operation,
            accessor=self.accessor,
            outcome=self.outcome or "",
            touching=self.id,
        )


class AuditBook:
    """`GET /v1/audit`, newest first, page by page."""

    def __init__(self, services: Services, calls: Calls) -> None:
        self._services = services
        self._calls = calls

    def routes(self) -> list[Route]:
        return [Route("/v1/audit", self._read, methods=["GET"])]

    async def _read(self, request: Request) -> Response:
        namespace = caller_of(request.scope).namespace

        async def work(entry: AuditEntry) -> dict[str, Any]:
            asked = queried(request, ReadAudit)
            page = await self._services.audit.page(
                namespace,
                asked.filter(),
                cursor=asked.cursor,
                limit=asked.limit,
                entry=entry,
            )
            return {
                "records": [_shown(record) for record in page.records],
                "next_cursor": page.next,
            }

        return await performed(self._calls, request, "read_audit", work, reads_query=True)


def _shown(record: AuditRecord) -> dict[str, Any]:
    line = record.exported()
    del line["namespace"], line["mac"]
    # The salt is for who verifies an export.
    return {**line, "details": dict(record.details.values) if record.details else None}


def _time(text: str, name: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise Invalid(f"{name} must be a time with its zone, such as 2026-03-01T12:00:00Z.")
    return min(max(found, EARLIEST), LATEST).astimezone(UTC)
