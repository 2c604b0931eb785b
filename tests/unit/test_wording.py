"""The words of a question are compared with the nearest words of a text."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from recall_server.domain.search.question import Question, alike, words

# Words of one direction are alike.
DIRECTIONS = {"slept": 0, "sleep": 0, "bad": 1, "weight": 2, "meera": 3, "old": 4}


def vectors(of: Sequence[str]) -> NDArray[np.float32]:
    rows = np.zeros((len(of), 5), np.float32)
    for row, word in zip(rows, of, strict=True):
        if word in DIRECTIONS:
            row[DIRECTIONS[word]] = 1.0
    return rows


def test_each_word_of_the_question_counts_with_the_nearest_word_of_a_text_by_its_weight() -> None:
    weights = {"bad": 1.0, "sleep": 3.0}
    texts = ["Slept 5 hours.", "Weight 77.", "A bad day.", ""]

    found = alike("What caused the bad sleep?", weights, (), texts, vectors)

    assert found is not None
    assert found.whole == pytest.approx([0.75, 0.0, 0.25, 0.0])
    assert found.beside_names == pytest.approx([1.0, 1.0, 1.0, 1.0])


def test_a_text_with_nothing_but_the_name_says_nothing_beside_it() -> None:
    question = Question.parse("How old is Meera?")
    weights = {"old": 1.0, "meera": 1.0}
    texts = ["Source: Meera from work.", "Meera is old."]

    found = alike(question.text, weights, question.people, texts, vectors)

    assert question.people == {"meera"}
    assert found is not None
    assert found.beside_names == pytest.approx([0.0, 1.0])


def test_without_words_to_compare_nothing_is_found() -> None:
    assert alike("Why?", {}, (), ["Slept."], vectors) is None


def test_function_words_do_not_count_and_each_word_counts_once() -> None:
    assert words("The weight, the Weight and it's O'Brien") == ["weight", "o'brien"]


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("When is Lucy's birthday?", {"luci"}),
        ("how old is meera?", set()),
        ("Wie heißt der Hund von Frau Arslan?", set()),
        ("Lucy?", set()),
        ("refactor Summary.tsx", set()),
        ("What did J.R. Smith buy with RT-AX58U?", {"j.r", "j", "r", "smith"}),
    ],
)
def test_names_are_capitalised_words_after_the_first(question: str, named: set[str]) -> None:
    assert Question.parse(question).people == named
