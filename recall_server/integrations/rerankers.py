"""Re-ranking: scores how well each of a few texts answers a question.

The port, and its two re-rankers: by a cross-encoder, a model that reads question and text together;
and by late interaction: each word of the question is compared with the word of a text that is
nearest to it (Khattab & Zaharia 2020, ColBERT), by the token vectors of a small embedding model.
"""

from __future__ import annotations

import importlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain
from types import ModuleType
from typing import Any, NamedTuple, Protocol, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.errors import RerankerUnavailable
from recall_server.domain.ids import Namespace
from recall_server.domain.text.terms import terms
from recall_server.integrations.embeddings import TEXT_CHARS_MAX, ModelThread, OnThread, Running


class RerankQuery(NamedTuple):
    """The question as it was asked, and as the person whom it names would ask it. `weights` has the
    idf in the namespace of each of its terms (as `terms` makes them) that the namespace has.

    A re-ranker may cache what it computes for a namespace, apart from all others, until `epoch`
    changes: an erasure changes it.
    """

    text: str
    in_first_person: str
    weights: Mapping[str, float]
    namespace: Namespace
    epoch: int


class Passage(NamedTuple):
    """The text of a hit, the turn that it comes from, and the turns around that."""

    text: str
    said: str | None = None
    around: tuple[str, ...] = ()


class Reranker(Protocol):
    """Scores the best hits of a search anew: from 0 to 1, the higher the better.

    Raises `RerankerUnavailable` if it cannot; the order then stays as it was, and the answer says
    so.
    """

    @property
    def name(self) -> str:
        """The name in the provenance: "maxsim/<model>", "cross-encoder/<model>"."""

    @property
    def judges(self) -> bool:
        """Whether a score says by itself how relevant a text is, so that it can be compared with a
        threshold. False if it only compares the texts of one question.
        """

    async def load(self) -> None:
        """Load the model from this machine. Raises `RerankerUnavailable`, which at the start means
        a wrong setting.
        """

    async def scores(self, query: RerankQuery, passages: Sequence[Passage]) -> list[float]:
        """Return one score for each of `passages`."""

    def forget(self, namespace: Namespace) -> None:
        """Drop what is cached for a namespace."""

    async def close(self) -> None: ...


class _PairEncoder(Protocol):
    def predict(
        self, inputs: list[tuple[str, str]], *, activation_fn: object, show_progress_bar: bool
    ) -> NDArray[np.float32]: ...


class CrossEncoderReranker(OnThread[_PairEncoder]):
    """The port `Reranker` over a model with one output, by name or path. Its output goes through
    the logistic function, which is what such a model is trained with: the score is how likely the
    text is relevant.
    """

    judges = True

    def __init__(self, model_name: str, **running: Unpack[Running]) -> None:
        super().__init__(ModelThread(model_name, _cross_encoder, RerankerUnavailable, **running))

    @property
    def name(self) -> str:
        return f"cross-encoder/{self._thread.name}"

    async def scores(self, query: RerankQuery, passages: Sequence[Passage]) -> list[float]:
        """Score the texts of the hits alone, without word weights and the turns around them."""
        pairs = [(query.text, one.text[:TEXT_CHARS_MAX]) for one in passages]
        return await self._thread.run(partial(_pair_scores, pairs=pairs)) if pairs else []

    def forget(self, namespace: Namespace) -> None:
        """Nothing is cached."""


def _cross_encoder(package: ModuleType, place: str, local: bool) -> _PairEncoder:
    return cast("_PairEncoder", package.CrossEncoder(place, local_files_only=local))


def _pair_scores(encoder: _PairEncoder, pairs: list[tuple[str, str]]) -> list[float]:
    sigmoid = importlib.import_module("torch").sigmoid
    scores = np.asarray(encoder.predict(pairs, activation_fn=sigmoid, show_progress_bar=False))
    if scores.shape != (len(pairs),) or not np.isfinite(scores).all():
        raise ValueError("not one score for each pair")
    return [float(score) for score in scores]


Tokens = NDArray[np.float16]
"""A row of length 1 for each token of a text."""

_DIGEST_BYTES = 16


class _NamespaceTokens:
    """The token vectors of one namespace, as of one epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.of: OrderedDict[bytes, Tokens] = OrderedDict()


class TokenVectors:
    """The token vectors of the texts scored last, within `bytes_max`. Each namespace has a cache of
    its own, so that no search is faster, or reveals anything, because of another namespace. The
    least recently scored texts of the least recently searched namespace are dropped first.

    One thread uses it; `forget` may be called from any thread.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._namespaces: OrderedDict[Namespace, _NamespaceTokens] = OrderedDict()

    @property
    def bytes(self) -> int:
        return sum(
            one.nbytes for tokens in list(self._namespaces.values()) for one in tokens.of.values()
        )

    def vectors(
        self,
        namespace: Namespace,
        epoch: int,
        texts: Sequence[str],
        make: Callable[[list[str]], Sequence[Tokens]],
    ) -> list[Tokens]:
        """Return the token vectors of `texts`, in their order; `make` computes those that are not
        cached. Vectors from before the latest epoch are dropped.
        """
        tokens = self._tokens_in(namespace, epoch)
        keys = [blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in tokens.of}
        if missing:
            tokens.of.update(zip(missing, make(list(missing.values())), strict=True))
        found = [tokens.of[key] for key in keys]
        for key in keys:
            tokens.of.move_to_end(key)
        self._trim()
        return found

    def forget(self, namespace: Namespace) -> None:
        """Drop what is cached for a namespace."""
        self._namespaces.pop(namespace, None)

    def _tokens_in(self, namespace: Namespace, epoch: int) -> _NamespaceTokens:
        tokens = self._namespaces.get(namespace)
        if tokens is None or tokens.epoch < epoch:
            tokens = self._namespaces[namespace] = _NamespaceTokens(epoch)
        elif tokens.epoch > epoch:
            # A reader that still sees the state before the erasure must not bring it back.
            return _NamespaceTokens(epoch)
        self._namespaces.move_to_end(namespace)
        return tokens

    def _trim(self) -> None:
        over = self.bytes - self._bytes_max
        while over > 0 and self._namespaces:
            namespace, tokens = next(iter(self._namespaces.items()))
            while tokens.of and over > 0:
                _, gone = tokens.of.popitem(last=False)
                over -= gone.nbytes
            if not tokens.of:
                self._namespaces.pop(namespace, None)


Floats = NDArray[np.float32]

# How many tokens of a text are read: twice as many take more than twice the time.
TOKENS_MAX = 128
TEXTS_AT_ONCE = 32
# The weight of the turns around a text, which name what "it" is. On LoCoMo .7 to .9 find about as
# much; without these turns R@10 is 1 point less.
BESIDE = 0.9
# A floor of the deviation: if all texts are equally near to a word, only noise tells them apart.
SPREAD_MIN = 0.02
# The penalty of a text that consists of questions, which answers nothing.
ASKING = 0.3
_WORD = re.compile(r"\S+")
_SENTENCE = re.compile(r"[^.?!]+[.?!]*")


class _TokenEncoder(Protocol):
    max_seq_length: int

    @property
    def tokenizer(self) -> Any: ...

    def encode(
        self, inputs: list[str], *, output_value: str, batch_size: int, show_progress_bar: bool
    ) -> Iterable[Any]: ...


class MaxSimReranker(OnThread[_TokenEncoder]):
    """The port `Reranker`. For each token of the question, asked in the first person, take the
    greatest cosine to any token of the text or, times `BESIDE`, of the turns around it, weighted by
    the idf of its word. Stop words weigh nothing, and an unknown word as much as the rarest.

    Half of a score is the mean of these. The other half is the mean of how far each is above the
    average of the passages, in deviations, so that a word to which all are near does not decide.
    Both halves are scaled to reach from 0 to 1 over the passages. The share of questions in a text,
    times `ASKING`, is subtracted.

    On LoCoMo, with MiniLM for both, 83.8 % of the evidence is among ten hits, and 81.1 % without
    it. Token vectors of texts are cached, up to `cache_bytes_max`: a question takes 54 ms of one
    processor if all are cached, and 1.6 s if none is.
    """

    judges = False

    def __init__(
        self, model_name: str, *, cache_bytes_max: int, **running: Unpack[Running]
    ) -> None:
        super().__init__(ModelThread(model_name, _token_encoder, RerankerUnavailable, **running))
        self.cache = TokenVectors(cache_bytes_max)

    @property
    def name(self) -> str:
        return f"maxsim/{self._thread.name}"

    async def scores(self, query: RerankQuery, passages: Sequence[Passage]) -> list[float]:
        if not passages:
            return []
        return await self._thread.run(
            partial(_token_scores, query=query, passages=passages, cache=self.cache)
        )

    def forget(self, namespace: Namespace) -> None:
        self.cache.forget(namespace)


def word_weights(query: str, weights: Mapping[str, float]) -> list[tuple[int, int, float]]:
    """Return the span of each word of the question, and its weight: that of its rarest term."""
    asked = set(terms(query))
    most = max(weights.values(), default=1.0)
    found = []
    for word in _WORD.finditer(query):
        of_word = [weights.get(term, most) for term in terms(word[0]) if term in asked]
        found.append((*word.span(), max(of_word, default=0.0)))
    return found


def _token_encoder(package: ModuleType, place: str, local: bool) -> _TokenEncoder:
    encoder = cast("_TokenEncoder", package.SentenceTransformer(place, local_files_only=local))
    encoder.max_seq_length = min(encoder.max_seq_length or TOKENS_MAX, TOKENS_MAX)
    return encoder


def _token_scores(
    encoder: _TokenEncoder, query: RerankQuery, passages: Sequence[Passage], cache: TokenVectors
) -> list[float]:
    question = query.in_first_person[:TEXT_CHARS_MAX]
    weights = _token_weights(encoder, question, query.weights)
    if not weights.any():
        return [0.0] * len(passages)
    (asked,) = _token_vectors(encoder, [question])
    if len(asked) != len(weights):
        raise ValueError("the question has other tokens than it was read with")
    own = [_own(one) for one in passages]
    around = [[text[:TEXT_CHARS_MAX] for text in one.around] for one in passages]
    texts = list(dict.fromkeys(chain(*own, *around)))
    read = cache.vectors(query.namespace, query.epoch, texts, partial(_token_vectors, encoder))
    wanted = weights > 0
    near = dict(zip(texts, _nearest(asked[wanted], read), strict=True))
    scores = _weighed(
        np.array([np.max([near[text] for text in of_one], axis=0) for of_one in own]),
        [[near[text] for text in of_one] for of_one in around],
        weights[wanted] / weights.sum(),
    )
    scores = _to_one(
        scores - ASKING * np.array([_asking(said) for said, *_ in own], dtype=np.float32)
    )
    if not np.isfinite(scores).all():
        raise ValueError("not a number")
    return [float(score) for score in scores]


def _own(passage: Passage) -> list[str]:
    """Return the turn of a passage, and the text of the hit unless the turn contains it."""
    said = (passage.said or passage.text)[:TEXT_CHARS_MAX]
    text = passage.text[:TEXT_CHARS_MAX]
    return [said] if text in said else [said, text]


def _nearest(asked: Tokens, texts: Sequence[Tokens]) -> Floats:
    """Return for each text (a row) and each token of the question the greatest cosine to any token
    of the text.
    """
    starts = np.cumsum([0, *(len(tokens) for tokens in texts[:-1])])
    cosines = np.concatenate(texts).astype(np.float32) @ asked.astype(np.float32).T
    nearest: Floats = np.maximum.reduceat(cosines, starts, axis=0)
    return nearest


def _weighed(own: Floats, beside: Sequence[Sequence[Floats]], weights: Floats) -> Floats:
    """Return the score of each passage, from 0 to 1; `own` and `beside` are cosines to each token
    of the question.
    """
    mean, spread = own.mean(axis=0), np.maximum(own.std(axis=0), SPREAD_MIN)
    above = (own - mean) / spread
    plain = own.copy()
    for place, others in enumerate(beside):
        for other in others:
            plain[place] = np.maximum(plain[place], BESIDE * other)
            above[place] = np.maximum(above[place], BESIDE * (other - mean) / spread)
    return _to_one(_to_one(plain @ weights) + _to_one(above @ weights))


def _to_one(values: Floats) -> Floats:
    """Scale values so that the least becomes 0 and the greatest 1; equal values all become 0."""
    width = max(float(np.ptp(values)), 1e-9)
    scaled: Floats = (values - values.min()) / width
    return scaled


def _asking(text: str) -> float:
    """Return the share of questions in a text, by characters."""
    asked = sum(len(one[0]) for one in _SENTENCE.finditer(text) if "?" in one[0])
    return asked / max(len(text), 1)


def _token_weights(encoder: _TokenEncoder, query: str, weights: Mapping[str, float]) -> Floats:
    """Return the weight of each token of the question; special tokens weigh nothing."""
    words = word_weights(query, weights)
    read = encoder.tokenizer(
        query, truncation=True, max_length=encoder.max_seq_length, return_offsets_mapping=True
    )
    found = [
        max((weight for start, end, weight in words if a < end and b > start), default=0.0)
        for a, b in read["offset_mapping"]
    ]
    return np.array(found, dtype=np.float32)


def _token_vectors(encoder: _TokenEncoder, texts: list[str]) -> list[Tokens]:
    """Return for each text a unit row for each token. The encoder sorts texts by length itself, so
    little is padded.
    """
    made = encoder.encode(
        texts,
        output_value="token_embeddings",
        batch_size=TEXTS_AT_ONCE,
        show_progress_bar=False,
    )
    return [_unit(tokens.numpy(force=True)) for tokens in made]


def _unit(rows: Floats) -> Tokens:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Tokens = (rows / np.maximum(lengths, np.finfo(np.float32).tiny)).astype(np.float16)
    return unit
