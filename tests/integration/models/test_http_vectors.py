"""The embedder behind an HTTP endpoint, with a real socket: what it sends, accepts and refuses."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from recall_server import factories
from recall_server.config import Settings
from recall_server.domain.errors import EmbedderUnavailable, Invalid
from recall_server.integrations.embeddings import TEXT_CHARS_MAX, HttpEmbedder
from tests.support.models import Manner, Reply, ScriptedModel, json_reply
from tests.support.stalls import readers_of_certificates

SECRET = "sk-very-secret"
TEXT = "the words of a tenant"
GOOD = [{"index": 0, "embedding": [3.0, 4.0]}]


def vectors(*rows: Sequence[float], status: int = 200) -> Reply:
    """Return a valid answer with its rows in another order."""
    data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
    return json_reply({"object": "list", "data": data[::-1], "model": "m"}, status=status)


@asynccontextmanager
async def endpoint(*script: Reply, **given: Any) -> AsyncIterator[tuple[ScriptedModel, Any]]:
    async with ScriptedModel(script, path="/v1/embeddings") as model:
        settings: dict[str, Any] = {"api_key": SECRET, "timeout_s": 30.0, "batch": 64, **given}
        embedder = HttpEmbedder("some-model", url=f"{model.url}/v1", **settings)
        try:
            yield model, embedder
        finally:
            await embedder.close()


async def refused(reply: Reply, text: str = TEXT, **given: Any) -> str:
    """Return the error message for an answer."""
    async with endpoint(reply, **given) as (_, embedder):
        with pytest.raises(EmbedderUnavailable) as caught:
            await embedder.embed([text])
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert text not in caught.value.message
    assert SECRET not in caught.value.message
    assert "echo" not in caught.value.message
    return caught.value.message


async def test_it_asks_as_the_api_is_asked_and_takes_the_vectors_by_their_index() -> None:
    async with endpoint(vectors([3.0, 4.0], [0.0, -2.0])) as (model, embedder):
        rows = await embedder.embed(["one", "two"])

    assert model.requests == [{"model": "some-model", "input": ["one", "two"]}]
    assert model.headers[0]["authorization"] == f"Bearer {SECRET}"
    assert rows.dtype == np.float32
    assert rows.tolist() == [pytest.approx([0.6, 0.8]), [0.0, -1.0]]
    assert embedder.dimensions == 2
    assert embedder.model == "http/some-model"


async def test_the_certificates_are_not_read_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers = readers_of_certificates(monkeypatch)
    async with endpoint(vectors([3.0, 4.0])) as (_, embedder):
        await embedder.embed(["one"])

    assert readers
    assert threading.get_ident() not in readers


async def test_without_a_key_none_is_sent() -> None:
    async with endpoint(vectors([1.0]), api_key=None) as (model, embedder):
        await embedder.embed(["one"])

    assert "authorization" not in model.headers[0]


async def test_many_texts_go_in_batches_and_come_back_in_their_order() -> None:
    script = vectors([1.0, 0.0], [0.0, 1.0]), vectors([-1.0, 0.0])
    async with endpoint(*script, batch=2) as (model, embedder):
        rows = await embedder.embed(["a", "b", "c"])

    assert [one["input"] for one in model.requests] == [["a", "b"], ["c"]]
    assert rows.tolist() == [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]


async def test_a_blank_text_is_the_zero_vector_and_is_not_sent() -> None:
    async with endpoint(vectors([1.0, 0.0])) as (model, embedder):
        rows = await embedder.embed([" ", "a", ""])

    assert model.requests[0]["input"] == ["a"]
    assert rows.tolist() == [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]


async def test_no_texts_ask_nobody() -> None:
    async with endpoint() as (_, embedder):
        assert len(await embedder.embed([])) == 0


async def test_of_a_very_long_text_the_beginning_is_sent() -> None:
    async with endpoint(vectors([1.0])) as (model, embedder):
        await embedder.embed(["x" * 1_000_000])

    assert model.requests[0]["input"] == ["x" * TEXT_CHARS_MAX]


async def test_loading_asks_nobody_and_dimensions_are_known_with_the_first_answer() -> None:
    async with endpoint(vectors([1.0, 0.0])) as (_, embedder):
        await embedder.load()
        with pytest.raises(EmbedderUnavailable):
            _ = embedder.dimensions
        await embedder.embed(["a"])
        assert embedder.dimensions == 2


async def test_other_dimensions_than_before_are_refused() -> None:
    async with endpoint(vectors([1.0, 0.0]), vectors([1.0, 0.0, 0.0])) as (_, embedder):
        await embedder.embed(["a"])
        with pytest.raises(EmbedderUnavailable, match="3 dimensions"):
            await embedder.embed(["a"])
        assert embedder.dimensions == 2


ECHO = {"error": {"message": f"echo: {TEXT}"}}


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
async def test_a_status_that_is_no_success_is_told_without_what_came_with_it(status: int) -> None:
    assert f"answered {status}" in await refused(json_reply(ECHO, status=status))


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_no_redirect_is_followed_least_of_all_with_the_key(status: int) -> None:
    async with ScriptedModel(path="/v1/embeddings") as other:
        to = {"location": f"{other.url}/v1/embeddings"}
        await refused(Reply(status=status, headers=to))

    assert other.requests == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"data": null}',
        b'{"data": []}',
        b'{"data": [{"embedding": [1.0]}]}',
        b'{"data": [{"index": 1, "embedding": [1.0]}]}',
        b'{"data": [{"index": 0, "embedding": []}]}',
        b'{"data": [{"index": 0, "embedding": 1.0}]}',
        b'{"data": [{"index": 0, "embedding": "AACAPw=="}]}',
        b'{"data": [{"index": 0, "embedding": ["1.0"]}]}',
        b'{"data": [{"index": 0, "embedding": [true]}]}',
        b'{"data": [{"index": 0, "embedding": [null]}]}',
        b'{"data": [{"index": 0, "embedding": [[1.0]]}]}',
        b'{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}',
        b'{"data": [{"index": 0, "embedding": [1e999, 1.0]}]}',
        b'{"data": [{"index": 0, "embedding": [1e300, 1e300]}]}',
        b'{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}',
        b'{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1]}]}',
    ],
    ids=repr,
)
async def test_an_answer_of_another_shape_is_refused(body: bytes) -> None:
    assert "something else than a vector for each text" in await refused(Reply(body))


async def test_rows_of_different_lengths_are_refused() -> None:
    async with endpoint(vectors([1.0], [1.0, 0.0])) as (_, embedder):
        with pytest.raises(EmbedderUnavailable):
            await embedder.embed(["a", "b"])


async def test_an_answer_without_end_is_cut_off() -> None:
    assert "too great a length" in await refused(Reply(b" " * 2_000_000))


async def test_an_answer_that_is_cut_in_the_middle_is_refused() -> None:
    body = json.dumps({"data": GOOD}).encode()

    assert "cannot be reached" in await refused(Reply(body, manner=Manner.CUT))


@pytest.mark.parametrize("manner", [Manner.HANG, Manner.TRICKLE])
async def test_an_answer_that_does_not_come_in_time_is_not_waited_for(manner: Manner) -> None:
    async with asyncio.timeout(10):
        message = await refused(Reply(manner=manner), timeout_s=0.5)

    assert "within 0.5 seconds" in message


async def test_where_nobody_listens_the_embedder_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        embedder = HttpEmbedder("m", url=url, api_key=None, timeout_s=5, batch=1)
        with pytest.raises(EmbedderUnavailable, match="cannot be reached"):
            await embedder.embed(["a"])
        await embedder.close()


async def test_after_a_failure_the_next_call_works() -> None:
    async with endpoint(Reply(status=500), vectors([1.0])) as (_, embedder):
        with pytest.raises(EmbedderUnavailable):
            await embedder.embed(["a"])
        assert (await embedder.embed(["a"])).tolist() == [[1.0]]


async def test_a_proxy_of_the_environment_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with endpoint(vectors([1.0])) as (_, embedder):
        assert len(await embedder.embed(["a"])) == 1


async def test_neither_key_nor_text_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with endpoint(vectors([1.0]), Reply(status=500)) as (_, embedder):
        await embedder.embed([TEXT])
        with pytest.raises(EmbedderUnavailable):
            await embedder.embed([TEXT])

    ours = [r.getMessage() for r in caplog.records if not r.name.startswith(("uvicorn", "asyncio"))]
    assert not any(SECRET in line or TEXT in line for line in ours)


async def test_the_settings_choose_it_with_its_address_and_key() -> None:
    async with ScriptedModel([vectors([1.0])], path="/v1/embeddings") as model:
        embedder = factories.embedder(
            Settings(
                embedder="http:nomic-embed-text",
                embedder_url=f"{model.url}/v1/",
                embedder_api_key=SECRET,
            )
        )
        assert embedder is not None
        await embedder.embed(["a"])
        await embedder.close()

    assert model.requests[0]["model"] == "nomic-embed-text"
    assert model.headers[0]["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    "given",
    [
        {"embedder": "http"},
        {"embedder": "http:m"},
        {"embedder": "http", "embedder_url": "http://x/v1"},
        {"embedder": "openai:m"},
    ],
)
def test_a_setting_that_says_too_little_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        factories.embedder(Settings(**given))


def test_the_key_is_shown_by_no_setting() -> None:
    assert SECRET not in repr(Settings(embedder_api_key=SECRET))
