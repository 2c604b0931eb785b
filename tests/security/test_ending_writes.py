"""A write leaves nothing if its token is revoked after the call was accepted and before the
commit.
"""

import io
from collections.abc import Awaitable, Callable

import pytest

from recall_server.application import Application
from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context
from recall_server.domain.errors import Unauthenticated
from recall_server.domain.intents import Intent
from recall_server.domain.permissions import OPERATOR, Bearer, Rights, Scope
from recall_server.domain.plan import RelationKind
from recall_server.services.auth import TokenRequest
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Wish
from recall_server.storage.store import Store
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, memories, remember
from tests.support.transfer import exported

Begin = Callable[[], Context]
Write = Callable[[Application, Begin], Awaitable[object]]


async def submits(built: Application, begin: Begin) -> None:
    wish = Wish(Intent.REMEMBER, Submission("Ana owns a boat.", "life"))
    await built.services.intents.submit(begin(), wish)


async def proposes(built: Application, begin: Begin) -> None:
    wish = Wish(Intent.REMEMBER, Submission("Ana owns a boat.", "life"), review=True)
    await built.services.intents.submit(begin(), wish)


async def forgets(built: Application, begin: Begin) -> None:
    (first, *_) = await memories(built)
    wish = Wish(Intent.FORGET, Submission("", "life"), memory_id=first.id)
    await built.services.intents.submit(begin(), wish)


async def undoes(built: Application, begin: Begin) -> None:
    page = await built.services.changes.page(context(built), None)
    await built.services.changes.undo(
        begin(), page.changes[0].id, rights=OPERATOR, dry_run=False, with_dependents=True
    )


async def mends(built: Application, begin: Begin) -> None:
    await built.services.rebuild.mend(begin())


async def reads_anew(built: Application, begin: Begin) -> None:
    await built.services.rebuild.reextract(ALICE, begin, lambda _: None)


async def imports(built: Application, begin: Begin) -> None:
    def entry() -> AuditEntry:
        return begin().entry

    await built.services.importing.take(ALICE, io.BytesIO(await exported(built)), entry=entry)


async def rechecks(built: Application, begin: Begin) -> None:
    await built.services.recheck.begin(begin())


async def relates(built: Application, begin: Begin) -> None:
    first, second = await memories(built)
    await built.services.intents.relate(begin(), first.id, RelationKind.EXTENDS, second.id, 1.0)


WRITES: tuple[Write, ...] = (
    *(submits, proposes, forgets, undoes, mends, reads_anew, imports, rechecks, relates),
)


@pytest.mark.parametrize("stands", [True, False], ids=["stands", "revoked"])
@pytest.mark.parametrize("write", WRITES, ids=[one.__name__ for one in WRITES])
async def test_a_write_commits_only_while_its_token_stands(
    open_app: Open, write: Write, stands: bool
) -> None:
    """The control: the write of a valid token is stored, with its audit record."""
    async with open_app() as built:
        await enter(built)
        for text in ("User: I live in Porto.", "User: I like figs."):
            await remember(built, text)
            await drained(built)
        rights = Rights(frozenset({Scope.ADMIN}))
        info = (await built.services.access.issue(context(built), wanted=TokenRequest(rights)))[1]
        operation = f"a {write.__name__}"

        def begin() -> Context:
            entry = built.services.audit.begin(ALICE, operation, "http", info.accessor)
            entry.bearer = Bearer(info.accessor, info.created_at)
            return Context(entry)

        if not stands:
            await built.services.access.revoke(context(built), info, force=True)
        before = await kept(built.store)
        if stands:
            await write(built, begin)
        else:
            with pytest.raises(Unauthenticated):
                await write(built, begin)
        after = await kept(built.store)
        book = await built.services.audit.newest(ALICE, 50)

    assert any(one.operation == operation for one in book) is stands
    assert stands or after == before


async def kept(store: Store) -> list[tuple[object, ...]]:
    """Return everything that a write may change."""
    async with store.transaction(ALICE, write=False) as tx:
        events = await tx.events.page(None, 1_000)
        jobs = await tx.jobs.counts()
    return [(events, jobs)]
