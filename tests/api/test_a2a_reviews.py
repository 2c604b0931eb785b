"""Another agent lists open reviews and answers them with messages, without a task."""

from typing import Any

import pytest
from a2a.client import Client
from a2a.helpers import get_data_parts, get_text_parts
from a2a.types import Role
from a2a.utils.errors import A2AError

from recall_server.domain.permissions import Rights, Scope
from recall_server.services.auth import TokenRequest
from tests.support.a2a_clients import BINDINGS, Json, agent, said
from tests.support.server import Running

pytestmark = pytest.mark.parametrize("binding", BINDINGS)

REVIEW = {"skill": "review_memories"}


async def reviewed(client: Client, *parts: str | Json, **given: Any) -> Json:
    """Send a message, and return the data of the answer."""
    (answer,) = [one async for one in client.send_message(said(*parts, **given))]
    assert answer.message.role == Role.ROLE_AGENT, answer
    assert get_text_parts(answer.message.parts)
    (data,) = get_data_parts(answer.message.parts)
    assert isinstance(data, dict)
    return data


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_proposal_is_listed_and_accepted_by_messages(
    running: Running, binding: str, *, streaming: bool
) -> None:
    token = await running.token()
    async with (
        running.http(token) as http,
        agent(running, token, binding, streaming=streaming) as client,
    ):
        proposal = {"text": "Ana lives in Porto.", "review": True}
        (change,) = (await http.post("/v1/memories:submit", json=proposal)).json()["changes"]
        (listed,) = (await reviewed(client, {**REVIEW, "kind": "proposal", "limit": 5}))["reviews"]
        in_words = await reviewed(client, "What waits for a decision?", metadata=REVIEW)
        done = await reviewed(client, {**REVIEW, "id": listed["id"], "choice": "accept"})
        left = await reviewed(client, REVIEW)
        found = (await http.get("/v1/memories")).json()["memories"]
        audit = (await http.get("/v1/audit?operation=answer_review")).json()["records"]

    assert listed["id"] == change["review_id"]
    assert listed["choices"] == ["accept", "edit", "reject"]
    assert in_words["reviews"] == [listed]
    assert (done["id"], done["kind"]) == (listed["id"], "proposal")
    assert left == {"reviews": []}
    assert [one["text"] for one in found] == ["Ana lives in Porto."]
    assert [one["protocol"] for one in audit] == ["a2a"]


async def test_what_cannot_be_answered_says_why(running: Running, binding: str) -> None:
    reader = TokenRequest(Rights(frozenset({Scope.READ, Scope.WRITE})))
    token, narrow = await running.token(), await running.token(wanted=reader)
    async with (
        agent(running, token, binding) as client,
        agent(running, narrow, binding) as other,
    ):
        unknown = {**REVIEW, "id": "prop_" + "0" * 26, "choice": "accept"}
        for asking, given, why in (
            (client, unknown, "Nothing that waits for this answer has this id"),
            (client, {**unknown, "choice": "burn"}, "choice"),
            (client, {**REVIEW, "canary": 1}, "review"),
            (other, REVIEW, "403"),
        ):
            with pytest.raises(A2AError) as refused:
                await reviewed(asking, given)
            assert why in str(refused.value)
