"""A server that is killed between the two parts of an erasure finishes it after a restart."""

from recall_server.services.erasure.leak_scan import scan
from tests.support.processes import Database, Server, calling, new_token, until
from tests.support.stored import ALICE, left_of, opened, select

CANARY = "zr5kq2wn7vhx4mtb3yfojlep"
WITHIN_S = 60.0


async def test_a_purge_that_was_killed_is_taken_up_again(database: Database) -> None:
    """The first server has no worker, so the kill comes before the purge."""
    token = (await new_token(database, ALICE, "--scope", "admin"))["token"]
    async with Server(database, worker_jobs=0) as server, calling(server.address, token) as call:
        await call("store_memory", text=f"Anna: I live in {CANARY}.")
        erased = await call("delete_namespace_data", confirm="DELETE MY DATA")
        await server.kill()
    async with opened(database) as store:
        before = await select(store, "SELECT id, state FROM erasures")
        left = await scan(store, [CANARY], [])
    async with Server(database, lease_s=3), opened(database) as store:

        async def purged() -> bool:
            (row,) = await select(store, "SELECT state FROM erasures")
            return bool(row["state"] == "done")

        await until(purged, WITHIN_S, "the purge is done")
        after = await left_of(store, [CANARY])
        rows = await select(store, "SELECT id FROM episodes")

    assert [(row["id"], row["state"]) for row in before] == [(erased["receipt_id"], "logical")]
    assert left.places  # The control.
    assert (after.places, rows) == ([], [])


async def test_a_purge_that_dies_under_way_is_begun_again(database: Database) -> None:
    """The lease of the dead worker ends, and the next worker starts again."""
    token = (await new_token(database, ALICE, "--scope", "admin"))["token"]
    async with Server(database, worker_jobs=0) as server, calling(server.address, token) as call:
        await call("store_memory", text=f"Anna: I live in {CANARY}.")
        await call("delete_namespace_data", confirm="DELETE MY DATA")
    async with (
        opened(database) as store,
        store.driver.transaction(namespace=ALICE, write=True) as raw,
    ):
        # This is the state that a worker leaves if it is killed during the purge.
        await raw.fetch("UPDATE erasures SET state = 'purging'", {})
        await raw.fetch("UPDATE operations SET state = 'processing', attempt = 1", {})
    async with Server(database, lease_s=3), opened(database) as store:

        async def purged() -> bool:
            (row,) = await select(store, "SELECT state FROM erasures")
            return bool(row["state"] == "done")

        await until(purged, WITHIN_S, "the purge is done")
