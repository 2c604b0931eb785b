"""The database's own wall between tenants, tested with single queries below the services."""

import psycopg

from recall_server.domain.ids import Namespace
from recall_server.services.memory.ingest import Submission
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, remember
from tests.support.engines import on_postgres
from tests.support.erasure import candidate
from tests.support.extractors import Scripted

BOB = Namespace("bob")
HERON = "For a long time a grey heron stood by the pond, and I by it."


@on_postgres
async def test_a_statement_that_names_no_tenant_sees_one_only(
    open_app: Open, database: str
) -> None:
    """The control: the owner of the tables sees rows of both tenants."""
    said = "SELECT DISTINCT namespace FROM {} ORDER BY namespace"
    tables = ("episodes", "turns", "terms", "operations", "tool_call_records", "namespaces")
    async with open_app() as application:
        await enter(application)
        await enter(application, BOB)
        await remember(application, "Anna: I live in Lisbon.")
        submission = Submission("Ben: I live in Porto.", "life")
        await application.services.ingest.remember(context(application, BOB), submission)
        driver = application.store.driver
        protocols = (
            driver.transaction(namespace=ALICE, write=False),
            driver.transaction(namespace=ALICE, write=True),
            driver.transaction(namespace=ALICE, write=True, erasing=True),
            driver.snapshot(ALICE),
        )
        for protocol in protocols:
            async with protocol as connection:
                for table in tables:
                    rows = await connection.fetch(said.format(table), {})
                    assert [row["namespace"] for row in rows] == [ALICE], table
        with psycopg.connect(database) as owner:
            for table in tables:
                assert owner.execute(said.format(table)).fetchall() == [(ALICE,), (BOB,)]


async def test_anothers_words_take_no_place_in_a_search(open_app: Open) -> None:
    """Bob's words match better, and there are more of them than a search looks at. They have the
    numbers of Alice's other texts, and could be taken for them. The control: Bob finds them.
    """
    async with open_app() as application:
        await enter(application)
        await enter(application, BOB)
        for number in range(6):
            await remember(application, f"Anna: Otter number {number} swam off.")
        await remember(application, f"Anna: {HERON}")
        for number in range(6):
            submission = Submission(f"Ben: Heron, heron {number}.", "life")
            await application.services.ingest.remember(context(application, BOB), submission)
        pools = {}
        for tenant in (ALICE, BOB):
            async with application.store.transaction(tenant, write=False) as tx:
                statistics = await tx.words.statistics(["heron"])
                average = statistics.average_length
                found = await tx.words.similar({"heron": 1.0}, average, limit=5)
                pools[tenant] = [item.citation for item in await tx.memories.items(found)]

    assert [one.quote for one in pools[ALICE]] == [HERON]
    assert [one.speaker for one in pools[BOB]] == ["Ben"] * 5


async def test_no_query_of_memories_finds_anothers_by_its_id(open_app: Open) -> None:
    """The test runs the queries themselves. The control: its own namespace finds it."""
    said = "Ben: I live in Porto."
    extractor = Scripted(Porto=candidate("Ben lives in Porto", "I live in Porto", said))
    async with open_app(extractor=extractor) as application:
        await enter(application)
        await enter(application, BOB)
        submission = Submission(said, "life")
        await application.services.ingest.remember(context(application, BOB), submission)
        await drained(application)
        async with application.store.transaction(BOB, write=False) as tx:
            (bobs,) = await tx.memories.page(limit=1, offset=0, type_="", topic="")
        seen = {}
        for tenant in (ALICE, BOB):
            async with application.store.transaction(tenant, write=False) as tx:
                memories, ids = tx.memories, [bobs.id]
                by_ids = (memories.get, memories.active, memories.items, memories.citations)
                seen[tenant] = [len(await read(ids)) for read in by_ids]
                seen[tenant].append(len(await memories.lineage(bobs.id)))

    assert seen == {ALICE: [0] * 5, BOB: [1] * 5}
