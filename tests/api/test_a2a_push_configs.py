"""A client can register an address for notifications over either binding, and remove it."""

from collections.abc import AsyncIterator

import pytest

from recall_server.api.app import create_app
from recall_server.server import bound, listening
from tests.support.a2a_bindings import BY_HAND, HOOK, INVALID, NOT_FOUND, Json, Wire, fault, message
from tests.support.application import Open
from tests.support.engines import on_sqlite
from tests.support.server import Running

pytestmark = on_sqlite

KEY = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
CREATE, GET = "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig"
LIST, DELETE = "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"
SECRETS: Json = {
    "token": "canary-token",
    "authentication": {"scheme": "Bearer", "credentials": "canary-credentials"},
}


@pytest.fixture
async def running(open_app: Open) -> AsyncIterator[Running]:
    async with (
        open_app(port=0, secret_key=KEY) as built,
        listening(create_app(built), built.settings, bound(built.settings)) as address,
    ):
        yield Running(built, address)


@pytest.fixture(params=list(BY_HAND))
async def wire(running: Running, request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    async with running.http(await running.token()) as http:
        yield Wire(http, request.param)


async def test_a_configuration_is_made_found_listed_and_deleted(wire: Wire) -> None:
    task = await wire.task()
    made = await wire.result(CREATE, taskId=task["id"], url=HOOK, **SECRETS)
    named = await wire.result(CREATE, taskId=task["id"], url=HOOK, id="mine")

    assert made == {
        "id": made["id"],
        "taskId": task["id"],
        "url": HOOK,
        "authentication": {"scheme": "Bearer"},  # No answer shows a secret.
    }
    assert named["id"] == "mine"
    assert await wire.result(GET, taskId=task["id"], id=made["id"]) == made
    listed = (await wire.result(LIST, taskId=task["id"]))["configs"]
    assert sorted(listed, key=str) == sorted([made, named], key=str)
    for _ in range(2):
        deleted = await wire.answer(DELETE, taskId=task["id"], id=made["id"])
        assert "error" not in deleted.json()
    assert (await wire.result(LIST, taskId=task["id"]))["configs"] == [named]
    assert await wire.fault(GET, taskId=task["id"], id=made["id"]) == NOT_FOUND


async def test_configurations_are_listed_page_by_page(wire: Wire) -> None:
    task = await wire.task()
    for name in ("a", "b", "c"):
        await wire.result(CREATE, taskId=task["id"], url=HOOK, id=name)

    first = await wire.result(LIST, taskId=task["id"], pageSize=2)
    rest = await wire.result(LIST, taskId=task["id"], pageToken=first["nextPageToken"])
    assert [one["id"] for one in first["configs"] + rest["configs"]] == ["a", "b", "c"]
    assert not rest.get("nextPageToken")
    for wrong in ({"pageSize": -1}, {"pageToken": "canary\x00"}, {"pageSize": "canary"}):
        answer = await wire.answer(LIST, taskId=task["id"], **wrong)
        assert fault(answer) == INVALID, wrong
        assert "canary" not in answer.text


async def test_a_task_that_is_not_there_has_no_configurations(wire: Wire) -> None:
    asked: list[tuple[str, Json]] = [
        (CREATE, {"url": HOOK, "id": "mine"}),
        (GET, {"id": "mine"}),
        (LIST, {}),
        (DELETE, {"id": "mine"}),
    ]
    task = await wire.task()
    for operation, params in asked:
        assert await wire.fault(operation, taskId="task_unheard_of", **params) == NOT_FOUND
        control = await wire.answer(operation, taskId=task["id"], **params)
        assert "error" not in control.json(), operation


@pytest.mark.parametrize(
    "url",
    [
        "",
        "not a url",
        "file:///etc/passwd",
        "http://93.184.215.14/hook",
        "https://127.0.0.1:9/hook",
        "https://user:canary@93.184.215.14/hook",
        "https://93.184.215.14/\x00",
    ],
)
async def test_nothing_is_kept_of_an_address_that_may_not_be_reached(wire: Wire, url: str) -> None:
    task = await wire.task()
    refused = await wire.answer(CREATE, taskId=task["id"], url=url)
    config = {"returnImmediately": True, "taskPushNotificationConfig": {"url": url, "id": "x"}}
    sent = await wire.answer("SendMessage", message=message(), configuration=config)
    control = await wire.result(CREATE, taskId=task["id"], url=HOOK)

    assert fault(refused) == fault(sent) == INVALID
    assert "canary" not in refused.text + sent.text
    assert (await wire.result("ListTasks"))["totalSize"] == 1
    assert (await wire.result(LIST, taskId=task["id"]))["configs"] == [control]
