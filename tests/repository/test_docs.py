"""The documents match the code: reference tables, error codes, examples."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.routing import Mount, Route
from typer.main import get_command

from docs import generate
from recall_server.api.app import create_app
from recall_server.api.callers import METADATA_PATHS
from recall_server.api.mcp import Tool
from recall_server.cli.commands import app
from recall_server.storage.tables.registry import BY_NAME
from tests.support.application import Open

ROOT = Path(__file__).parents[2]
README_LINES_MAX = 150


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", generate.GENERATED)
def test_the_reference_is_as_the_code_has_it(name: str) -> None:
    assert page(f"docs/reference/{name}") == generate.wanted(name), "run: make docs-reference"


@pytest.mark.parametrize("code", sorted(generate.codes()))
def test_every_error_code_has_its_heading_in_troubleshooting(code: str) -> None:
    assert f"\n## {code}\n" in page("TROUBLESHOOTING.md")


def test_troubleshooting_explains_no_code_that_does_not_exist() -> None:
    explained = re.findall(r"^## ([A-Z_]+)$", page("TROUBLESHOOTING.md"), re.MULTILINE)

    assert sorted(explained) == sorted(generate.codes())


@pytest.mark.parametrize("tool", generate.tools(), ids=lambda tool: tool.name)
def test_every_tool_has_a_row_with_the_data_of_its_answer(tool: Tool) -> None:
    lines = page("docs/reference/tools.md").splitlines()
    row = next(line for line in lines if line.startswith(f"| `{tool.name}` |"))

    assert tool.operation.mcp is not None
    returns = tool.operation.mcp.returns
    names = tool.operation.returns if returns is None else returns
    assert [name for name in names if f"`{name}`" not in row] == []


async def test_every_route_is_in_the_reference_and_no_other(open_app: Open) -> None:
    rows = re.findall(r"^\| `([A-Z]+) (\S+)` \|", page("docs/reference/http.md"), re.MULTILINE)
    async with open_app() as application:
        found = set(served(create_app(application)))

    assert len(rows) == len(set(rows))
    assert set(rows) == {
        (method, path)
        for method, path in found
        if path not in {*METADATA_PATHS, "/a2a/v1", "/mcp/"}
    }
    assert ("MOUNT", "/a2a/v1") in found
    assert "| `/a2a/v1/…` |" in page("docs/reference/http.md")


def served(app: object) -> Iterator[tuple[str, str]]:
    """Yield method and path of all routes below the middleware."""
    while not hasattr(app, "routes"):
        inner = vars(app)
        app = inner.get("_app") or inner["app"]
    for route in app.routes:
        if isinstance(route, Mount):
            yield "MOUNT", route.path
        elif isinstance(route, Route):
            # An ASGI application takes every method; MCP is served on POST.
            for method in (route.methods or {"POST"}) - {"HEAD"}:
                yield method, route.path


def test_the_tables_that_stand_for_those_of_other_systems_exist() -> None:
    part = page("docs/internals/storage.md").partition("## Tables of other systems")[2]
    ours = [line.split("|")[3] for line in part.partition("\n## ")[0].splitlines() if "|" in line]
    named = re.findall(r"`([a-z_]+)`", " ".join(ours))

    assert len(named) > 20
    assert set(named) <= set(BY_NAME)


def test_the_documents_are_built_strictly() -> None:
    """With --quiet, mkdocs counts no warnings, and --strict accepts every broken link."""
    (command,) = re.findall(r"^\t(.*/mkdocs .*)$", page("Makefile"), re.MULTILINE)

    assert "--strict" in command
    assert not re.search(r"--quiet| -q\b", command)


def test_the_readme_is_short() -> None:
    assert len(page("README.md").splitlines()) <= README_LINES_MAX


def test_no_source_cites_a_document_that_is_not_in_the_repository() -> None:
    family = "AUTH|JWT|ISO|ERS|LLM|DOS|HTTP|VAL|QRY|LOG|EXP|F"
    # This is put together from parts, so that the line does not find itself.
    cited = re.compile(
        rf"\b(?:{family})-\d\d\b|" + "|".join(("FEATURES" + r" [A-L]\d", "SECURITY" + r" [\dA-Z]"))
    )
    folders = ("recall_server", "tests", "docs")
    sources = [p for folder in folders for p in (ROOT / folder).rglob("*.*")]
    texts = [p for p in sources if p.suffix in {".py", ".sql", ".md", ".yml", ".mjs"}]

    # In texts on PostgreSQL, "row-level security" is followed by a semicolon, a quote or a full
    # stop.
    assert [str(p) for p in texts if cited.search(p.read_text(encoding="utf-8"))] == []


_OURS = r"^\$ ((?:\S+=\S+ |docker exec \S+ )*recall .*)$"


def _printed() -> list[tuple[str, ...]]:
    """Return our commands that a document prints, as words."""
    found = set()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        for block in re.findall(r"```console\n(.*?)```", path.read_text("utf-8"), re.DOTALL):
            for line in re.findall(_OURS, block, re.MULTILINE):
                words = shlex.split(re.split(r" [>|] ", line)[0], comments=True)
                found.add(tuple(words[len(words) - words[::-1].index("recall") :]))
    return sorted(found)


@pytest.mark.parametrize("words", _printed(), ids=" ".join)
def test_a_command_that_is_printed_is_one_with_these_options(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the README and the quick start also run in tests/stories/test_printed.py."""
    monkeypatch.chdir(tmp_path)
    for word in words:
        if word.endswith((".jsonl", ".jws", ".jwk")):  # The file must exist.
            Path(word).touch()
    command = get_command(app)
    left = [str(tmp_path) if word == "/var/lib/recall/archive" else word for word in words]
    while (inner := getattr(command, "commands", None)) is not None:
        command = inner[left.pop(0)]

    command.make_context(" ".join(words), left)


def test_the_commands_of_every_page_for_operators_are_looked_at() -> None:
    first = {words[0] for words in _printed()}

    assert {"webhooks", "audit", "create-token", "tokens", "install", "reviews", "undo"} <= first
