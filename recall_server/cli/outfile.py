"""Output files of commands, which get their name when they are complete."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from recall_server.cli.shared import fail


@contextmanager
def written(out: Path | None) -> Iterator[BinaryIO]:
    """Yield a file that only its owner can read and that gets its name when it is complete and
    synced.
    """
    if out is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = out.with_name(out.name + ".part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        fail(
            f"{part} exists: another command is writing it, or one was stopped. Remove it if "
            "nobody is."
        )
    except OSError as error:
        fail(f"{part} cannot be written ({error.strerror}).")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        part.replace(out)
        _sync(out.parent)
    except OSError as error:
        fail(f"{out} cannot be written ({error.strerror}). Free space, then try again.")
    finally:
        part.unlink(missing_ok=True)


def unused(out: Path | None) -> None:
    """Fail if the file exists: evidence is not overwritten."""
    if out is not None and out.exists():
        fail(f"{out} exists and is not overwritten. Name another file.")


def _sync(folder: Path) -> None:
    """Sync the new name to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
