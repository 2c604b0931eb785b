"""Tests import helpers from tests/support only, so that a helper has one place."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

TESTS = ROOT / "tests"
# Separate programs with their own targets in the Makefile. They may have helpers of their own.
PROGRAMS = {"interop", "sabotage"}
MODULES = sorted(TESTS.rglob("*.py"))


def imported(text: str) -> Iterator[str]:
    """Yield the modules of tests/ that a module imports, as dotted names."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{'.' * node.level}{node.module or ''}"]
            if node.level or node.module == "tests":
                names = [f"{names[0]}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.startswith(".") or name.split(".")[0] == "tests")


def allowed(path: Path, name: str) -> bool:
    """Return True if a test module may import another: of support, or of its own program."""
    top = path.relative_to(TESTS).parts[0]
    parts = name.split(".")
    if any(part.startswith("test_") or part == "conftest" for part in parts):
        return False
    return parts[1:2] == ["support"] or (top in PROGRAMS and parts[1:2] == [top])


def is_helper(path: Path) -> bool:
    """Return True if a module holds neither tests nor fixtures for pytest."""
    top = path.relative_to(TESTS).parts[0]
    named = path.name.startswith("test_") or path.name in {"__init__.py", "conftest.py"}
    return not named and top not in {"support", *PROGRAMS}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(TESTS)))
def test_a_module_of_tests_imports_helpers_from_support_only(path: Path) -> None:
    names = imported(path.read_text("utf-8"))

    assert [name for name in names if not allowed(path, name)] == []


def test_helpers_lie_in_support() -> None:
    assert [path for path in MODULES if is_helper(path)] == []


def test_support_and_packages_hold_no_tests() -> None:
    quiet = [p for p in MODULES if p.name == "__init__.py" or "support" in p.parts]

    assert [path for path in quiet if "\ndef test_" in path.read_text("utf-8")] == []


@pytest.mark.parametrize(
    ("importer", "text", "fits"),
    [
        ("api/test_card.py", "from tests.support.server import Running", True),
        ("api/test_card.py", "import tests.api.test_audit", False),
        ("api/test_card.py", "from tests.api import test_audit", False),
        ("api/test_card.py", "from .test_audit import called", False),
        ("api/test_card.py", "from tests.conftest import NOON", False),
        ("api/test_card.py", "from tests.api.clients import called", False),
        ("api/test_card.py", "from tests.interop.report import Report", False),
        ("interop/node.py", "from tests.interop.report import Report", True),
        ("support/server.py", "from tests.api.test_audit import called", False),
    ],
)
def test_an_import_of_a_test_module_is_noticed(importer: str, text: str, fits: bool) -> None:
    assert all(allowed(TESTS / importer, name) for name in imported(text)) is fits


@pytest.mark.parametrize(
    ("name", "helper"),
    [("api/clients.py", True), ("api/test_card.py", False), ("support/server.py", False)],
)
def test_a_helper_outside_support_is_noticed(name: str, helper: bool) -> None:
    assert is_helper(TESTS / name) is helper


def test_the_tests_of_rules_load_neither_a_database_nor_a_protocol() -> None:
    names = [f"tests.unit.{path.stem}" for path in (TESTS / "unit").glob("test_*.py")]
    heavy = "'aiosqlite', 'psycopg', 'mcp', 'a2a', 'starlette', 'tests.conftest'"
    script = f"import sys, {', '.join(names)}; print({{{heavy}}} & {{*sys.modules}})"
    loaded = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "set()"
