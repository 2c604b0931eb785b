"""Changes of a named query, or of a statement of a migration."""

import re
from dataclasses import dataclass

from tests.sabotage.changes import Outdated

SQL = "recall_server/storage/sql"


@dataclass(frozen=True)
class Rewrite:
    """How SQL is broken."""

    def of(self, text: str) -> str:
        """The text, broken. Raises `Outdated`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Text(Rewrite):
    """Another text, of both engines."""

    text: str

    def of(self, text: str) -> str:
        return self.text


class Unfiltered(Rewrite):
    """What the query compares these columns with does not matter. `p.topic`: of that alias only."""

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
class Statement(Rewrite):
    """In a migration, which is never edited, `old` becomes `new`."""

    old: str
    new: str

    def of(self, text: str) -> str:
        if (times := text.count(self.old)) != 1:
            raise Outdated(f"{self.old!r} stands {times} times in the migration, not once.")
        return text.replace(self.old, self.new)
