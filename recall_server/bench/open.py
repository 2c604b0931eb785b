"""The server that is measured without guard, book and limits: what they cost is what it saves.

Run as `python -m recall_server.bench.open`; its settings are those of `recall serve`, and its
address is the one line that it prints. Every call is one of the namespace `GUEST`.
"""

import asyncio
from dataclasses import replace
from typing import Self

import typer
from starlette.types import ASGIApp

from recall_server import logs
from recall_server.api.app import create_app
from recall_server.api.mcp.tools import TOOLS
from recall_server.application import Application
from recall_server.bench.target import NOOP
from recall_server.config import Settings
from recall_server.domain.audit import AuditEntry
from recall_server.domain.namespace import Namespace, namespace
from recall_server.domain.permissions import TokenInfo
from recall_server.server import serve
from recall_server.services.audit.audit import Audit
from recall_server.services.auth.access import Access
from recall_server.services.limits.rates import Rates
from recall_server.storage.tables.audit import Audit as Shelf

GUEST = namespace("large")


class Everybody(Access):
    """Lets everybody in."""

    @classmethod
    def like(cls, access: Access) -> Self:
        """With the parts of the real one."""
        made = cls.__new__(cls)
        made.__dict__.update(access.__dict__)
        return made

    async def verify(self, token: str) -> TokenInfo:  # noqa: ARG002
        return TokenInfo("acc_guest", GUEST, self._now())


class NoBook(Audit):
    """Takes every line for written, and `_unwritten` those that go with their effect."""

    def begin(
        self, namespace: Namespace, operation: str, door: str, accessor: str | None
    ) -> AuditEntry:
        entry = super().begin(namespace, operation, door, accessor)
        entry.written = True
        return entry


async def _unwritten(self: Shelf, entries: object) -> None:
    """In the place of what the audit log does with records."""


class NoLimits(Rates):
    """Counts nothing."""

    async def call(self, namespace: Namespace, accessor: str) -> None:
        """Whatever it is."""


def _app(application: Application) -> ASGIApp:
    services, now = application.services, application.services.audit.now
    application.services = replace(
        services,
        access=Everybody.like(services.access),
        audit=NoBook(
            application.store,
            now,
            services.audit.new_id,
            services.audit.cursors,
            services.audit.reads,
        ),
    )
    rates = NoLimits(application.store, now, token_calls=0, namespace_calls=0, bad_tokens=0)
    return create_app(application, (*TOOLS, NOOP), rates)


def main() -> None:
    Shelf.record = Shelf.record_all = _unwritten  # type: ignore[assignment,method-assign]
    settings = Settings()
    logs.configure(settings.log_level)
    asyncio.run(serve(settings, lambda address, _: typer.echo(address), app=_app))


if __name__ == "__main__":
    main()
