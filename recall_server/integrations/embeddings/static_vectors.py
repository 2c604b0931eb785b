"""The default embedder: static word vectors from wordllama's wheel, without network and torch."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

import numpy as np

from recall_server.domain.errors import EmbedderUnavailable
from recall_server.domain.text.terms import content_words, unspaced
from recall_server.integrations.embeddings import TEXT_CHARS_MAX, Vectors

DIMENSIONS = 256
# Texts of this many characters together take 0.25 ms: less than a switch to a thread.
INLINE_CHARS_MAX = 500
# How many words keep their vectors, of 1 KiB each. Most words of a search were in another one.
WORDS_MAX = 8_192

# Characters of Chinese, Japanese and Korean, of which most have no token of their own, and those
# among them that say little: hiragana, and what asks, points or counts.
_CHARACTER = re.compile("[\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]")
_NO_TOKEN = re.compile(f"[\u3041-\u3096]|{_CHARACTER.pattern}")
_LITTLE = frozenset("的了吗呢吧是在有就不也和都要会我你您他她这那个什么怎哪谁几多少何誰")
# About the length of the vector of a token that says something.
_CHARACTER_LENGTH = 13.0

Tokenize = Callable[[str], list[int]]


class StaticEmbedder:
    """The port `Embedder`: the mean of a text's word vectors, each text computed by itself.
    Function words of languages other than English, which the model does not know as such, are left
    out; a character of Chinese, Japanese or Korean has a vector of its own, which is like no other.

    So the vector of a text has the same bits alone and in any batch, and no padding costs memory. A
    blank text is the zero vector. The model is loaded on first use, and runs in one thread of its
    own, except for short texts. Raises `EmbedderUnavailable` on any failure; the next call tries
    again.
    """

    def __init__(self) -> None:
        # One thread, not a pool: it bounds the work, and concurrent first calls load once.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedder")
        self._loaded: tuple[Tokenize, Vectors] | None = None
        self._of_word = lru_cache(WORDS_MAX)(self._word)

    @cached_property
    def model(self) -> str:
        try:
            return f"wordllama/{DIMENSIONS}/{metadata.version('wordllama')}"
        except metadata.PackageNotFoundError:
            raise EmbedderUnavailable from None

    @property
    def dimensions(self) -> int:
        return DIMENSIONS

    async def load(self) -> None:
        await self.embed(["a", "b"])

    async def embed(self, texts: Sequence[str]) -> Vectors:
        try:
            short = sum(map(len, texts)) <= INLINE_CHARS_MAX
            if not texts or (short and self._loaded):
                return self._embed(texts)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._embed, texts)
        except Exception:  # noqa: BLE001 - a library may fail in any way; search does without
            # Without its cause, which may quote the text.
            raise EmbedderUnavailable from None

    def word_vectors(self, words: Sequence[str]) -> Vectors:
        rows = [self._of_word(word) for word in words]
        return np.stack(rows) if rows else np.zeros((0, DIMENSIONS), dtype=np.float32)

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _word(self, word: str) -> Vectors:
        row: Vectors = self._embed([word])[0]
        return row

    def _embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        if not texts:
            return vectors
        if self._loaded is None:
            self._loaded = _load()
        tokenize, table = self._loaded
        for row, text in enumerate(texts):
            said = content_words(text[:TEXT_CHARS_MAX].strip())
            characters = None
            if unspaced(said) and (found := _CHARACTER.findall(said)):
                characters = np.sum([_of_character(one) for one in found if one not in _LITTLE], 0)
                said = _NO_TOKEN.sub(" ", said).strip()
            vectors[row] = _direction(tokenize(said), table, characters)
        return vectors


@lru_cache(WORDS_MAX)
def _of_character(character: str) -> Vectors:
    """Return the vector of a character: from its hash, so nearly orthogonal to any other."""
    bits = np.frombuffer(
        hashlib.blake2b(character.encode(), digest_size=DIMENSIONS // 8).digest(), np.uint8
    )
    signs = np.unpackbits(bits).astype(np.float32) * 2 - 1
    vector: Vectors = signs * np.float32(_CHARACTER_LENGTH / np.sqrt(DIMENSIONS))
    return vector


def _direction(ids: list[int], table: Vectors, more: Vectors | None) -> Vectors:
    """Return the normalised sum of the vectors; zero if it has no direction or is not finite."""
    total: Vectors = table[ids].sum(axis=0, dtype=np.float32)
    if more is not None:
        total = total + more
    length = np.linalg.norm(total)
    if not np.isfinite(length) or length < np.finfo(np.float32).tiny:
        return np.zeros(DIMENSIONS, dtype=np.float32)
    return total / length


def _load() -> tuple[Tokenize, Vectors]:
    wordllama = _import_quietly()
    # Without `cache_dir` wordllama looks for its tokenizer in a wrong folder, then on the network.
    model = wordllama.WordLlama.load(
        cache_dir=Path(str(wordllama.__file__)).parent, dim=DIMENSIONS, disable_download=True
    )
    table: Vectors = model.embedding

    def tokenize(text: str) -> list[int]:
        ids: list[int] = model.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return tokenize, table


def _import_quietly() -> ModuleType:
    """Import wordllama, which calls `logging.basicConfig`, and leave logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        return importlib.import_module("wordllama")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
