"""Which questions are broad, and what they ask for."""

import pytest

from recall_server.domain.memory import MemoryType
from recall_server.domain.search.question import Question
from recall_server.domain.text.terms import terms


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
        "你知道我什么？",
        "关于我你都记得些什么？",
        "最近有什么事？",
        "私について何を知っていますか？",
        "私のことで覚えていることを全部教えてください。",
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
        ("我有什么偏好？", MemoryType.PREFERENCE),
        ("先週何を決めましたか？", MemoryType.DECISION),
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
    ("text", "name"),
    [("你知道林浩什么？", "林浩"), ("佐々木さんについて教えてください。", "佐々木さん")],
)
def test_a_name_without_spaces_around_it_may_be_all_that_is_asked_for(text: str, name: str) -> None:
    wanted = Question.parse(text).broad

    assert wanted is not None
    assert wanted.topic == tuple(dict.fromkeys(terms(name)))


@pytest.mark.parametrize(
    "text",
    [
        "猫叫什么名字？",
        "哥哥在哪里工作？",
        "忘年会の幹事は誰ですか？",
        "納品日はいつになりましたか？",
        "下午几点以后不喝咖啡？",
        "What is the new wifi password?",
        "Where does Ana live?",
        "What did Ana tell Ben about the ferry to Porto?",
        '"',
    ],
)
def test_a_question_for_one_thing_is_not_broad(text: str) -> None:
    assert Question.parse(text).broad is None
