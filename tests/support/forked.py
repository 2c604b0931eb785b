"""Runs `recall COMMAND` in a process of its own, forked from one that has imported the product
and loaded what servers load already: that takes longer than most commands.

Tests of the start of a process run `python -m recall_server` instead.
"""

import multiprocessing
import os
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        *(__name__, "recall_server.cli.light", "recall_server.cli.commands"),
        *("recall_server.server", "psycopg_pool", "wordllama"),
        "tests.support.loaded",
    ]
)


def forked(
    command: tuple[str, ...],
    environment: dict[str, str],
    out: Path,
    errors: Path,
    release: Path | None = None,
) -> ForkServerProcess:
    """Start the command; its output is appended to those files. `release`: the folder of another
    release, whose command it is then.
    """
    process = _context.Process(
        target=_run, args=(command, environment, Path.cwd(), (out, errors), release), daemon=True
    )
    process.start()
    return process


def _run(
    command: tuple[str, ...],
    environment: dict[str, str],
    folder: Path,
    written: tuple[Path, Path],
    release: Path | None,
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for path, stream in zip(written, (sys.stdout, sys.stderr), strict=True):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, stream.fileno())
        os.close(file)
    if release is not None:
        os.chdir(release)  # Python looks for modules there first
        os.execv(sys.executable, [sys.executable, "-m", "recall_server", *command])
    sys.argv = ["recall", *command]
    from recall_server.cli import main  # noqa: PLC0415  # imported by now, see above

    main()
