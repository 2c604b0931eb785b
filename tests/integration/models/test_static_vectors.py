"""The embedders: the default one for real, and the optional one without its package."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import wordllama

from recall_server.domain.errors import EmbedderUnavailable
from recall_server.integrations import embeddings
from recall_server.integrations.embeddings import (
    INLINE_CHARS_MAX,
    TEXT_CHARS_MAX,
    SentenceEmbedder,
    StaticEmbedder,
    Vectors,
)
from tests.support.models import HashEmbedder

TEXTS = [
    "Ana moved to Lisbon in 2021 and works as a nurse.",
    "Ana lives in Lisbon.",
    "The build runs on GitHub Actions.",
    "x",
    "emoji 🦄 and 漢字, naïve café",
    "long " * 900,
    "",
]
shared = StaticEmbedder()


async def one(text: str) -> Vectors:
    row: Vectors = (await shared.embed([text]))[0]
    return row


async def test_rows_are_unit_vectors_of_256_finite_float32() -> None:
    vectors = await shared.embed(TEXTS[:-1])

    assert vectors.shape == (len(TEXTS) - 1, shared.dimensions) == (6, 256)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)


async def test_a_text_has_the_same_bits_alone_in_any_batch_and_in_any_order() -> None:
    together = await shared.embed(TEXTS)
    backwards = await shared.embed(TEXTS[::-1])
    alone = np.stack([await one(text) for text in TEXTS])

    assert together.tobytes() == alone.tobytes() == backwards[::-1].tobytes()


async def test_the_vectors_of_english_are_those_of_the_library() -> None:
    folder = Path(str(wordllama.__file__)).parent
    library = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    texts = [text for text in TEXTS if text and "漢字" not in text]

    vectors = await shared.embed(texts)

    np.testing.assert_allclose(
        vectors, library.embed([t.strip() for t in texts], norm=True), atol=1e-5
    )


async def test_alike_texts_are_nearer_than_others() -> None:
    home, alike, other = await shared.embed(TEXTS[:3])

    assert home @ alike > 0.6
    assert home @ other < 0.3


async def test_function_words_of_other_languages_do_not_make_texts_alike() -> None:
    """The model knows them as rare words, so any two texts in one language would be near."""
    asked, answer, other = await shared.embed(
        [
            "¿Cuándo es la revisión de la perra?",
            "La revisión es el viernes.",
            "¿Qué es lo que tiene la casa de la que me hablaste?",
        ]
    )

    assert asked @ answer > 2 * (asked @ other)


@pytest.mark.parametrize(
    ("asked", "answer", "other"),
    [
        ("猫叫什么名字？", "我养了一只橘猫，叫豆包", "妈妈下周三要做手术"),
        ("会議は何時ですか？", "会議は木曜の午後です", "車の鍵は棚にあります"),
    ],
)
async def test_characters_without_a_token_make_texts_alike(
    asked: str, answer: str, other: str
) -> None:
    question, *said = await shared.embed([asked, answer, other])

    assert question @ said[0] > 0.2 > question @ said[1]


@pytest.mark.parametrize("blank", ["", " ", "\n\t  "])
async def test_a_blank_text_is_the_zero_vector(blank: str) -> None:
    assert not (await one(blank)).any()
    assert (await one("word")).any()


async def test_no_texts_are_no_rows_and_load_nothing() -> None:
    embedder = StaticEmbedder()

    assert (await embedder.embed([])).shape == (0, 256)
    assert embedder._loaded is None


async def test_of_a_very_long_text_the_beginning_counts() -> None:
    begin = "Ana likes tea. " * 1_000

    long, longer, changed = await shared.embed(
        [begin[:TEXT_CHARS_MAX], begin + "z" * 1_000_000, "z " + begin]
    )

    assert long.tobytes() == longer.tobytes() != changed.tobytes()


@pytest.mark.parametrize("texts", [["a\ud800"], ["good", "a\ud800"], ["x" * 2_000, None]])
async def test_whatever_goes_wrong_the_embedder_is_unavailable_and_works_the_next_time(
    texts: list[str],
) -> None:
    with pytest.raises(EmbedderUnavailable) as caught:
        await shared.embed(texts)

    assert caught.value.__cause__ is None
    assert (await one("good")).any()


async def test_missing_weights_are_unavailable_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embedder = StaticEmbedder()
    embeddings._load_wordllama.cache_clear()
    with monkeypatch.context() as broken:
        broken.setattr(embeddings, "Path", lambda _: Path("/nowhere/at/all"))
        with pytest.raises(EmbedderUnavailable):
            await embedder.embed(["Ana"])

    assert (await embedder.embed(["Ana"])).any()


async def test_loading_leaves_logging_alone_and_needs_no_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("it wants the network")

    root = logging.getLogger()
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for name in [name for name in sys.modules if name.partition(".")[0] == "wordllama"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.ERROR)

    await StaticEmbedder().embed(["Ana"])

    assert (root.handlers, root.level) == ([], logging.ERROR)


async def test_first_calls_at_once_load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    load = embeddings._load_wordllama

    def counted() -> tuple[embeddings.Tokenize, Vectors]:
        loads.append(1)
        return load()

    monkeypatch.setattr(embeddings, "_load_wordllama", counted)
    embedder = StaticEmbedder()

    await asyncio.gather(*(embedder.embed([text]) for text in TEXTS))

    assert loads == [1]


async def test_only_what_is_short_together_is_worked_on_in_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await one("load it")
    hops = []
    loop = asyncio.get_running_loop()
    hop = loop.run_in_executor

    def counted(*args: object) -> object:
        hops.append(1)
        return hop(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "run_in_executor", counted)
    await shared.embed(["x" * INLINE_CHARS_MAX])
    await shared.embed(["x" * (INLINE_CHARS_MAX - 1), "y"])
    inline = len(hops)
    await shared.embed(["x" * (INLINE_CHARS_MAX + 1)])
    await shared.embed(["x" * INLINE_CHARS_MAX, "y"])

    assert (inline, len(hops)) == (0, 2)


def test_the_key_of_the_vectors_names_library_size_and_version() -> None:
    assert shared.model == f"wordllama/256/{metadata.version('wordllama')}"


async def test_without_its_package_the_sentence_embedder_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    embedder = SentenceEmbedder("BAAI/bge-small-en-v1.5", threads=1, timeout_s=30, batch=32)

    with pytest.raises(EmbedderUnavailable, match=r'pip install "recall-server\[embeddings\]"'):
        await embedder.embed(["Ana"])
    with pytest.raises(EmbedderUnavailable):
        await embedder.load()
    with pytest.raises(EmbedderUnavailable):
        _ = embedder.dimensions
    assert embedder.model == "sentence-transformers/BAAI/bge-small-en-v1.5"


async def test_the_hashing_double_likes_shared_stems_and_can_fail() -> None:
    embedder = HashEmbedder()

    tea, teas, train, blank = await embedder.embed(
        ["Ana drinks green tea", "Ana drinking green teas", "The train leaves at nine", ""]
    )
    embedder.failing = True

    assert tea @ teas == pytest.approx(1.0)
    assert abs(tea @ train) < 0.5
    assert not blank.any()
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed(["tea"])


@pytest.mark.parametrize("download", [False, True])
async def test_the_hub_is_asked_for_a_model_only_with_leave(
    monkeypatch: pytest.MonkeyPatch, *, download: bool
) -> None:
    """The libraries are not installed here, so the test checks their arguments."""
    told: list[bool] = []

    def load(place: str, *, local_files_only: bool) -> None:
        told.append(local_files_only)
        raise OSError(place)

    libraries = ("sentence_transformers", "torch", "transformers", "transformers.utils.logging")
    for name in libraries:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["sentence_transformers"], "SentenceTransformer", load, False)
    monkeypatch.setattr(sys.modules["torch"], "set_num_threads", lambda _: None, raising=False)
    logging = sys.modules["transformers.utils.logging"]
    monkeypatch.setattr(logging, "disable_progress_bar", lambda: None, raising=False)
    embedder = SentenceEmbedder("some/model", threads=1, timeout_s=30, batch=1, download=download)
    words = "to be had from the hub" if download else "RECALL_ALLOW_DOWNLOADS=true"

    with pytest.raises(EmbedderUnavailable, match=words):
        await embedder.load()
    assert told == [not download]


async def test_the_vectors_of_single_words_are_those_of_their_texts() -> None:
    texts = await shared.embed(["sleep", "slept", "invoice"])

    rows = shared.word_vectors(["sleep", "slept", "invoice"])

    assert np.array_equal(rows, texts)
    assert rows[0] @ rows[1] > rows[0] @ rows[2]
    assert shared.word_vectors([]).shape == (0, 256)
