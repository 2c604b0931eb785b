"""`recall serve --reload`: uvicorn's supervisor restarts the server when its code changes."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from socket import socket

import uvicorn
from uvicorn.supervisors import ChangeReload

import recall_server


def serve_reloading(arguments: Sequence[str]) -> None:
    """Run `recall` with these arguments in a process of its own, and again after each change of a
    module. The old process has ended, and so released the database, before the new one starts.
    """
    folder = str(Path(recall_server.__file__).parent)
    config = uvicorn.Config("recall_server", reload=True, reload_dirs=[folder], log_config=None)
    ChangeReload(config, partial(_run, [*arguments]), []).run()


def _run(arguments: Sequence[str], sockets: list[socket]) -> None:
    del sockets  # the server makes its own
    from recall_server.cli.commands import app  # noqa: PLC0415  # in the new process

    app(arguments)
