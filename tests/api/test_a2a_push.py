"""A receiver gets the events of a task, in order and in the format of A2A."""

import json
from collections.abc import AsyncIterator

import pytest
from a2a.types import TaskPushNotificationConfig, TaskState
from a2a.utils.errors import InvalidParamsError
from cryptography.fernet import Fernet

from recall_server.api.app import create_app
from recall_server.server import bound, listening
from tests.support.a2a_clients import LISBON, agent, at_work, sent
from tests.support.application import Open
from tests.support.receivers import Receiver, loopback
from tests.support.server import Running


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver(host=loopback()) as receiver:
        yield receiver


@pytest.fixture
async def pushing(open_app: Open, receiver: Receiver) -> AsyncIterator[Running]:
    """Run a server that may reach the private address of the receiver, and no other private
    address.
    """
    async with (
        open_app(
            port=0,
            push_allowed_hosts=(receiver.authority,),
            secret_key=(Fernet.generate_key().decode(),),
        ) as built,
        listening(create_app(built), built.settings, bound(built.settings)) as address,
    ):
        yield Running(built, address)


async def test_a_receiver_that_came_with_the_message_is_told_all_in_order(
    pushing: Running, receiver: Receiver
) -> None:
    token = await pushing.token()
    config = TaskPushNotificationConfig(
        url=f"http://{receiver.authority}/hook",
        token="told-you",
        authentication={"scheme": "Bearer", "credentials": "s3cret"},
    )
    async with at_work(pushing), agent(pushing, token) as client:
        task = await sent(client, LISBON, configuration={"task_push_notification_config": config})
    await pushing.extract()

    bodies = [json.loads(request.body) for request in receiver.requests]
    kinds = [next(iter(body)) for body in bodies]
    assert kinds == ["statusUpdate", "artifactUpdate", "statusUpdate"]
    assert {body[kind]["taskId"] for body, kind in zip(bodies, kinds, strict=True)} == {task.id}
    assert bodies[-1]["statusUpdate"]["status"]["state"] == TaskState.Name(task.status.state)
    for request in receiver.requests:
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert headers["content-type"] == "application/a2a+json"
        assert headers["authorization"] == "Bearer s3cret"
        assert headers["x-a2a-notification-token"] == "told-you"


async def test_a_private_address_is_refused_before_anything_is_accepted(
    pushing: Running, receiver: Receiver
) -> None:
    token = await pushing.token()
    async with Receiver(host=loopback()) as secret, agent(pushing, token) as client:
        for url in (
            f"http://{secret.authority}/",
            "https://169.254.169.254/",
            "file:///etc/passwd",
        ):
            config = TaskPushNotificationConfig(url=url)
            with pytest.raises(InvalidParamsError):
                await sent(client, LISBON, configuration={"task_push_notification_config": config})
        await pushing.extract()
        assert secret.connections == 0
    assert receiver.requests == []
