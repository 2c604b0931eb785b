"""Webhooks on the command line, and with the receiver of the documentation."""

import asyncio
import json
import os
import re
import sys
from functools import partial
from pathlib import Path

import httpx2
import pytest
from cryptography.fernet import Fernet

from tests.support.cli import Said, recall
from tests.support.length import has_full_length, on_both_at_full_length
from tests.support.models import Manner, Reply
from tests.support.paths import ROOT
from tests.support.processes import Server, free_port, new_token, until
from tests.support.receivers import Receiver, loopback
from tests.support.webhooks import SECRET_KEY

WITHIN_S = 60.0


def script() -> str:
    page = (ROOT / "docs" / "operate" / "webhooks.md").read_text(encoding="utf-8")
    [found] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return str(found)


@on_both_at_full_length
@has_full_length
@pytest.mark.slow
async def test_the_receiver_of_the_page_takes_what_is_signed_and_nothing_else(
    database: Path | str,
) -> None:
    port = free_port()
    url, settings = f"http://127.0.0.1:{port}/", {"push_allowed_hosts": "127.0.0.1"}
    async with Server(database, secret_key=SECRET_KEY, embedder="none", **settings) as server:
        token = (await new_token(database, "alice", "--scope", "admin"))["token"]
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(
            headers=headers, base_url=server.address, verify=False, trust_env=False
        ) as http:
            given = {"url": url, "kinds": ["memory.added"], "include_text": True}
            hook = (await http.post("/v1/webhooks", json=given)).json()
            receiver = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", script().replace("9000", str(port))),
                env={**os.environ, "WEBHOOK_SECRET": hook["secret"]},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                assert receiver.stdout is not None
                await http.post("/v1/memories", json={"text": "User: I live in Porto."})
                async with asyncio.timeout(WITHIN_S):
                    line = (await receiver.stdout.readline()).decode()
                forged = await http.post(
                    url,
                    content=line.partition(" ")[2],
                    headers={
                        "webhook-id": "hook_x_1",
                        "webhook-timestamp": "1",
                        "webhook-signature": "v1,AAAA",
                    },
                )
            finally:
                receiver.kill()
                await receiver.wait()

    message_id, _, body = line.partition(" ")
    assert message_id.startswith(f"{hook['id']}_")
    assert "Porto" in json.loads(body)["data"]["text"]
    assert forged.status_code == 401


@pytest.mark.slow
async def test_an_event_is_told_although_the_server_was_killed_as_it_told_it(
    database: Path | str,
) -> None:
    settings = {"secret_key": SECRET_KEY, "push_allowed_hosts": "127.0.0.0/8", "embedder": "none"}
    async with (
        Receiver(Reply(manner=Manner.HANG), host=loopback()) as receiver,
        Server(database, **settings) as server,
    ):
        token = (await new_token(database, "alice", "--scope", "admin"))["token"]
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(
            headers=headers, base_url=server.address, verify=False, trust_env=False
        ) as http:
            given = {"url": receiver.url, "kinds": ["memory.added"]}
            assert (await http.post("/v1/webhooks", json=given)).status_code == 201
            await http.post("/v1/memories", json={"text": "User: I live in Porto."})

            async def asked(times: int) -> bool:
                return len(receiver.requests) >= times

            await until(partial(asked, 1), WITHIN_S, "it is told")
            await server.kill()
            await server.start()
            await until(partial(asked, 2), WITHIN_S, "it is told again")

    first, second = receiver.requests
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


def test_an_operator_adds_lists_tests_and_removes_a_webhook(tmp_path: Path) -> None:
    place = {"recall_db_path": tmp_path / "recall.db", "recall_secret_key": SECRET_KEY}
    # Nothing listens at this address.
    url = f"http://127.0.0.1:{free_port()}/hook"

    def said(*command: str, **settings: object) -> Said:
        return recall(*command, **(place | settings))

    assert said("create-token", "alice", "--create").code == 0
    refused = said("webhooks", "add", "alice", url)
    allowed = {"recall_push_allowed_hosts": "127.0.0.1"}
    another_key = {"recall_secret_key": Fernet.generate_key().decode()}
    added = said("webhooks", "add", "alice", url, "--kind", "memory.added", **allowed)
    listed = json.loads(said("webhooks", "list", "alice", "--json").out)
    tested = said("webhooks", "test", "alice", listed[0]["id"], **allowed)
    unopened = said("webhooks", "test", "alice", listed[0]["id"], **allowed, **another_key)
    removed = said("webhooks", "remove", "alice", listed[0]["id"])
    left = said("webhooks", "list", "alice")

    assert (refused.code, "PUSH_URL_REFUSED" in refused.err) == (2, True)
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/=]{44}\n", added.out)
    assert listed[0]["id"] in added.err
    assert [(one["url"], one["kinds"], one["state"]) for one in listed] == [
        (url, ["memory.added"], "active")
    ]
    assert (tested.code, "no answer [PUSH_FAILED]" in tested.out) == (1, True)
    assert (unopened.code, "nothing was sent [SECRET_UNREADABLE]" in unopened.out) == (1, True)
    assert (removed.code, left.out) == (0, "No webhooks yet.\n")
