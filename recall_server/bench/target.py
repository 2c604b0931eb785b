"""The server that is measured: the real one, with one more tool, which does nothing.

Run as `python -m recall_server.bench.target`; its settings are those of `recall serve`, and its
address is the one line that it prints.
"""

import asyncio
from typing import Any

import typer
from starlette.types import ASGIApp

from recall_server import logs
from recall_server.api.app import create_app
from recall_server.api.arguments import Arguments
from recall_server.api.operations import OPERATIONS
from recall_server.api.operations.operation import Call, Mcp, Operation
from recall_server.application import Application
from recall_server.config import Settings
from recall_server.server import serve


class Nothing(Arguments):
    pass


async def do_nothing(call: Call, _: Nothing) -> dict[str, Any]:
    # Or `perform` would commit a line to the book: the floor must not hide what we add to it.
    call.entry.written = True
    return {}


NOOP = Operation(
    "whoami",
    None,
    "Do nothing.",
    Nothing,
    do_nothing,
    mcp=Mcp("No operation", "Does nothing.", read_only=True),
)


MEASURED = tuple(NOOP if one.name == NOOP.name else one for one in OPERATIONS)


def _app(application: Application) -> ASGIApp:
    return create_app(application, MEASURED)


def main() -> None:
    settings = Settings()
    logs.configure(settings.log_level)
    asyncio.run(serve(settings, lambda address, _: typer.echo(address), app=_app))


if __name__ == "__main__":
    main()
