"""One deliberate breakage, and the tests that must notice it."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from tests.sabotage.changes import Change, Outdated
from tests.sabotage.queries import SQL, Rewrite


@dataclass(frozen=True)
class Breakage:
    """Change `symbol` as `becomes` says. Then each test of `red` (a node id, of all its rows or of
    one) must have a row that fails.

    A symbol is `module:Class.method` (a function, a class or a constant of a module), `query:name`
    (a named query) or the path of a migration.
    """

    name: str
    drops: str
    symbol: str
    becomes: Change | Rewrite | tuple[Change, ...]
    red: tuple[str, ...]

    def broken(self, root: Path) -> tuple[Path, str]:
        """Return the file with the symbol, and its broken text. Raises `Outdated`."""
        try:
            return (
                self._python(root) if self.symbol.startswith("recall_server.") else self._sql(root)
            )
        except Outdated as error:
            raise Outdated(
                f"{self.name}: {error} Bring its row of tests/sabotage up to date."
            ) from None

    def apply(self, root: Path) -> None:
        """Break the tree at `root`."""
        path, text = self.broken(root)
        # Python would use the compiled file if size and second were the same.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()
        path.write_text(text, "utf-8")

    def _python(self, root: Path) -> tuple[Path, str]:
        module, _, name = self.symbol.partition(":")
        path = root / (module.replace(".", "/") + ".py")
        if not path.exists():
            path = path.with_suffix("") / "__init__.py"
        if not path.exists():
            raise Outdated(f"there is no module {module}.")
        tree = ast.parse(path.read_text("utf-8"))
        changes = self.becomes if isinstance(self.becomes, tuple) else (self.becomes,)
        for change in changes:
            assert isinstance(change, Change), f"{self.name}: a symbol of Python needs a Change"
            change.apply(_found(tree, name.split("."), self.symbol))
        text = ast.unparse(ast.fix_missing_locations(tree))
        compile(text, str(path), "exec")
        return path, text

    def _sql(self, root: Path) -> tuple[Path, str]:
        assert isinstance(self.becomes, Rewrite), f"{self.name}: SQL needs a Rewrite"
        kind, _, query = self.symbol.rpartition(":")
        if not kind:
            path = root / self.symbol
            if not path.exists():
                raise Outdated(f"there is no file {self.symbol}.")
            return path, self.becomes.of(path.read_text("utf-8"))
        head = re.compile(rf"^-- query: {re.escape(query)}\n", re.MULTILINE)
        for path in sorted((root / SQL).rglob("*.sql")):
            text = path.read_text("utf-8")
            if match := head.search(text):
                end = text.find("-- query: ", match.end())
                end = len(text) if end < 0 else end
                body = self.becomes.of(text[match.end() : end])
                return path, f"{text[: match.end()]}{body}\n\n{text[end:]}"
        raise Outdated(f"there is no query {query}.")


def _found(tree: ast.Module, names: list[str], symbol: str) -> ast.stmt:
    """Return the definition or assignment with a dotted name."""
    body, found = tree.body, None
    for name in names:
        found = next((one for one in body if name in _names(one)), None)
        if found is None:
            raise Outdated(f"there is no {symbol}.")
        body = getattr(found, "body", [])
    assert found is not None
    return found


def _names(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}
