"""Web pages of allowed origins may call and read answers, and others may not."""

from collections.abc import AsyncIterator

import pytest

from recall_server.api.app import create_app
from recall_server.server import bound, listening
from tests.support.application import Open
from tests.support.server import Running

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)

PAGE, OTHER = "https://app.example.com", "https://evil.example.com"
ASKS = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


@pytest.fixture
async def running(open_app: Open) -> AsyncIterator[Running]:
    async with (
        open_app(port=0, allowed_origins=PAGE) as built,
        listening(create_app(built), built.settings, bound(built.settings)) as address,
    ):
        yield Running(built, address)


@pytest.mark.parametrize("path", ["/v1/search", "/mcp", "/a2a"])
async def test_the_preflight_of_an_allowed_page_is_answered(running: Running, path: str) -> None:
    async with running.http() as http:
        answer = await http.options(path, headers={"Origin": PAGE, **ASKS})

    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert "POST" in answer.headers["Access-Control-Allow-Methods"]
    assert "authorization" in answer.headers["Access-Control-Allow-Headers"].lower()
    assert "Access-Control-Allow-Credentials" not in answer.headers


async def test_an_allowed_page_can_read_answers_and_refusals(running: Running) -> None:
    async with running.http(await running.token()) as http, running.http() as stranger:
        found = await http.post("/v1/search", json={"query": "tea"}, headers={"Origin": PAGE})
        refused = await stranger.post("/v1/search", json={}, headers={"Origin": PAGE})
        malformed = await http.post("/v1/search", content="{", headers={"Origin": PAGE})

    assert [one.status_code for one in (found, refused, malformed)] == [200, 401, 415]
    for answer in (found, refused, malformed):
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE
        assert "Origin" in answer.headers["Vary"]
        exposed = answer.headers["Access-Control-Expose-Headers"]
        assert {"WWW-Authenticate", "Retry-After"} <= set(exposed.split(", "))


async def test_nothing_is_said_to_another_page(running: Running) -> None:
    async with running.http(await running.token()) as http:
        answers = [
            await http.options("/v1/search", headers={"Origin": OTHER, **ASKS}),
            await http.post("/v1/search", json={"query": "tea"}, headers={"Origin": OTHER}),
            await http.post("/v1/search", json={"query": "tea"}),
        ]

    assert [one.status_code for one in answers] == [403, 403, 200]
    for answer in answers:
        assert not [name for name in answer.headers if name.startswith("access-control")]
