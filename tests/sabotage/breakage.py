"""One deliberate breakage, and the tests that must notice it."""

from dataclasses import dataclass
from pathlib import Path


class Outdated(Exception):
    """The table does not fit the code any more; the message says where."""


@dataclass(frozen=True)
class Breakage:
    """In `file`, `old`, which stands there exactly once, becomes `new`; each of `red` (a test's
    node id, of all its rows or of one) must then have a row that fails.
    """

    name: str
    drops: str
    file: str
    old: str
    new: str
    red: tuple[str, ...]

    def broken(self, root: Path) -> str:
        """The text of the file, broken. Raises `Outdated`."""
        text = (root / self.file).read_text("utf-8")
        if (times := text.count(self.old)) != 1:
            raise Outdated(
                f"{self.name}: the text that it breaks stands {times} times in {self.file}, "
                "not once. Bring tests/sabotage up to date."
            )
        return text.replace(self.old, self.new)

    def apply(self, root: Path) -> None:
        """Break the tree at `root`."""
        path = root / self.file
        text = self.broken(root)
        # Compiled, it would be taken for unchanged where size and second are the same.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()
        path.write_text(text, "utf-8")
