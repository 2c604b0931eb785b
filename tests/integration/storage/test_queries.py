"""The reader of named queries."""

import re
import sqlite3

import pytest

from recall_server import shipped
from recall_server.domain.permissions import AFTER, BEFORE, FULL_ACCESS
from recall_server.storage.bound_connection import _scope_params, load, parse
from recall_server.storage.driver import Engine
from recall_server.storage.migrations import read
from recall_server.storage.tables import registry
from tests.support.engines import ENGINES

TENANT = "WHERE namespace = :namespace"
FILTERS = {
    *("any_tags", "tags", "any_metadata", "metadata"),
    *("any_time", *AFTER, *BEFORE),
    *("any_layer", "layers"),
    *("any_expiry", "any_source", "from_app", "from_group"),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_named_query_is_read_for_each_engine(engine: Engine) -> None:
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


def test_a_text_may_take_all_rows_where_the_other_takes_them_one_by_one() -> None:
    """Control: it says so only for the engine whose text does."""
    text = (
        f"-- query: q\n-- in: sqlite\nSELECT :a {TENANT}\n"
        f"-- in: postgres\nSELECT :all_rows {TENANT}\n"
    )

    assert [parse(text, "sqlite")[0].takes_all, parse(text, "postgres")[0].takes_all] == [
        False,
        True,
    ]
    assert parse(text, "postgres")[0].parameters == {"a", "namespace"}


def test_a_query_without_namespace_must_say_why() -> None:
    with pytest.raises(ValueError, match="must take :namespace"):
        parse("-- query: q\nSELECT 1\n", "sqlite")

    reason = "-- query: q\n-- across namespaces: the operator asks\nSELECT 1\n"
    assert parse(reason, "sqlite")[0].across


def test_the_scope_is_expanded_with_the_alias_of_its_table() -> None:
    text = f"-- query: q\nSELECT 1 FROM memories m {TENANT} AND {{{{scope:m}}}}\n"
    bare = f"-- query: q\nSELECT 1 FROM runs {TENANT} AND {{{{untyped_scope}}}}\n"

    (query,), (untyped,) = parse(text, "postgres"), parse(bare, "sqlite")
    assert "(%(any_type)s OR m.type = ANY(%(types)s))" in query.sql
    assert "(%(any_container)s OR m.container = ANY(%(containers)s))" in query.sql
    assert "AND :any_type AND" in untyped.sql
    assert "types" not in untyped.parameters
    assert {"topics", "agent", "containers"} <= query.parameters & untyped.parameters


@pytest.mark.parametrize("engine", ENGINES)
def test_a_caller_without_limits_gives_none_and_still_sees_no_closed_container(
    engine: Engine,
) -> None:
    """The query has a second text with fewer conditions, so it cannot find less than it should."""
    unlimited = {query: query.unlimited for query in load(engine).values() if query.unlimited}

    assert len(unlimited) >= 20
    for query, text in unlimited.items():
        closed = "NOT IN (SELECT container FROM closed_containers"
        assert query.sql.count(closed) == text.count(closed), query.name
        left = re.compile(r"[:(]any_|[:(](topics|types|agent|containers|layers|tags|metadata)\b")
        assert left.search(query.sql), query.name
        assert not left.search(text), query.name


def test_queries_of_a_file_share_a_fragment_which_may_hold_a_scope() -> None:
    chosen = f"FROM memories m {TENANT} AND {{{{scope:m}}}}"
    queries = "-- query: q\nSELECT 1 {{chosen}}\n-- query: r\nSELECT 2 {{chosen}} LIMIT 1\n"

    first, second = parse(f"-- fragment: chosen\n{chosen}\n\n{queries}", "sqlite")
    assert [first] == parse(f"-- query: q\nSELECT 1 {chosen}\n", "sqlite")
    assert second.sql == first.sql.replace("SELECT 1", "SELECT 2", 1) + " LIMIT 1"


def test_a_scope_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r"there is no \{\{scoep\}\}"):
        parse(f"-- query: q\nSELECT 1 FROM memories {TENANT} AND {{{{scoep}}}}\n", "sqlite")


@pytest.mark.parametrize("table", registry.SCOPED)
@pytest.mark.parametrize("read", ["FROM {}", "FROM turns t JOIN {} x ON TRUE"])
def test_a_query_that_reads_a_scoped_table_needs_a_scope_or_says_why(table: str, read: str) -> None:
    text = f"-- query: q\nSELECT 1 {read.format(table)} {TENANT}\n"
    with pytest.raises(ValueError, match="query q reads a table with access scopes"):
        parse(text, "sqlite")
    with pytest.raises(ValueError, match="query q reads a table with access scopes"):
        parse(text.replace("q\n", "q\n-- any scope:\n"), "sqlite")

    assert parse(text.replace("q\n", "q\n-- any scope: a job reads it\n"), "sqlite")
    assert parse(f"-- any scope: an export reads all\n\n{text}", "sqlite")
    assert parse(f"{text.rstrip()} AND {{{{untyped_scope}}}}\n", "sqlite")


@pytest.mark.parametrize("due", [0, 1])
def test_a_claim_looks_at_no_job_that_is_for_later(due: int) -> None:
    """Each ended task leaves such a job for as long as the task is kept."""
    few, many = (_steps_of_a_claim(later, due) for later in (10, 1_000))

    assert many < few + 20


def _steps_of_a_claim(later: int, due: int) -> int:
    """Return how many steps SQLite takes, with this many jobs in each of two namespaces."""
    raw = sqlite3.connect(":memory:")
    for migration in read(shipped("migrations"), "sqlite"):
        raw.executescript(migration.sql)
    jobs = [(f"{n}", f"{i}", "2030") for n in ("a", "b") for i in range(later)]
    jobs += [("b", "due", "2025")] * due
    raw.execute("PRAGMA foreign_keys=OFF")
    raw.executemany(
        "INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at)"
        " VALUES (?, ?, 'discard', '{}', 'queued', ?, '2025')",
        jobs,
    )
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    raw.set_progress_handler(count, 1)
    given = {"owner": "b", "now": "2026", "lease_until": "2027", "holder": None, "pushes": 0}
    found = raw.execute(load("sqlite")["claim_job"].sql, given).fetchall()
    raw.execute(load("sqlite")["next_due"].sql, given).fetchall()
    raw.close()
    assert [row[1] for row in found] == ["due"] * due
    return steps


def test_a_look_at_the_queues_takes_one_step_in_the_index_for_each_namespace() -> None:
    raw = sqlite3.connect(":memory:")
    for migration in read(shipped("migrations"), "sqlite"):
        raw.executescript(migration.sql)
    given = {"pushes": 0, "now": "2026", "after": "m", "but": "[]", "limit": 20}
    plan = raw.execute("EXPLAIN QUERY PLAN " + load("sqlite")["due_queues"].sql, given)
    told = [row[3] for row in plan if "queues" in row[3]]
    raw.close()

    assert told == [
        "SEARCH queues USING PRIMARY KEY (namespace>?)",
        "SEARCH queues USING PRIMARY KEY (namespace<?)",
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_query_that_asks_for_one_limit_of_a_token_asks_for_all(engine: Engine) -> None:
    """A new query cannot leave one out. A query of items without a type has no list of types, and
    one by containers does not ask whether there are any.
    """
    limits = set(_scope_params(FULL_ACCESS))
    held = [one for one in load(engine).values() if "any_topic" in one.parameters]

    assert len(held) >= 20
    for query in held:
        # Tasks do not have the columns that filters of searches and lists use.
        without = set() if re.search(r"\b(memories|episodes)\b", query.sql) else FILTERS
        assert limits - query.parameters <= {"types", "any_container", *without}, query.name
    asked = {one for one in limits if one.startswith("any_")} - {"any_topic"}
    assert not [one.name for one in load(engine).values() if one not in held
                and one.parameters & asked]  # fmt: skip
