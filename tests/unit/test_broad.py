"""Which questions are broad, and what they ask for."""

import pytest

from recall_server.domain.memory import MemoryType
from recall_server.domain.search.question import Question


@pytest.mark.parametrize(
    "text",
    [
        "What do you know about me?",
        "everything about the user",
        "What did we talk about yesterday?",
        "What's new?",
        "Was weißt du über mich?",
        "¿Qué sabes de mí?",
        "Que sais-tu de moi ?",
    ],
)
def test_a_question_that_only_asks_the_memory_wants_all_of_it(text: str) -> None:
    wanted = Question.parse(text).broad

    assert wanted is not None
    assert (wanted.types, wanted.topic) == (frozenset(), ())


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("user preferences", MemoryType.PREFERENCE),
        ("What did we decide last week?", MemoryType.DECISION),
        ("Welche Entscheidungen wurden getroffen?", MemoryType.DECISION),
        ("Which procedures do you know?", MemoryType.PROCEDURE),
    ],
)
def test_a_type_of_memory_may_be_all_that_is_asked_for(text: str, type_: MemoryType) -> None:
    wanted = Question.parse(text).broad

    assert wanted is not None
    assert (wanted.types, wanted.topic) == (frozenset({type_}), ())


@pytest.mark.parametrize("text", ["Tell me about Samira", "Parle-moi de Samira", "Samira said?"])
def test_a_name_may_be_all_that_is_asked_for(text: str) -> None:
    question = Question.parse(text)

    assert question.broad is not None
    assert question.asked == question.broad.topic == ("samira",)


@pytest.mark.parametrize(
    "text",
    [
        "What is the new wifi password?",
        "Where does Ana live?",
        "What did Ana tell Ben about the ferry to Porto?",
        '"',
    ],
)
def test_a_question_for_one_thing_is_not_broad(text: str) -> None:
    assert Question.parse(text).broad is None
