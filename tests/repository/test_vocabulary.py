"""Words that the glossary has replaced appear neither in names nor in sentences."""

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from tests.support.paths import ROOT

GLOSSARY = ROOT / "docs/internals/glossary.md"
TABLE = "## Replaced words"
# Words as data: verbs of a table, a stored column, and a sentence that a benchmark stores.
DATA = {
    ("recall_server/integrations/rules/merger.py", "hear"),
    ("recall_server/integrations/rules/merger.py", "heard"),
    ("recall_server/integrations/rules/merger.py", "hears"),
    *(
        ("recall_server/domain/text/terms.py", word)
        for word in ("hear", "heard", "ring", "strike", "struck", "shelf", "shelves")
    ),
    ("recall_server/storage/tables/registry.py", "door"),
    ("benchmarks/texts.py", "room"),
}
LEVELS = {"debug", "info", "warning", "error", "exception"}
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def _blank(code: re.Match[str]) -> str:
    return "\n" * code[0].count("\n")


@dataclass(frozen=True)
class Replaced:
    """The rows of the table: for each sort of name, the old word and the new one."""

    words: dict[str, str]
    names: dict[str, str]
    functions: dict[str, str]
    modules: dict[str, str]

    def of_name(self, name: str) -> Iterator[str]:
        """Yield the faults of a name in the code."""
        bare = name.strip("_")
        if bare in self.names:
            yield f"{bare} -> {self.names[bare]}"
        for word in {part.lower() for part in WORD.findall(name)} & self.words.keys():
            yield f"{word} -> {self.words[word]}"

    def of_function(self, name: str) -> Iterator[str]:
        if (bare := name.strip("_")) in self.functions:
            yield f"{bare}() -> {self.functions[bare]}"

    def of_module(self, path: Path) -> Iterator[str]:
        if path.suffix == ".py":
            yield from self.of_name(path.stem)
            if path.stem in self.modules:
                yield f"{path.name} -> {self.modules[path.stem]}"

    @cached_property
    def _in_sentences(self) -> re.Pattern[str]:
        return re.compile(rf"(?<![\w-])(?:{'|'.join(self.words)})(?![\w-])", re.IGNORECASE)

    def of_sentence(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the faults of a text outside of code quotes, each with the number of lines before
        it.
        """
        text = CODE.sub(_blank, text)
        for match in self._in_sentences.finditer(text):
            word = match[0].lower()
            yield text.count("\n", 0, match.start()), f"{word} -> {self.words[word]}"


def replaced(glossary: str) -> Replaced:
    found = Replaced({}, {}, {}, {})
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", glossary.partition(TABLE)[2], re.MULTILINE)
    for was, now in rows[1:]:
        for each in was.split(", "):
            name = each.strip("`")
            if each.startswith("("):
                continue
            if each == name:
                found.words[name] = now
            elif name.endswith("()"):
                found.functions[name.removesuffix("()")] = now
            elif name.endswith(".py"):
                found.modules[name.removesuffix(".py")] = now
            else:
                found.names[name] = now
    return found


def in_python(text: str, old: Replaced) -> Iterator[tuple[int, str]]:
    """Yield the faults of a module, each with its line."""
    before = ["", "", "", ""]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line, kind = token.start[0], tokenize.tok_name[token.type]
        if kind == "NAME":
            yield from ((line, fault) for fault in old.of_name(token.string))
            if before[-1] == "def":
                yield from ((line, fault) for fault in old.of_function(token.string))
        elif kind == "STRING" and before[0] == "log" and before[2] in LEVELS:
            yield from ((line, fault) for fault in old.of_name(token.string))
        elif kind == "COMMENT" or (kind in {"STRING", "FSTRING_MIDDLE"} and " " in token.string):
            yield from ((line + down, fault) for down, fault in old.of_sentence(token.string))
        if kind not in {"NL", "COMMENT"}:
            before = [*before[1:], token.string]


def in_sql(text: str, old: Replaced) -> Iterator[tuple[int, str]]:
    """Yield the faults in the comments of a file of queries."""
    for number, line in enumerate(text.splitlines(), 1):
        comment = line.partition("--")[2]
        yield from ((number, fault) for _, fault in old.of_sentence(comment))


def in_document(text: str, old: Replaced) -> Iterator[tuple[int, str]]:
    """Yield the faults of a page, without the glossary's table."""
    prose = text.partition(TABLE)[0]
    yield from ((line + 1, fault) for line, fault in old.of_sentence(prose))


def faults(path: Path, old: Replaced) -> Iterator[str]:
    """Yield one line for each use of a replaced word in a file."""
    read = {".py": in_python, ".sql": in_sql, ".md": in_document}[path.suffix]
    where = path.relative_to(ROOT).as_posix()
    found = [(1, fault) for fault in old.of_module(path)]
    for line, fault in [*found, *read(path.read_text("utf-8"), old)]:
        if (where, fault.partition(" -> ")[0]) not in DATA:
            yield f"{where}:{line}: {fault}"


def checked() -> Iterator[Path]:
    for folder, ending in (
        *(("recall_server", ending) for ending in ("*.py", "*.sql", "*.md")),
        ("benchmarks", "*.py"),
        ("docs", "*.md"),
    ):
        yield from (ROOT / folder).rglob(ending)
    yield from ROOT.glob("*.md")


@pytest.mark.slow
def test_no_replaced_word_is_used() -> None:
    old = replaced(GLOSSARY.read_text("utf-8"))
    found = [fault for path in sorted(checked()) for fault in faults(path, old)]

    assert not found, "\n".join(found)


OLD = replaced(
    f"""{TABLE}
| Was | Is |
|---|---|
| shelf, the book, (run), `reach`, `closing()`, `known.py` | new |
"""
)


@pytest.mark.parametrize(
    "text",
    [
        "shelf = 1",
        "class BookShelf: ...",
        "_reach: int",
        "def closing(): ...",
        "# on the shelf",
        'raise ValueError("on the shelf")',
        'log.info("shelf_is_full", at=1)',
        '"""Written into\n    the book."""',
    ],
)
def test_a_replaced_word_is_found(text: str) -> None:
    assert len(list(in_python(text, OLD))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "run(known, book, reached)",
        "with closing(file): ...",
        "# Within reach of the notebook, closing known runs.",
        'row["shelf"]',
    ],
)
def test_a_word_that_means_something_else_is_not(text: str) -> None:
    assert list(in_python(text, OLD)) == []


def test_code_quotes_may_hold_a_stored_name() -> None:
    text = "The column `shelf`.\n```\nshelf\n```\nThe shelf."

    assert list(in_document(text, OLD)) == [(5, "shelf -> new")]
