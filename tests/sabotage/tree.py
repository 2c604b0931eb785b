"""Copies of the project, which are broken and deleted."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.paths import ROOT


def copy_of_project(to: Path) -> None:
    """Copy every file of the working tree that git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, to / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            # The time is kept, so that compiled files of one copy serve the next.
            shutil.copy2(source, target)


@contextmanager
def copy_of(tree: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="recall-sabotage-") as folder:
        to = Path(folder) / "project"
        shutil.copytree(tree, to)
        yield to
