"""Ended jobs and tokens are kept for the set number of days, and no longer."""

from datetime import timedelta

import pytest

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.errors import Unauthenticated
from recall_server.domain.permissions import Rights, Scope, TokenInfo
from recall_server.services.auth import TokenRequest
from recall_server.storage.driver import Row
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, memories, remember
from tests.support.runtime import Clock
from tests.support.stored import select

DAY = timedelta(days=1)
ALL = Rights(frozenset({Scope.ADMIN}))


async def jobs(application: Application) -> list[Row]:
    return await select(application.store, "SELECT id, state FROM operations ORDER BY id")


async def issued(
    application: Application, *, by: str | None = None, expires_in: timedelta | None = None
) -> tuple[str, TokenInfo]:
    line = application.services.audit.begin(ALICE, "create_token", "test", None)
    return await application.services.access.issue(
        Context(line), wanted=TokenRequest(ALL, expires_in), by=by
    )


async def revoked(application: Application, info: TokenInfo) -> None:
    line = application.services.audit.begin(ALICE, "revoke_token", "test", None)
    await application.services.access.revoke(Context(line), info, force=True)


async def accessors(application: Application) -> set[str]:
    return {one.accessor for one in await application.services.access.tokens(ALICE)}


async def test_a_job_that_has_ended_is_kept_for_its_days(open_app: Open, clock: Clock) -> None:
    """Jobs that are due, running or stopped for a rejected key stay. Memories stay too."""
    async with open_app(job_days=30) as application:
        await enter(application)
        await remember(application, "Ann: I live in Lisbon.")
        await drained(application)
        old = {row["id"] for row in await jobs(application)}
        waits = (await remember(application, "Ben: I live in Oslo.")).job_id
        keyless = (await remember(application, "Cem: I live in Bonn.")).job_id
        async with application.store.driver.transaction(namespace=ALICE, write=True) as raw:
            await raw.fetch(
                "UPDATE operations SET state = 'failed', error_code = 'MODEL_KEY_REJECTED', "
                f"finished_at = created_at WHERE id = '{keyless}'",
                {},
            )
        clock.pass_(29 * DAY)
        await application.services.retention.once()
        young = {row["id"] for row in await jobs(application)}
        clock.pass_(2 * DAY)
        await application.services.retention.once()
        left = {row["id"] for row in await jobs(application)}
        found = await memories(application)

    assert old
    assert young == old | {waits, keyless}
    assert left == {waits, keyless}
    assert [one.text for one in found]


async def test_a_token_that_has_ended_is_unknown_after_its_days(
    open_app: Open, clock: Clock
) -> None:
    """It is refused as before. Its children and everything that it started are removed first."""
    async with open_app(ended_token_days=30) as application:
        await enter(application)
        token, info = await issued(application)
        _, child = await issued(application, by=info.accessor)
        _, short = await issued(application, expires_in=DAY)
        await revoked(application, info)
        clock.pass_(20 * DAY)
        await application.services.retention.once()
        listed = await accessors(application)
        clock.pass_(15 * DAY)
        await application.services.retention.once()
        first = await accessors(application)
        await application.services.retention.once()
        second = await accessors(application)
        with pytest.raises(Unauthenticated):
            await application.services.access.verify(token)
        book = await application.services.audit.newest(ALICE, 100)

    assert {info.accessor, child.accessor, short.accessor} < listed
    assert {child.accessor, short.accessor}.isdisjoint(first)
    assert info.accessor in first
    assert len(second) == 1
    removed = [line for line in book if line.operation == "remove_tokens"]
    assert sorted(line.counts["tokens"] for line in removed) == [1, 2]


async def test_all_is_kept_for_ever_where_no_days_are_set(open_app: Open, clock: Clock) -> None:
    async with open_app() as application:
        await enter(application)
        _, info = await issued(application)
        await revoked(application, info)
        await remember(application, "Ann: I live in Lisbon.")
        await drained(application)
        clock.pass_(4_000 * DAY)
        before = (await jobs(application), await accessors(application))
        await application.services.retention.once()
        after = (await jobs(application), await accessors(application))
        done = application.services.retention.days.any
        verified = await application.services.verification.verify(context(application).namespace)

    assert (before, done) == (after, False)
    assert verified.first == 1
