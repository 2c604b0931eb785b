"""What must be kept is not erased, and who tried is in the book."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from recall_server.app import House
from recall_server.domain.errors import Invalid, NotFound, OnHold
from recall_server.domain.model import Namespace
from recall_server.services.tasks import HELD_REST
from tests.conftest import Clock, Open
from tests.security.books import recall
from tests.security.erasing import CONFIRM, erase_all, rows
from tests.services.conversation import ALICE, drained, enter, entry, memories, remember
from tests.surface.bindings import Wire
from tests.surface.conftest import LEGACY, Running, running, told

__all__ = ["running"]

BOB = Namespace("bob")
REASON = "Case 17 K 4"


async def hold(house: House, namespace: Namespace = ALICE) -> None:
    line = house.services.audit.begin(namespace, "set_hold", "cli", None)
    await house.services.holds.place(namespace, REASON, entry=line)


async def lift(house: House, namespace: Namespace = ALICE) -> None:
    line = house.services.audit.begin(namespace, "lift_hold", "cli", None)
    await house.services.holds.lift(namespace, entry=line)


async def test_nothing_of_a_namespace_on_hold_is_erased(open_house: Open) -> None:
    """ERS-10: neither all nor a memory nor a subject, until it is lifted; another's is."""
    async with open_house() as house:
        for owner in (ALICE, BOB):
            await enter(house, owner)
        await remember(house, "User: I live in Lisbon.")
        await drained(house)
        (memory,) = await memories(house)
        await hold(house)
        before = await rows(house.store)
        erasing = house.services.erase
        for refused in (
            erasing.namespace(ALICE, CONFIRM, entry=entry(house)),
            erasing.memory(ALICE, memory.id, entry=entry(house)),
            erasing.subject(ALICE, "Lisbon", entry=entry(house)),
        ):
            with pytest.raises(OnHold, match=REASON):
                await refused
        assert {**await rows(house.store), "audit_details": 0} == {**before, "audit_details": 0}
        shown = await erasing.memory(ALICE, memory.id, dry_run=True, entry=entry(house))
        assert shown.counts["memories"] == 1
        assert [(one.namespace, one.because) for one in await house.services.holds.all()] == [
            (ALICE, REASON)
        ]
        await erase_all(house, BOB)  # the positive control

        await lift(house)
        await erase_all(house)
        assert await house.services.holds.all() == []
        book = await house.services.audit.newest(ALICE, 100)
    assert {line.operation for line in book} >= {"lift_hold", "set_hold"}


async def test_a_hold_needs_a_namespace_and_a_reason(open_house: Open) -> None:
    async with open_house() as house:
        with pytest.raises(NotFound):
            await hold(house)
        await enter(house)
        with pytest.raises(NotFound):
            await lift(house)
        with pytest.raises(Invalid):
            await house.services.holds.place(ALICE, " ", entry=entry(house))
        await hold(house)
        await hold(house)  # again is no harm


async def test_whoever_asks_is_told_with_409_and_the_book_knows(running: Running) -> None:
    """ERS-10, at every door that erases."""
    token = await running.token()
    async with running.http(token) as http, running.client(token, LEGACY) as client:
        await hold(running.house)
        for body in ({"confirm": CONFIRM}, {"subject": "Lisbon"}):
            answer = await http.post("/v1/erasure", json=body)
            assert answer.status_code == 409
            assert answer.json()["code"] == "ON_HOLD"
            assert REASON in answer.json()["message"]
        refused = await told(client, "delete_namespace_data", confirm=CONFIRM)
        assert refused["code"] == "ON_HOLD"
        await lift(running.house)
        answer = await http.post("/v1/erasure", json={"subject": "Lisbon"})
        assert answer.status_code == 200
    book = await running.house.services.audit.newest(ALICE, 100)
    lines = sorted(line.operation for line in book if line.code == "ON_HOLD")
    assert lines == ["delete_namespace_data", "delete_namespace_data", "erase_subject"]


async def test_a_task_on_hold_outlives_its_days(running: Running, clock: Clock) -> None:
    """ERS-10: what would be removed by its age alone is kept as well."""
    async with running.http(await running.token()) as http:
        wire = Wire(http)
        task = await wire.task()
        await running.extract()
        await hold(running.house)
        clock.pass_(timedelta(days=running.house.settings.task_days + 1))
        await running.extract()
        token = await running.token()
        http.headers["Authorization"] = f"Bearer {token}"
        assert (await wire.result("GetTask", id=task["id"]))["id"] == task["id"]
        await lift(running.house)
        clock.pass_(HELD_REST)
        await running.extract()
        assert await wire.fault("GetTask", id=task["id"]) == "TASK_NOT_FOUND"


async def test_the_operator_sets_lists_and_lifts_a_hold(
    database: Path | str, open_house: Open
) -> None:
    async with open_house() as house:
        await enter(house)

    def commands() -> list[tuple[int, str]]:
        asked = [
            ("hold", "set", "alice", "--reason", REASON),
            ("hold", "list", "--json"),
            ("erase", "alice", "--yes"),
            ("hold", "lift", "alice"),
            ("erase", "alice", "--yes"),
        ]
        said = [recall(database, *one) for one in asked]
        return [(one.code, one.out + one.err) for one in said]

    placed, listed, refused, lifted, erased = await asyncio.to_thread(commands)

    assert (placed[0], lifted[0], erased[0]) == (0, 0, 0), (placed, lifted, erased)
    assert [one["reason"] for one in json.loads(listed[1])] == [REASON]
    assert refused[0] == 2
    assert "ON_HOLD" in refused[1]
    async with open_house() as house:
        book = await house.services.audit.newest(ALICE, 100)
    assert [line.code for line in book if line.operation == "delete_namespace_data"] == [
        None,
        "ON_HOLD",
    ]
