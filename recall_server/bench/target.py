"""The server that is measured: the real one, with one more tool, which does nothing.

Run as `python -m recall_server.bench.target`; its settings are those of `recall serve`, and its
address is the one line that it prints.
"""

import asyncio
from typing import Any

import typer
from starlette.types import ASGIApp

from recall_server import observe
from recall_server.app import House
from recall_server.config import Settings
from recall_server.doors import asgi
from recall_server.serve import serve
from recall_server.surface.arguments import Arguments
from recall_server.surface.tools import TOOLS, Call, Tool


class Nothing(Arguments):
    pass


async def do_nothing(call: Call, _: Nothing) -> dict[str, Any]:
    # Or `perform` would commit a line to the book: the floor must not hide what we add to it.
    call.entry.written = True
    return {}


# The guard lets nothing pass that it does not know: under this name everybody may call it.
NOOP = Tool("whoami", "No operation", "Does nothing.", Nothing, do_nothing, (), read_only=True)


def _app(house: House) -> ASGIApp:
    return asgi(house, (*TOOLS, NOOP))


def main() -> None:
    settings = Settings()
    observe.configure(settings.log_level)
    asyncio.run(serve(settings, lambda address, _: typer.echo(address), app=_app))


if __name__ == "__main__":
    main()
