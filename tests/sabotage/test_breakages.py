"""Each breakage fits the code, and its tests exist. `make sabotage` runs them."""

import ast
import re
from pathlib import Path

import pytest

from tests.sabotage.breakage import Breakage
from tests.sabotage.changes import (
    Argument,
    Body,
    Change,
    Element,
    Entry,
    Forgets,
    Instead,
    Never,
    OnlyIf,
    Outdated,
    Replaced,
    Unwrapped,
    Value,
    Without,
)
from tests.sabotage.queries import Rewrite, Statement, Text, Unfiltered
from tests.sabotage.table import BREAKAGES
from tests.support.paths import ROOT


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda one: one.name)
def test_the_symbol_of_a_breakage_exists_and_is_changed(breakage: Breakage) -> None:
    path, text = breakage.broken(ROOT)

    before = path.read_text("utf-8")
    if path.suffix == ".py":
        before = ast.unparse(ast.parse(before))
    assert text != before


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda one: one.name)
def test_the_tests_that_notice_a_breakage_exist(
    breakage: Breakage, request: pytest.FixtureRequest
) -> None:
    assert breakage.red
    for test in breakage.red:
        file, _, name = test.partition("::")
        every_row, _, row = test.partition("[")
        # The rows are known only if this run has collected that test.
        rows = {
            one.nodeid for one in request.session.items if one.nodeid.startswith(f"{every_row}[")
        }
        assert not (row and rows) or test in rows
        function = re.escape(name.partition("[")[0])
        assert re.search(
            rf"^(async )?def {function}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE
        )


def test_each_breakage_has_a_name_of_its_own() -> None:
    names = [one.name for one in BREAKAGES]

    assert len(set(names)) == len(names)


def changed(text: str, change: Change) -> str:
    tree = ast.parse(text)
    change.apply(tree.body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.parametrize(
    ("text", "change", "after"),
    [
        ("def f(x): return x + 1", Body("return x"), "def f(x):\n    return x"),
        ("A = {1}", Value("original | {2}"), "A = {1} | {2}"),
        ("A = {'a': 1, 'b': 2}", Entry("b", "original + 1"), "A = {'a': 1, 'b': 2 + 1}"),
        ("A = ('a', 'b')", Element("a"), "A = ('b',)"),
        ("def f(): g(); h()", Without("h"), "def f():\n    g()\n    pass"),
        ("def f():\n  if a: b()", Never("a"), "def f():\n    if a and False:\n        b()"),
        (
            "def f():\n  if a: b()",
            OnlyIf("b", code="c()"),
            "def f():\n    if a and c():\n        b()",
        ),
        ("def f(): return a or b and c", Forgets("c"), "def f():\n    return a or b"),
        ("def f(): return a or b and c", Forgets("a"), "def f():\n    return b and c"),
        ("def f(): return a & b", Forgets("a"), "def f():\n    return b"),
        ("async def f(): await g.h(1)", Instead("h", "set()"), "async def f():\n    set()"),
        ("def f(): return g(x)", Unwrapped("g"), "def f():\n    return x"),
        ("def f(): return x.g(1)", Unwrapped("g"), "def f():\n    return x"),
        ("def f(): g(1, a=2)", Argument("g", 0, "2 * original"), "def f():\n    g(2 * 1, a=2)"),
        ("def f(): g(1, a=2)", Argument("g", "a", None), "def f():\n    g(1)"),
        ("def f(): g(1, a=2)", Argument("g", "b", "3"), "def f():\n    g(1, a=2, b=3)"),
        (
            "@d\ndef f(): g()",
            Replaced("def f(): _original_f()"),
            (
                "if True:\n\n    @d\n    def _original_f():\n        g()\n\n"
                "    @d\n    def f():\n        _original_f()"
            ),
        ),
    ],
)
def test_a_change_does_what_it_says(text: str, change: Change, after: str) -> None:
    assert changed(text, change) == after


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("A = 1", Body("return 1")),
        ("def f(): pass", Value("2")),
        ("A = {'a': 1}", Entry("b", "2")),
        ("A = ('a',)", Element("b")),
        ("def f(): g()", Without("h")),
        ("def f(): g(); g()", Without("g")),
        ("def f():\n  if a: b()", Never("c")),
        ("def f(): return a or b", Forgets("c")),
        ("def f(): return a", Forgets("a")),
        ("def f(): g()", Instead("h", "1")),
        ("def f(): g()", Argument("g", 0, "1")),
        ("def f(): g()", Argument("g", "a", None)),
        ("def f(): g()", Replaced("def g(): pass")),
    ],
)
def test_a_change_that_finds_no_place_or_two_is_outdated(text: str, change: Change) -> None:
    with pytest.raises(Outdated):
        changed(text, change)


@pytest.mark.parametrize(
    ("rewrite", "after"),
    [
        (Text("SELECT 1"), "SELECT 1"),
        (Unfiltered("a"), "SELECT * FROM t WHERE (t.a = :a OR TRUE) AND b IN (:bs...)"),
        (Unfiltered("t.a"), "SELECT * FROM t WHERE (t.a = :a OR TRUE) AND b IN (:bs...)"),
        (Unfiltered("b"), "SELECT * FROM t WHERE t.a = :a AND (b IN (:bs...) OR TRUE)"),
        (Statement("t.a = :a", "TRUE"), "SELECT * FROM t WHERE TRUE AND b IN (:bs...)"),
    ],
)
def test_a_query_becomes_what_it_says(rewrite: Rewrite, after: str) -> None:
    assert rewrite.of("SELECT * FROM t WHERE t.a = :a AND b IN (:bs...)") == after


@pytest.mark.parametrize("rewrite", [Unfiltered("c"), Unfiltered("s.a"), Statement("c", "")])
def test_a_query_without_the_place_is_outdated(rewrite: Rewrite) -> None:
    with pytest.raises(Outdated):
        rewrite.of("SELECT * FROM t WHERE t.a = :a AND b IN (:bs...)")


@pytest.mark.parametrize(
    "symbol",
    [
        "recall_server.no_such_module:function",
        "recall_server.services.auth:no_such_function",
        "query:no_such_query",
        "migrations/no_such_file.sql",
    ],
)
def test_a_breakage_whose_symbol_is_gone_is_outdated(symbol: str, tmp_path: Path) -> None:
    becomes = Body("return True") if symbol.startswith("recall_server.") else Text("SELECT 1")

    with pytest.raises(Outdated, match="no_such"):
        Breakage("name", "what it drops", symbol, becomes, ("tests",)).broken(ROOT)
