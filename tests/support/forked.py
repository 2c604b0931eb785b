"""Runs `recall COMMAND` in a process of its own, forked from one that has imported the product
and loaded what servers load already: that takes longer than most commands.

Tests of the start of a process run `python -m recall_server` instead.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
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
    *,
    given: Path | None = None,
    first: Callable[[], object] | None = None,
) -> ForkServerProcess:
    """Start the command; its output is appended to those files. `release`: the folder of another
    release, whose command it is then. `given`: the file that is its input. `first`: what the
    process does before, such as to limit itself.
    """
    streams = (out, errors, given)
    process = _context.Process(
        target=_run,
        args=(command, environment, Path.cwd(), streams),
        kwargs={"release": release, "first": first},
        daemon=True,
    )
    process.start()
    return process


def completed(
    command: tuple[str, ...],
    environment: dict[str, str],
    within_s: float,
    *,
    given: bytes = b"",
    first: Callable[[], object] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run the command to its end."""
    with tempfile.TemporaryDirectory() as name:
        out, errors, taken = (Path(name, one) for one in ("out", "errors", "given"))
        out.touch()
        errors.touch()
        taken.write_bytes(given)
        process = forked(command, environment, out, errors, given=taken, first=first)
        process.join(within_s)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(command, within_s, out.read_bytes())
        return subprocess.CompletedProcess(
            command, process.exitcode, out.read_bytes(), errors.read_bytes()
        )


def _run(
    command: tuple[str, ...],
    environment: dict[str, str],
    folder: Path,
    streams: tuple[Path, Path, Path | None],
    *,
    release: Path | None,
    first: Callable[[], object] | None,
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    out, errors, given = streams
    _as_stream(out, os.O_WRONLY | os.O_APPEND, sys.stdout.fileno())
    _as_stream(errors, os.O_WRONLY | os.O_APPEND, sys.stderr.fileno())
    if given is not None:
        _as_stream(given, os.O_RDONLY, 0)
        sys.stdin = os.fdopen(0, encoding="utf-8")
    if first is not None:
        first()
    if release is not None:
        os.chdir(release)  # Python looks for modules there first
        os.execv(sys.executable, [sys.executable, "-m", "recall_server", *command])
    sys.argv = ["recall", *command]
    from recall_server.cli import main  # noqa: PLC0415  # imported by now, see above

    main()


def _as_stream(path: Path, flags: int, stream: int) -> None:
    file = os.open(path, flags)
    os.dup2(file, stream)
    os.close(file)
