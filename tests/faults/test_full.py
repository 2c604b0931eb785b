"""A full disk: the caller gets an error, nothing is lost, and with free space everything works
again.
"""

import asyncio

from tests.support.conversation import enter
from tests.support.erasure import select
from tests.support.faults import TEXT
from tests.support.mcp_clients import request
from tests.support.server import WITHIN_S, Json, Running, Serve

FULL = {
    # The file may not grow by a single page.
    "sqlite": ("PRAGMA max_page_count = 1",),
    # The error of Postgres on a full disk, since no test fills a disk.
    "postgres": (
        """CREATE FUNCTION full_() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END $$""",
        "CREATE TRIGGER full_ BEFORE INSERT ON episodes EXECUTE FUNCTION full_()",
        "CREATE TRIGGER full_ BEFORE INSERT ON api_tokens EXECUTE FUNCTION full_()",
    ),
}
FREED = {
    "sqlite": ("PRAGMA max_page_count = 1073741823",),
    "postgres": ("DROP FUNCTION full_ CASCADE",),
}


async def done(running: Running, statements: tuple[str, ...]) -> None:
    async with running.application.store.driver.migration() as connection:
        for one in statements:
            await connection.fetch(one, {})


async def test_a_full_disk_is_told_as_what_it_is(serve: Serve) -> None:
    """The HTTP routes answer 507, and all protocols have a code for it."""
    headers, store = request(
        "tools/call", {"name": "store_memory", "arguments": {"text": TEXT * 5_000}}, modern=False
    )

    async with serve() as running, running.http(await running.token()) as http:
        await enter(running.application)

        async def both() -> tuple[int, Json, Json]:
            plain = await http.post("/v1/tokens", json={"label": "x" * 60})
            tool = await http.post("/mcp", json=store, headers=headers)
            told: Json = tool.json()["result"]["structuredContent"]
            return plain.status_code, plain.json(), told

        engine = running.application.store.engine
        await done(running, FULL[engine])
        tries: list[tuple[int, Json, Json]] = []
        async with asyncio.timeout(WITHIN_S):
            while not tries or "code" not in tries[-1][1] or "code" not in tries[-1][2]:
                tries.append(await both())
        ready = await http.get("/ready")
        await done(running, FREED[engine])
        after = await both()
        kept = await select(running.application.store, "SELECT text FROM episodes")

    status, plain, told = tries[-1]
    assert (status, plain["code"], told["code"]) == (507, "STORAGE_FULL", "STORAGE_FULL")
    assert ready.status_code == 200
    assert after[0] == 201
    assert after[2]["status"] == "ok"
    taken = [one for *_, one in (*tries, after) if one["status"] == "ok"]
    assert len(kept) == len(taken)
