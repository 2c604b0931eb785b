"""Commands of an operator, each killed at one of its writes, and the files that they work on."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import psycopg

from tests.support.cli import Said, recall
from tests.support.engines import Postgres
from tests.support.kill_points import VICTIM_S
from tests.support.processes import environment


@dataclass(frozen=True)
class Place:
    """A database, and the files that belong to it, in a folder."""

    folder: Path
    url: str = ""

    @property
    def settings(self) -> Mapping[str, object]:
        ours = {
            "key_file": self.folder / "recall.key",
            "erasure_file": self.folder / "recall.erasures",
            "embedder": "none",
        }
        return {**ours, "db_url": self.url} if self.url else {**ours, "db_path": self.file}

    @property
    def file(self) -> Path:
        return self.folder / "recall.db"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints.jws"

    def recall(self, *command: object, **more: object) -> Said:
        given = {**self.settings, **more}
        return recall(*command, **{f"recall_{key}": value for key, value in given.items()})

    def state(self) -> object:
        """The state, without values that differ from run to run."""
        found = self.recall("status", "--namespaces", "--json").json()
        assert isinstance(found, list)
        return sorted((one["namespace"], one["bytes"], one["findable_items"]) for one in found)

    def verified(self) -> Said:
        return self.recall("audit", "verify", "--checkpoints", self.checkpoints)


@dataclass(frozen=True)
class Template:
    """A place that is copied for each run of a command, and then made `ready`."""

    place: Place
    postgres: Postgres | None = field(default=None)
    ready: Callable[[str], None] | None = None

    @contextmanager
    def copied(self) -> Iterator[Place]:
        with tempfile.TemporaryDirectory(dir=self.place.folder.parent) as name:
            folder = Path(name) / "copy"
            shutil.copytree(self.place.folder, folder)
            folder.chmod(0o700)
            if self.postgres is None:
                yield Place(folder)
                return
            with self.postgres.database(name_of(self.place.url)) as url:
                if self.ready is not None:
                    self.ready(url)
                yield Place(folder, as_url(url))


def name_of(url: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])


def as_url(conninfo: str) -> str:
    return f"postgresql:///?{urlencode(psycopg.conninfo.conninfo_to_dict(conninfo))}"


async def run(place: Place, command: tuple[str, ...], trace: Path, *strace: str) -> int:
    """Run a command under `strace`, and return its exit code: -9 if it was killed."""
    variables = environment(place.url or place.file, place.settings)
    process = await asyncio.create_subprocess_exec(
        *("strace", "-f", "-qq", "-o", str(trace), *strace),
        *(sys.executable, "-m", "recall_server", *command),
        env=variables,
        cwd=place.folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(VICTIM_S):
        _, errors = await process.communicate()
    assert process.returncode is not None
    killed = "inject" in " ".join(strace)
    assert killed or process.returncode == 0, errors.decode()[-2_000:]
    return process.returncode
