"""Databases that earlier releases wrote, with their keys and tokens; and later releases."""

import gzip
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.support.engines import Postgres
from tests.support.paths import ROOT

FIRST = ROOT / "tests" / "data" / "release-0.1.0"


@dataclass(frozen=True)
class Released:
    """A database, its key, the tokens of its tenants, and its checkpoints."""

    database: Path | str
    key: Path
    tokens: dict[str, str]
    checkpoints: Path


@contextmanager
def released(engine: str, folder: Path, postgres: Postgres) -> Iterator[Released]:
    """Return a database of release 0.1.0: three texts of alice and one of bob, extracted and
    searched.
    """
    script = gzip.decompress((FIRST / f"{engine}.sql.gz").read_bytes()).decode()
    key = Path(shutil.copy(FIRST / "key.pem", folder / "recall.db.key"))
    key.chmod(0o600)
    tokens = json.loads((FIRST / "tokens.json").read_text("utf-8"))[engine]
    checkpoints = FIRST / f"{engine}.checkpoints.jws"
    if engine == "sqlite":
        path = folder / "recall.db"
        path.touch(0o600)
        raw = sqlite3.connect(path)
        raw.executescript(script)
        raw.close()
        yield Released(path, key, tokens, checkpoints)
        return
    with postgres.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(script.encode())
        yield Released(url, key, tokens, checkpoints)


def next_release(folder: Path, sql: str, *, after: Path | None = None) -> Path:
    """Return the folder of a release like this one, or like `after`, with one more migration."""
    folder.mkdir()
    for name in ("recall_server", "agent-card.json"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree((after or ROOT) / "migrations", folder / "migrations")
    number = 1 + max(int(path.name[:4]) for path in (folder / "migrations").iterdir())
    (folder / "migrations" / f"{number:04}_later.sql").write_text(sql)
    return folder
