"""The only doubles of the suite: a scripted model behind a real socket, a hashing embedder and a
clock that does not move by itself; and the passages that they read.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import re
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from functools import lru_cache
from types import TracebackType
from typing import Self

import numpy as np
import Stemmer
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from recall_server.domain.episode import Span, Turn
from recall_server.domain.errors import EmbedderUnavailable
from recall_server.domain.extraction import Passage
from recall_server.integrations.embeddings import Vectors


class Manner(Enum):
    """The way in which a reply is sent: correctly, or with a failure of the network."""

    WHOLE = auto()
    CUT = auto()
    """Half of the body, then the connection is closed."""
    HANG = auto()
    """Nothing, until the caller gives up."""
    TRICKLE = auto()
    """Status and headers, then a blank every few milliseconds until the caller gives up."""


@dataclass(frozen=True)
class Reply:
    """One line of the script."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    manner: Manner = Manner.WHOLE


def memories(entries: Sequence[Mapping[str, object]], **usage: int) -> Reply:
    """Return a well-formed answer with these entries; each needs `text` and `quote` at least."""
    text = json.dumps({"memories": [entry(**one) for one in entries]})
    return says(text, "end_turn", **usage)


def entry(**given: object) -> dict[str, object]:
    """Return one memory as the model writes it, complete except for the given fields."""
    return {
        "turn": 0,
        "type": "fact",
        **dict.fromkeys(("entity", "attribute", "value", "replaces", "valid_from")),
        "negated": False,
        "correction": False,
        "confidence": 0.9,
        "importance": 0.5,
        **given,
    }


def says(text: str, stop_reason: str = "end_turn", **usage: int) -> Reply:
    """Return a message whose one block is this text, whatever it contains."""
    return message([{"type": "text", "text": text}], stop_reason, **usage)


def message(content: object, stop_reason: str | None = "end_turn", **usage: int) -> Reply:
    """Return a message with this content, well-formed or not."""
    return json_reply(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-haiku-4-5",
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 100, "output_tokens": 20, **usage},
        }
    )


COMPLETIONS = "/v1/chat/completions"
"""The path of an OpenAI-compatible server."""


def completes(text: object, finish_reason: str | None = "stop", **given: object) -> Reply:
    """Return a chat completion whose message is this text; `given` are further fields of the
    message.
    """
    return completion([choice(text, finish_reason, **given)])


def choice(text: object, finish_reason: str | None = "stop", **given: object) -> dict[str, object]:
    said = {"role": "assistant", "content": text, **given}
    return {"index": 0, "message": said, "finish_reason": finish_reason}


def completion(choices: object, **given: object) -> Reply:
    """Return a chat completion with these choices, well-formed or not."""
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    return json_reply(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": choices,
            "usage": usage,
            **given,
        }
    )


def error(status: int, *, retry_after: str | None = None) -> Reply:
    """Return a refusal in the form of the Messages API."""
    headers = {"retry-after": retry_after} if retry_after is not None else {}
    body = {"type": "error", "error": {"type": "some_error", "message": "echo: the text"}}
    return json_reply(body, status=status, headers=headers)


def json_reply(
    body: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Reply:
    kind = {"content-type": "application/json"}
    return Reply(json.dumps(body).encode(), status, {**kind, **(headers or {})})


class ScriptedModel:
    """The Messages API, or another API at `path`, on a loopback port, with answers from a list:
    `async with ScriptedModel(...)`.

    Leaving the block fails if the list was too short or was not used up. `requests` holds the
    bodies that came in; `before_reply` is called (or awaited) before each answer is sent.
    """

    def __init__(
        self,
        script: Sequence[Reply] = (),
        *,
        path: str = "/v1/messages",
        before_reply: Callable[[], Awaitable[None] | None] | None = None,
    ) -> None:
        self.script = list(script)
        self.requests: list[dict[str, object]] = []
        self.headers: list[Mapping[str, str]] = []
        self._path = path
        self._before_reply = before_reply
        self._ran_dry = 0
        self._socket = socket.socket()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._socket.bind(("127.0.0.1", 0))
        app = Starlette(routes=[Route(self._path, self)])
        config = uvicorn.Config(
            app, http="h11", ws="none", lifespan="off", log_config=None, access_log=False
        )
        config.load()
        # Start and stop it here, since `serve` takes over the signals and ticks every 100 ms.
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=[self._socket])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._server.servers:
            server.close()
        state = self._server.server_state
        for connection in list(state.connections):
            connection.shutdown()
        for task in list(state.tasks):
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        self._socket.close()
        verdict = self._verdict()
        if failure is not None and verdict:
            failure.add_note(verdict)
        elif verdict:
            raise AssertionError(verdict)

    def _verdict(self) -> str:
        if self._ran_dry:
            return f"the script ran dry: {self._ran_dry} calls too many"
        return f"the script was not used up: {len(self.script)} left" if self.script else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.requests.append(await request.json())
        self.headers.append(dict(request.headers))
        if self._before_reply and inspect.isawaitable(waiting := self._before_reply()):
            await waiting
        if self.script:
            reply = self.script.pop(0)
        else:
            self._ran_dry += 1
            # A status that is not tried again, so that one call too many stays one.
            reply = error(400)
        await _send(reply, receive, send)


async def _send(reply: Reply, receive: Receive, send: Send) -> None:
    if reply.manner is Manner.HANG:
        await _hung_up(receive)
        return
    headers = [(key.encode(), value.encode()) for key, value in reply.headers.items()]
    if reply.manner is Manner.CUT:
        headers.append((b"content-length", str(len(reply.body) + 1).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if reply.manner is Manner.TRICKLE:
        while not await _hung_up(receive, within_s=0.002):
            await send({"type": "http.response.body", "body": b" ", "more_body": True})
        return
    # If an application ends before its body does, uvicorn closes the connection.
    more = reply.manner is Manner.CUT
    await send({"type": "http.response.body", "body": reply.body, "more_body": more})


async def _hung_up(receive: Receive, within_s: float | None = None) -> bool:
    try:
        async with asyncio.timeout(within_s):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return False
    return True


class HashEmbedder:
    """Unit vectors from hashed word stems: texts that share words are similar, others hardly.

    `failing = True` makes every call raise `EmbedderUnavailable`.
    """

    model = "hash/64"
    dimensions = 64

    def __init__(self, *, failing: bool = False) -> None:
        self.failing = failing
        self._stem = Stemmer.Stemmer("english").stemWord

    async def load(self) -> None:
        if self.failing:
            raise EmbedderUnavailable

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if self.failing:
            raise EmbedderUnavailable
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            if counts := Counter(map(self._stem, re.findall(r"\w+", text.lower()))):
                # The sums of whole numbers are exact in any order.
                times = np.fromiter(counts.values(), np.float32)
                vectors[row] = times @ np.stack([_signs(stem) for stem in counts])
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return (vectors / np.where(lengths == 0.0, 1.0, lengths)).astype(np.float32)

    async def close(self) -> None:
        """Do nothing: nothing is open."""


@lru_cache(maxsize=10_000)
def _signs(stem: str) -> Vectors:
    digest = hashlib.blake2b(stem.encode(), digest_size=HashEmbedder.dimensions // 8).digest()
    bits = np.unpackbits(np.frombuffer(digest, dtype=np.uint8))
    return bits.astype(np.float32) * 2 - 1


WHEN = datetime(2025, 3, 12, 9, 30, tzinfo=UTC)


def passage_of(*turns: tuple[str, str], first_index: int = 0) -> Passage:
    """Return a passage of (speaker, words), one on each line, with its label before it."""
    text, found = "", []
    for index, (speaker, words) in enumerate(turns, start=first_index):
        text += f"{speaker}: "
        span = Span(len(text), len(text) + len(words))
        found.append(Turn(index, span, speaker=speaker, said_at=WHEN))
        text += f"{words}\n"
    return Passage(text=text, turns=tuple(found), topic="work", occurred_at=WHEN)


class Pauses:
    """A clock that only moves when somebody sleeps, and records for how long."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def now(self) -> float:
        return sum(self.slept)


REACHED_S = 60.0


class Gate(HashEmbedder):
    """Lets no task pass until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = asyncio.Event()
        self._came = asyncio.Condition()
        self._count = 0

    async def embed(self, texts: Sequence[str]) -> Vectors:
        async with self._came:
            self._count += 1
            self._came.notify_all()
        await self.opened.wait()
        return await super().embed(texts)

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(REACHED_S), self._came:
            await self._came.wait_for(lambda: self._count >= count)
