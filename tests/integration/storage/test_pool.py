"""A call whose connection is lost leaves the others one that is open."""

import asyncio

import psycopg
import pytest

from recall_server.storage.postgres import PostgresDriver
from tests.support.engines import Postgres
from tests.support.processes import until


async def test_a_cancelled_call_costs_the_next_no_new_connection(
    postgres: Postgres, migrated: str
) -> None:
    """Its connection is closed, and a new one may take longer than a call waits."""
    with postgres.database(migrated) as url:
        driver = PostgresDriver(url)
        await driver.open()
        try:
            reading = asyncio.create_task(
                driver.autocommit([("SELECT pg_sleep(60)", {})], namespace=None)
            )
            with psycopg.connect(postgres.url, autocommit=True) as raw:
                name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]

                async def sleeps() -> bool:
                    found = raw.execute(
                        "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
                        " AND datname = %s",
                        [name],
                    )
                    return found.fetchone() is not None

                await until(sleeps, 30.0, "the call to reach the database")
                raw.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
                (rows,) = await driver.autocommit([("SELECT 1 AS one", {})], namespace=None)
        finally:
            await driver.close()

    assert [row["one"] for row in rows] == [1]
