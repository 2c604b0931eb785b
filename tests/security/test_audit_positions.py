"""A place in the book that is taken with what is read: the chain and revocations hold."""

import asyncio

import pytest

from recall_server.bootstrap import open_application
from recall_server.domain.errors import Unauthenticated
from recall_server.storage.store import Store
from tests.support.application import Open, settings_for
from tests.support.audit import ALICE, BOB, Database, enter, line
from tests.support.rows import enter as known
from tests.support.runtime import NOON


async def test_what_is_asked_comes_with_what_is_fetched_next(store: Store) -> None:
    await known(store, ALICE)
    async with store.transaction(ALICE) as tx:
        await tx.access.policy()
        asked = await tx.handle.ask("token", accessor="acc_alice")
        before = asked.rows
        await tx.lock()
        others = await tx.handle.fetch("tokens")
        after = asked.rows

    assert before is None
    assert after is not None
    assert (
        [row["accessor"] for row in after] == [row["accessor"] for row in others] == ["acc_alice"]
    )


async def test_nothing_can_be_asked_outside_of_a_transaction(store: Store) -> None:
    with pytest.raises(LookupError, match="transaction"):
        await store.autocommit(None).handle.ask("token_by_accessor", accessor="acc_alice")


@pytest.mark.parametrize("write", [False, True])
async def test_fifty_who_take_their_places_as_they_read_make_one_chain(
    database: Database, open_app: Open, *, write: bool
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
            async with store.transaction(namespace, write=write, entry=entry) as tx:
                await tx.memories.counts()
                await tx.closing()
                await tx.memories.counts()
            assert entry.written

        await asyncio.gather(*(look(built.store, i) for i in range(25) for built in (one, two)))
        alice = await one.services.verification.verify(ALICE)
        bob = await two.services.verification.verify(BOB)

    assert (alice.seq, bob.seq) == (41, 11)


@pytest.mark.parametrize("write", [False, True])
async def test_a_token_that_is_revoked_meanwhile_is_refused_where_its_place_was_taken(
    open_app: Open, *, write: bool
) -> None:
    """Behind the lock every revocation is seen that is in the book."""
    async with open_app() as built:
        await enter(built, ALICE)
        (token,) = await built.services.access.tokens(ALICE)

        async def look() -> None:
            entry = line(built)
            entry.accessor = token.accessor
            async with built.store.transaction(ALICE, write=write, entry=entry) as tx:
                await tx.closing()
                await tx.memories.counts()

        await look()  # the control
        async with built.store.transaction(ALICE) as tx:
            assert await tx.access.revoke([token.accessor], NOON)
        with pytest.raises(Unauthenticated):
            await look()
        found = await built.services.verification.verify(ALICE)

    assert found.seq == 2
