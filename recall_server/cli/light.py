"""The commands that other programs call. Each is loaded by itself: loading all the others takes
longer than these take to do their work.
"""

from collections.abc import Callable

import typer

from recall_server.cli.hook import hook
from recall_server.cli.stdio import stdio

COMMANDS: dict[str, Callable[..., None]] = {"stdio": stdio, "hook": hook}

# A command has the help options of the app that it is in.
HELP = {"help_option_names": ["--help", "-h"]}
app = typer.Typer(add_completion=False, context_settings=HELP, pretty_exceptions_enable=False)


@app.callback()
def _root() -> None:
    pass


for name, command in COMMANDS.items():
    app.command(name)(command)
