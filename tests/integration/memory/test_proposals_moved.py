"""An export holds proposals, and an import restores them as they were."""

import pytest

from recall_server.application import Application
from recall_server.domain.errors import NotFound, NotRestorable, NotWaiting
from recall_server.domain.ids import Namespace
from recall_server.domain.intents import Intent
from recall_server.domain.permissions import OPERATOR
from recall_server.domain.query import Query
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Report, Wish
from recall_server.services.tasks.reviews import Review, ReviewKind, Verdict
from tests.support.application import Open
from tests.support.conversation import ALICE, context, enter
from tests.support.transfer import BOB, exported, records, taken_in
from tests.support.whole_walk import ALL_RIGHTS


async def submit(
    application: Application, text: str, memory_id: str = "", *, review: bool = False
) -> Report:
    intent = Intent.CORRECT if memory_id else Intent.REMEMBER
    wish = Wish(intent, Submission(text, "life"), memory_id, review=review)
    return await application.services.intents.submit(context(application), wish)


async def waiting(application: Application, namespace: Namespace) -> dict[str, Review]:
    asked = context(application, namespace)
    found = await application.services.reviews.waiting(asked, {ReviewKind.PROPOSAL}, limit=10)
    return {one.proposed.new[0].text: one for one in found if one.proposed}


async def texts(application: Application, namespace: Namespace) -> set[str]:
    async with application.store.transaction(namespace, write=False) as tx:
        found = await tx.memories.page(limit=20, offset=0, type_="", topic="")
    return {one.text for one in found}


async def test_open_proposals_wait_where_an_export_is_taken_in(open_app: Open) -> None:
    """The proposer is kept, rejected ones stay hidden, and erased ones are not imported."""
    async with open_app() as application:
        await enter(application)
        reviews, recall = application.services.reviews, application.services.recall
        lisbon = await submit(application, "Ana lives in Lisbon.")
        (target,) = lisbon.plan.ids()[:1]
        await submit(application, "Ana lives in Porto.", target, review=True)
        await submit(application, "Bea plays chess.", review=True)
        await submit(application, "Kim likes figs.", review=True)
        await submit(application, "Zoe skis in Davos.", review=True)
        before = await waiting(application, ALICE)
        await reviews.answer(context(application), before["Kim likes figs."].id, Verdict.REJECT)
        await application.services.erase.subject(context(application), "Zoe")
        file = await exported(application)

        await taken_in(application, file, BOB)
        moved = await waiting(application, BOB)
        assert set(moved) == {"Ana lives in Porto.", "Bea plays chess."}
        assert {i: one.id for i, one in moved.items()} == {i: before[i].id for i in moved}
        assert await texts(application, BOB) == {"Ana lives in Lisbon."}
        (figs,) = [one["id"] for one in records(file, "memory") if one["text"] == "Kim likes figs."]
        with pytest.raises(NotRestorable):
            await recall.restore(context(application, BOB), figs)
        for one in moved.values():
            theirs = context(application, BOB)
            await reviews.answer(theirs, one.id, Verdict.ACCEPT, rights=ALL_RIGHTS)
        assert await texts(application, BOB) == {"Ana lives in Porto.", "Bea plays chess."}
        answered = next(iter(moved.values())).id
        with pytest.raises(NotWaiting):
            await reviews.answer(context(application, BOB), answered, Verdict.REJECT)
        erased = before["Zoe skis in Davos."].id
        with pytest.raises(NotFound):
            await reviews.answer(context(application, BOB), erased, Verdict.ACCEPT)

        # After a second import, an answered proposal does not wait again.
        await taken_in(application, file, BOB)
        assert await waiting(application, BOB) == {}


async def test_a_proposal_whose_target_was_left_out_of_a_file_does_not_wait(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        lisbon = await submit(application, "Ana lives in Lisbon.")
        (target,) = lisbon.plan.ids()[:1]
        await submit(application, "Ana lives in Porto.", target, review=True)
        await application.services.erase.memory(context(application), target)
        await taken_in(application, await exported(application), BOB)
        assert await waiting(application, ALICE) == {}
        assert await waiting(application, BOB) == {}


async def test_words_that_were_imported_as_hidden_are_hidden_by_an_undo(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await submit(application, "Bea plays chess.", review=True)
        file = await exported(application)
        await taken_in(application, file, BOB)
        (chess,) = (await waiting(application, BOB)).values()
        asked = context(application, BOB)
        recall, changes = application.services.recall, application.services.changes

        async def hits() -> list[str]:
            answer = await recall.search(context(application, BOB), Query("chess"))
            return [hit.text for hit in answer.hits]

        found = [await hits()]
        await application.services.reviews.answer(
            asked, chess.id, Verdict.ACCEPT, rights=ALL_RIGHTS
        )
        found.append(await hits())
        change_id = asked.entry.change
        for _ in range(2):
            undoing = context(application, BOB)
            await changes.undo(
                undoing, change_id, rights=OPERATOR, dry_run=False, with_dependents=False
            )
            change_id = undoing.entry.change
            found.append(await hits())

    assert found[1]
    assert found == [[], found[1]] * 2
