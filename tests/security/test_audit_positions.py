"""Changes that record themselves beside each other: the chain and revocations hold."""

import asyncio

import pytest

from recall_server.bootstrap import open_application
from recall_server.domain.errors import Unauthenticated
from recall_server.storage.store import Store
from tests.support.application import Open, settings_for
from tests.support.audit import ALICE, BOB, Database, enter, line
from tests.support.runtime import NOON


async def test_fifty_changes_at_once_in_two_processes_make_one_chain(
    database: Database, open_app: Open
) -> None:
    """In two processes' worth of houses, beside another tenant's chain."""
    async with (
        open_app() as one,
        open_application(settings_for(database, embedder="none")) as two,
    ):
        await enter(one, ALICE, BOB)

        async def look(store: Store, number: int) -> None:
            namespace = BOB if number < 5 else ALICE
            entry = line(one, namespace)
            async with store.transaction(namespace, entry=entry) as tx:
                await tx.memories.counts()
            assert entry.written

        await asyncio.gather(*(look(built.store, i) for i in range(25) for built in (one, two)))
        alice = await one.services.verification.verify(ALICE)
        bob = await two.services.verification.verify(BOB)

    assert (alice.seq, bob.seq) == (41, 11)


async def test_a_change_whose_token_is_revoked_meanwhile_is_refused(open_app: Open) -> None:
    """Behind the lock every revocation is seen that is in the audit log."""
    async with open_app() as built:
        await enter(built, ALICE)
        (token,) = await built.services.access.tokens(ALICE)

        async def look() -> None:
            entry = line(built)
            entry.accessor = token.accessor
            async with built.store.transaction(ALICE, entry=entry) as tx:
                await tx.memories.counts()

        await look()  # the control
        async with built.store.transaction(ALICE) as tx:
            assert await tx.access.revoke([token.accessor], NOON)
        with pytest.raises(Unauthenticated):
            await look()
        found = await built.services.verification.verify(ALICE)

    assert found.seq == 2
