"""The vocabulary of facts, and how its words are compared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_server.domain.attributes import (
    ATTRIBUTES,
    Cardinality,
    canonical,
    is_single_valued,
    normal_attribute,
    normal_entity,
    normal_value,
    vocabulary,
)
from recall_server.domain.memory import Fact


@pytest.mark.parametrize(
    "attribute",
    ["lives_in", "Lives in", "works_at", "job_title", "birthday", "deadline", "diet", "email",
     "preferred_editor", "favorite_color", "favourite_colour", "uses_for_database", "status",
     "address", "current_focus", "time_zone", "business_model"],
)  # fmt: skip
def test_these_hold_one_value(attribute: str) -> None:
    assert is_single_valued(attribute)


@pytest.mark.parametrize(
    "attribute",
    ["likes", "speaks", "hobby", "team_member", "allergic_to", "has_pet", "has_child", "owns",
     "visited", "wants", "plans", "knows", "uses", "has_boat", "likes_films", "skills", "pets"],
)  # fmt: skip
def test_these_hold_many(attribute: str) -> None:
    assert not is_single_valued(attribute)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Lisbon", "lisbon."),
        ("the  Postgres", "Postgres"),
        ("a nurse", "nurse"),
        ("Ｐｏｓｔｇｒｅｓ", "postgres"),
        ('"Dark mode"', "dark mode"),
        ("Straße", "STRASSE"),
        ("dog\u2019s bed", "dog's bed"),
    ],
)
def test_values_are_the_same_whatever_their_dress(one: str, other: str) -> None:
    assert normal_value(one) == normal_value(other)


@pytest.mark.parametrize(
    ("one", "other"), [("C++", "C"), ("C#", "C"), ("v1.2", "v12"), ("-1", "1")]
)
def test_values_that_differ_stay_different(one: str, other: str) -> None:
    assert normal_value(one) != normal_value(other)


def test_entities_and_attributes_have_one_spelling() -> None:
    assert normal_entity("The User") == normal_entity("user")
    assert normal_attribute("Favourite colour") == "favorite_color"
    assert normal_attribute("Lives-In") == "lives_in"


@given(st.text())
def test_a_normal_form_is_its_own_normal_form(text: str) -> None:
    assert normal_value(normal_value(text)) == normal_value(text)
    assert normal_attribute(normal_attribute(text)) == normal_attribute(text)


def test_a_dislike_is_a_like_denied() -> None:
    assert canonical(Fact("user", "dislikes", "tea")) == Fact("user", "likes", "tea", negated=True)
    assert canonical(Fact("user", "likes", "tea")) == Fact("user", "likes", "tea")


def test_the_vocabulary_names_every_attribute_with_its_number() -> None:
    text = vocabulary()

    for name, attribute in ATTRIBUTES.items():
        assert name == normal_attribute(name)
        assert is_single_valued(name) is (attribute.cardinality is Cardinality.SINGLE)
        assert f"- {name} ({attribute.cardinality}): " in text
