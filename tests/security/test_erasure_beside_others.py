"""What others read and write between two pieces of an erasure."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

import pytest

from recall_server.application import Application
from recall_server.domain.errors import MemoryNotFound
from recall_server.domain.moments import PRESENT, Past
from recall_server.domain.permissions import OPERATOR
from recall_server.domain.query import Query
from recall_server.integrations.keys import verified
from recall_server.services.erasure.eraser import Limits
from recall_server.services.erasure.purge import RECEIPT_TYP
from recall_server.services.erasure.targets import Batch
from tests.support.application import Open
from tests.support.containers import OTTER, RED, everything, put, start
from tests.support.conversation import context, drained, enter
from tests.support.counted import interrupted
from tests.support.erasure import erase_all, found, select
from tests.support.runtime import Clock
from tests.support.statements import Stating, cities
from tests.support.transfer import exported, taken_in

WHO = ("Ana", "Ben", "Cid", "Dan", "Eve", "Fay", "Gus", "Hal", "Ida", "Jon")
# All of it goes with its container, and half of it with the subject.
SAID = "\n".join(
    f"{'Zoe' if at % 2 else 'Yan'}: {one} lives in {one}town." for at, one in enumerate(WHO)
)
STAYS = "Xia: Kim lives in Rome."
PIECES = Limits(rows_at_once_max=6, batch=Batch(items=50, rows=3))

Erasing = Callable[[Application], Awaitable[object]]
Change = Callable[[], Awaitable[object]]


async def by_container(application: Application) -> None:
    await application.services.erase.container(context(application), RED)


async def by_subject(application: Application) -> None:
    await application.services.erase.subject(context(application), "Zoe")


BOTH = pytest.mark.parametrize(
    ("erase", "gone"), [(by_container, WHO), (by_subject, WHO[1::2])], ids=["container", "subject"]
)


async def filled(application: Application) -> None:
    await enter(application)
    for text, container in ((OTTER, ""), (SAID, RED), (STAYS, "")):
        await put(application, text, container)
    await drained(application)


async def listed(application: Application, past: Past = PRESENT) -> str:
    page = await application.services.recall.inspect(
        context(application), limit=50, offset=0, type_="", topic="", past=past
    )
    return str(page)


async def read(application: Application, past: Past) -> list[str]:
    """Return what each way to read shows."""
    recall, asked = application.services.recall, context(application)
    searched = [await found(application, f"{one}town") for one in WHO]
    then = [(await recall.search(asked, Query(f"{one}town", past=past))).hits for one in WHO]
    chains = [await recall.timeline(asked, one, "lives_in", past) for one in WHO]
    texts = await application.services.texts.page(asked, limit=50, offset=0)
    await recall.stats(asked)
    await recall.stats(asked, past, by_status=True)
    return [
        *map(str, (searched, then, chains)),
        *(await listed(application), await listed(application, past)),
        str(texts),
        (await exported(application)).decode(),
    ]


def shown(seen: Sequence[str], gone: Sequence[str]) -> list[int]:
    """Return how many of the erased words each way to read shows."""
    return [sum(f"{one}town" in text for one in gone) for text in seen]


@BOTH
async def test_readers_see_less_and_less_and_no_error(
    open_app: Open, clock: Clock, erase: Erasing, gone: Sequence[str]
) -> None:
    """Of a container nothing from the beginning, except in an export. Controls: all before."""
    async with open_app(extractor=Stating(), erasure_limits=PIECES) as application:
        await filled(application)
        past = Past(known_at=clock())
        clock.pass_(timedelta(hours=1))
        before = shown(await read(application, past), gone)
        await erase(application)
        counts = [before]

        async def look() -> None:
            counts.append(shown(await read(application, past), gone))

        with interrupted(application, None, look, times=999):
            await drained(application)
        counts.append(shown(await read(application, past), gone))
        left = await found(application, "Kim")

    assert before == [len(gone)] * len(before)
    assert len(counts) > 10
    assert counts[-1] == [0] * len(before)
    for earlier, later in pairwise(counts):
        assert all(b <= a for a, b in zip(earlier, later, strict=True))
    if erase is by_container:
        assert not any(sum(one[:-1]) for one in counts[1:])
    assert any("Rome" in text for text in left)


@BOTH
async def test_whatever_others_do_between_pieces_all_is_erased_and_nothing_else(
    open_app: Open, erase: Erasing, gone: Sequence[str]
) -> None:
    """Nor does an import of an older export bring it back, nor a rebuild or undo. Controls: what
    others did is there.
    """
    async with open_app(extractor=Stating(), erasure_limits=PIECES) as application:
        await filled(application)
        services = application.services
        older = await exported(application)
        known = await cities(application)
        kim, erased = known["Rome"].id, known[f"{gone[-1]}town"].id

        async def forget() -> None:
            await services.recall.forget(context(application), kim)

        async def undo() -> None:
            page = await services.changes.page(context(application), None)
            newest = next(one.id for one in page.changes if one.operation)
            await services.changes.undo(
                context(application), newest, rights=OPERATOR, dry_run=False, with_dependents=False
            )

        async def forget_erased() -> None:
            with suppress(MemoryNotFound):
                await services.recall.forget(context(application), erased)

        changes: list[Change] = [
            forget_erased,
            lambda: put(application, "Xia: Lea lives in Turin.", ""),
            forget,
            lambda: services.recall.restore(context(application), kim),
            undo,
            undo,
            lambda: taken_in(application, older),
            lambda: services.rebuild.mend(context(application)),
            lambda: services.erase.subject(context(application), gone[0]),
            forget,
        ]
        await erase(application)
        done = 0

        async def change() -> None:
            nonlocal done
            if done < len(changes):
                done += 1
                await changes[done - 1]()

        with interrupted(application, None, change, times=999):
            await drained(application)
        same = (await services.rebuild.compare(context(application))).same
        texts = str(await everything(application))
        states = await select(application.store, "SELECT state, left_behind FROM erasures")
        await taken_in(application, older)
        await services.rebuild.mend(context(application))
        await drained(application)
        later = str(await everything(application))
        present = await cities(application)

    assert done == len(changes)
    assert same
    for text in (texts, later):
        assert shown([text], gone) == [0]
        assert "otter" in text
    assert {(row["state"], row["left_behind"]) for row in states} == {("done", "")}
    assert "Turin" in present
    assert "Rome" not in present
    assert {f"{one}town" in present for one in WHO if one not in gone} <= {True}


async def test_a_task_that_begins_before_a_namespace_is_erased_is_in_its_receipt(
    open_app: Open,
) -> None:
    """It begins after the rows were counted. Control: no task is left."""
    async with open_app(extractor=Stating()) as application:
        await filled(application)

        async def begin() -> None:
            await start(application, "Xia: Mia lives in Bonn.", "")

        with interrupted(application, None, begin):
            erased = await erase_all(application)
        left = await select(application.store, "SELECT id FROM runs")
        claims = verified(erased.receipt, application.key.public, RECEIPT_TYP)

    assert erased.counts["runs"] == claims["counts"]["runs"] == 1
    assert left == []
