"""The command line: `recall --help`."""

import gc
from contextlib import suppress


def main() -> None:
    """The entry point of `recall`."""
    # What is imported stays: to look for garbage in it meanwhile takes a fifth of a short command.
    gc.disable()
    from recall_server.cli.commands import app  # noqa: PLC0415

    gc.freeze()
    gc.enable()
    with suppress(BrokenPipeError):
        app()
