"""What items are found by, and how often a term stands in it."""

from typing import NamedTuple


class Findable(NamedTuple):
    """What an item is found by: its own words, what was said where it comes from, and by whom."""

    words: str
    speaker: str | None = None
    said: str = ""

    @property
    def text(self) -> str:
        """All that is indexed of it, but for who spoke."""
        said = labelled(self.speaker, self.said) if self.said else ""
        return f"{self.words}\n{said}" if self.words else said


def labelled(speaker: str | None, words: str) -> str:
    """Words as a transcript has them."""
    return f"{speaker}: {words}" if speaker else words


class Occurrence(NamedTuple):
    """How often a term stands in an item, and how long that is, in terms."""

    item_id: str
    term: str
    times: int
    length: int
