"""Changes of a named query, or of a statement of a migration."""

import re
from dataclasses import dataclass

from tests.sabotage.changes import Outdated

SQL = "recall_server/storage/sql"


@dataclass(frozen=True)
class Rewrite:
    """A way to break SQL."""

    def of(self, text: str) -> str:
        """Return the broken text. Raises `Outdated`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Text(Rewrite):
    """Replace the text for both engines."""

    text: str

    def of(self, text: str) -> str:
        return self.text


class Unfiltered(Rewrite):
    """Remove the comparisons of these columns; `p.topic` means the alias `p` only."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns

    def of(self, text: str) -> str:
        for column in self.columns:
            name = re.escape(column) if "." in column else rf"(?:\w+\.)?{column}"
            compared = rf"(?<![\w.]){name} = (?::\w+|\w+\.\w+)|(?<![\w.]){name} IN \(:\w+\.\.\.\)"
            text, times = re.subn(compared, lambda match: f"({match[0]} OR TRUE)", text)
            if not times:
                raise Outdated(f"the query compares no {column}.")
        return text


@dataclass(frozen=True)
class Unscoped(Rewrite):
    """Remove the access scope of the table with this alias."""

    alias: str

    def of(self, text: str) -> str:
        scope = rf"\{{\{{\w*scope:{self.alias}\}}\}}"
        text, times = re.subn(scope, lambda match: f"({match[0]} OR TRUE)", text)
        if not times:
            raise Outdated(f"the query has no scope of {self.alias}.")
        return text


@dataclass(frozen=True)
class Statement(Rewrite):
    """Replace `old` by `new` in a migration, which is never edited otherwise."""

    old: str
    new: str

    def of(self, text: str) -> str:
        if (times := text.count(self.old)) != 1:
            raise Outdated(f"{self.old!r} stands {times} times in the migration, not once.")
        return text.replace(self.old, self.new)
