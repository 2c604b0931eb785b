"""The reader of named queries."""

import pytest

from recall_server.storage.driver import Engine
from recall_server.storage.queries import load, parse
from tests.engines import ENGINES

TENANT = "WHERE namespace = :namespace"


@pytest.mark.parametrize("engine", ENGINES)
def test_every_query_of_the_house_is_read_for_each_engine(engine: Engine) -> None:
    assert len(load(engine)) > 40


def test_both_engines_have_the_same_queries_with_the_same_parameters() -> None:
    lite, post = load("sqlite"), load("postgres")

    assert lite.keys() == post.keys()
    assert {n: q.parameters for n, q in lite.items()} == {n: q.parameters for n, q in post.items()}


def test_parameters_are_spelled_for_the_engine_and_nothing_else_is_touched() -> None:
    text = f"-- query: q\nSELECT ':a', x::text, 5 % 2 FROM t {TENANT} AND b = :b2 -- :c\n"

    assert parse(text, "postgres")[0].sql == (
        "SELECT ':a', x::text, 5 %% 2 FROM t WHERE namespace = %(namespace)s AND b = %(b2)s -- :c"
    )
    assert parse(text, "sqlite")[0].parameters == {"namespace", "b2"}


def test_a_list_is_spelled_as_each_engine_takes_it() -> None:
    text = f"-- query: q\nSELECT 1 FROM t {TENANT} AND id IN (:ids...)\n"

    assert parse(text, "sqlite")[0].sql.endswith("id IN (SELECT value FROM json_each(:ids))")
    assert parse(text, "postgres")[0].sql.endswith("id = ANY(%(ids)s)")
    assert parse(text, "sqlite")[0].parameters == {"namespace", "ids"}


def test_a_query_with_one_engine_missing_is_refused() -> None:
    with pytest.raises(ValueError, match="a text for each"):
        parse(f"-- query: q\n-- in: sqlite\nSELECT 1 {TENANT}\n", "sqlite")


def test_a_query_whose_texts_take_different_parameters_is_refused() -> None:
    text = f"-- query: q\n-- in: sqlite\nSELECT :a {TENANT}\n-- in: postgres\nSELECT :b {TENANT}\n"
    with pytest.raises(ValueError, match="different parameters"):
        parse(text, "sqlite")


def test_a_query_without_namespace_must_say_why() -> None:
    with pytest.raises(ValueError, match="must take :namespace"):
        parse("-- query: q\nSELECT 1\n", "sqlite")

    reason = "-- query: q\n-- across namespaces: the operator asks\nSELECT 1\n"
    assert parse(reason, "sqlite")[0].across
