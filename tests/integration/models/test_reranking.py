"""The choice of a re-ranker, and the weights of the words of a question. tests/embeddings has the
models.
"""

import sys

import pytest

from recall_server import factories
from recall_server.config import Settings
from recall_server.domain.errors import Invalid, RerankerUnavailable
from recall_server.domain.ids import namespace
from recall_server.integrations.rerankers import Passage, RerankQuery, word_weights


def test_none_is_chosen_unless_one_is_named() -> None:
    assert factories.reranker(Settings()) is None
    assert factories.reranker(Settings(reranker="none")) is None


@pytest.mark.parametrize("setting", ["cross-encoder", "cross-encoder:", "colbert", ""])
def test_a_setting_that_names_none_is_refused(setting: str) -> None:
    with pytest.raises(Invalid, match="RECALL_RERANKER"):
        factories.reranker(Settings(reranker=setting))


@pytest.mark.parametrize(
    ("setting", "name", "judges"),
    [
        ("maxsim", "maxsim/all-MiniLM-L6-v2", False),
        ("maxsim:/models/small", "maxsim//models/small", False),
        ("cross-encoder:some/model", "cross-encoder/some/model", True),
    ],
)
async def test_it_is_known_by_its_kind_and_model_and_needs_the_extra(
    setting: str, name: str, judges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    reranker = factories.reranker(Settings(reranker=setting))

    assert reranker is not None
    assert (reranker.name, reranker.judges) == (name, judges)
    with pytest.raises(RerankerUnavailable, match=r'pip install "recall-server\[embeddings\]"'):
        await reranker.load()
    with pytest.raises(RerankerUnavailable):
        await reranker.scores(RerankQuery("who", "who", {}, namespace("ana"), 0), [Passage("me")])
    await reranker.close()


def test_a_word_weighs_what_its_rarest_term_does() -> None:
    assert word_weights("living in node.js", {"live": 2.0, "node": 3.0, "js": 1.0}) == [
        (0, 6, 2.0),
        (7, 9, 0.0),
        (10, 17, 3.0),
    ]


def test_a_word_that_stands_nowhere_weighs_as_much_as_the_rarest() -> None:
    assert word_weights("Ana resides", {"ana": 2.0}) == [(0, 3, 2.0), (4, 11, 2.0)]
    assert word_weights("Ana resides", {}) == [(0, 3, 1.0), (4, 11, 1.0)]


def test_of_stop_words_alone_every_one_weighs() -> None:
    assert [weight for *_, weight in word_weights("who is it", {})] == [1.0, 1.0, 1.0]
