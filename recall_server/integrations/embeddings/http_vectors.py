"""The embedder behind an OpenAI-compatible endpoint: Ollama, llama.cpp, vLLM and many services."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Sequence
from http import HTTPStatus

import httpx2
import numpy as np

from recall_server.domain.errors import EmbedderUnavailable
from recall_server.integrations.embeddings import Vectors, fill_rows, non_blank

# Enough for a vector of 8,192 numbers with 20 digits each.
ANSWER_BYTES_PER_TEXT = 262_144
# Seconds that an idle connection is kept: fewer than servers keep it (5 and more), or a request
# could go to a connection that is just being closed.
IDLE_S = 2.0


class HttpEmbedder:
    """The port `Embedder` over `POST {url}/embeddings`, `batch` texts at a time.

    At most `TEXT_CHARS_MAX` characters of a text are sent. A blank text is the zero vector and is
    not sent, as services refuse it. The first answer sets the length of a row, and every later one
    must have it. No redirect is followed: the key is for this address alone. Raises
    `EmbedderUnavailable` if there is no valid answer within `timeout_s` seconds; its message holds
    nothing of the texts, the key or the answer.
    """

    def __init__(
        self, model_name: str, *, url: str, api_key: str | None, timeout_s: float, batch: int
    ) -> None:
        self._model_name = model_name
        self._url = f"{url}/embeddings"
        self._headers = {"User-Agent": "recall-server", "Accept-Encoding": "identity"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout_s = timeout_s
        self._batch = batch
        self._tls: ssl.SSLContext | None = None
        self._client: httpx2.AsyncClient | None = None
        self._dimensions = 0

    @property
    def model(self) -> str:
        # Not the address: the same model is the same wherever it runs.
        return f"http/{self._model_name}"

    @property
    def dimensions(self) -> int:
        if not self._dimensions:
            raise EmbedderUnavailable
        return self._dimensions

    async def load(self) -> None:
        """Do nothing: the model is not on this machine."""

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        sent, places = non_blank(texts)
        parts = [
            await self._embed_batch(
                [sent[number] for number in places[start : start + self._batch]]
            )
            for start in range(0, len(places), self._batch)
        ]
        return fill_rows(parts, places, len(texts), self._dimensions)

    async def _embed_batch(self, texts: list[str]) -> Vectors:
        try:
            async with asyncio.timeout(self._timeout_s):
                body = await self._post({"model": self._model_name, "input": texts}, len(texts))
        except TimeoutError:
            raise _unavailable(f"did not answer within {self._timeout_s:g} seconds") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError):
            # Without its cause, which may quote the request.
            raise _unavailable("cannot be reached, or does not speak HTTP") from None
        try:
            rows = await asyncio.to_thread(_rows, body, len(texts))
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
            raise _unavailable("answered with something else than a vector for each text") from None
        if self._dimensions not in (0, rows.shape[1]):
            raise _unavailable(
                f"answers with {rows.shape[1]} dimensions, and answered with {self._dimensions} "
                "before: it is another model now. Restart with a setting that names it"
            )
        self._dimensions = rows.shape[1]
        return rows

    async def _post(self, question: dict[str, object], count: int) -> bytes:
        client = await self._opened()
        async with client.stream("POST", self._url, json=question) as response:
            if response.status_code != HTTPStatus.OK:
                raise _unavailable(f"answered {response.status_code}")
            body = bytearray()
            # Raw: decompressing could turn a small answer into a huge one.
            async for part in response.aiter_raw():
                body += part
                if len(body) > ANSWER_BYTES_PER_TEXT * (count + 1):
                    raise _unavailable("answered at too great a length")
        return bytes(body)

    async def _opened(self) -> httpx2.AsyncClient:
        # Opened on first use, as reading the system's certificates takes a while. It ignores the
        # environment: a proxy that is meant for other programs would see every text.
        if self._tls is None:
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context, trust_env=False)
        if self._client is None:
            self._client = httpx2.AsyncClient(
                verify=self._tls,
                headers=self._headers,
                timeout=self._timeout_s,
                limits=httpx2.Limits(keepalive_expiry=IDLE_S),
                follow_redirects=False,
                trust_env=False,
            )
        return self._client


def _rows(body: bytes, count: int) -> Vectors:
    """Return the vectors of an answer in the order of their texts, scaled to length 1. Raises
    `ValueError`, `TypeError`, `LookupError` and the like on a document of another shape.
    """
    data = json.loads(body)["data"]
    by_index = {one["index"]: one["embedding"] for one in data}
    rows = np.array([by_index[number] for number in range(count)])
    if len(data) != count or rows.ndim != 2 or rows.shape[1] == 0 or rows.dtype.kind not in "if":
        raise ValueError
    with np.errstate(over="ignore"):
        rows = rows.astype(np.float32)
    if not np.isfinite(rows).all():
        raise ValueError
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    unit = rows / np.where(lengths > np.finfo(np.float32).tiny, lengths, np.inf)
    return unit.astype(np.float32)


def _unavailable(what: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"The embedder at RECALL_EMBEDDER_URL {what}. Search goes on by keywords and says so."
    )
