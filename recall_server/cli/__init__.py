"""The command line: `recall --help`."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def importing() -> Iterator[None]:
    """Turn garbage collection off during imports: modules stay in memory, and collecting takes a
    tenth of a server's start and a fifth of a short command.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def main() -> None:
    with importing():
        from recall_server.cli import light  # noqa: PLC0415

        app = light.app
        if sys.argv[1:2] not in [[name] for name in ("--version", *light.COMMANDS)]:
            from recall_server.cli.commands import app  # noqa: PLC0415

    with suppress(BrokenPipeError):
        app()
