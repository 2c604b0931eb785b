"""The tables of the languages, and the detection of a text's language."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any

_UNITS = ("day", "week", "month", "year")
LANGUAGES = ("en", "de", "es", "fr", "zh", "ja")
_LETTERS_MAX, _DETECTED_CHARS = 3, 4_000


@dataclass(frozen=True, eq=False)
class Table:
    """The cues of one language, from its TOML file."""

    name: str
    data: dict[str, Any]

    @property
    def spaced(self) -> bool:
        """Whether words are written with blanks between them."""
        return self.name not in ("zh", "ja")

    @cached_property
    def cues(self) -> dict[str, re.Pattern[str]]:
        # "J'ai" and "d'emojis" are two words each; "don't" is one.
        inside = r"\w" if self.name == "fr" else r"[\w']"
        first, last = (f"(?<!{inside})(?:", f")(?!{inside})") if self.spaced else ("(?:", ")")
        found = {}
        for group in ("words", "drop", "keep"):
            for name, cue in self.data[group].items():
                found[f"{group}.{name}"] = re.compile(f"{first}{cue}{last}", re.IGNORECASE)
        return found

    def has(self, name: str, text: str) -> bool:
        """Return whether a text has a cue."""
        return self.search(name, text) is not None

    def search(self, name: str, text: str) -> re.Match[str] | None:
        return self.cues[name].search(text.replace("’", "'"))

    def starts(self, name: str, text: str) -> re.Match[str] | None:
        return self.cues[name].match(text.replace("’", "'"))

    @cached_property
    def patterns(self) -> dict[str, re.Pattern[str]]:
        patterns = self.data["patterns"].items()
        return {name: re.compile(one, re.IGNORECASE) for name, one in patterns}

    @cached_property
    def offsets(self) -> list[tuple[str, int]]:
        """The unit and the offset of each group of `times`: ("week", -1)."""
        return [(unit, row[1]) for unit in _UNITS for row in self.data["relative"][unit]]

    @cached_property
    def times(self) -> re.Pattern[str]:
        """The pattern of "last week", each in its own group, and "two weeks ago" (`n`, `unit`)."""
        relative = self.data["relative"]
        rows = [f"({row[0]})" for unit in _UNITS for row in relative[unit]]
        bounded = r"(?<![\w'])(?:%s)(?!\w| of\b)" if self.spaced else "(?:%s)"
        return re.compile(bounded % "|".join([*rows, relative["ago"]]), re.IGNORECASE)


@cache
def table(name: str) -> Table:
    """Return the table of a language."""
    return Table(name, _read(name))


@cache
def shape(key: str) -> re.Pattern[str]:
    """Return a pattern of the common table."""
    return re.compile(table("common").data["patterns"][key])


@cache
def _read(name: str) -> dict[str, Any]:
    file = resources.files(__package__).joinpath("tables", f"{name}.toml")
    return tomllib.loads(file.read_text("utf-8"))


@cache
def roles_of(name: str) -> frozenset[str]:
    """Return the words of all tables for a kind of speaker: `users` or `silent`."""
    return frozenset(word for one in LANGUAGES for word in table(one).data[name].split())


@cache
def _function_words() -> dict[str, frozenset[str]]:
    lists = ("detect", "months", "weekdays")
    own = {
        name: frozenset(" ".join(table(name).data[one] for one in lists).split())
        for name in LANGUAGES[:4]
    }
    others = table("common").data["words"].items()
    return own | {name: frozenset(words.split()) for name, words in others}


def detect(text: str) -> tuple[str | None, float]:
    """Return the language of a text (None if there is no table of it), and how sure that is."""
    text = text[:_DETECTED_CHARS]
    han, kana = len(shape("han").findall(text)), len(shape("kana").findall(text))
    latin, foreign = len(shape("latin").findall(text)), len(shape("foreign").findall(text))
    if foreign > latin / 4 + han + kana:
        return None, 1.0
    if han + kana > latin / 4:
        return ("ja" if kana * 8 > han else "zh"), 1.0
    words = [word.lower().replace("’", "'") for word in shape("letters").findall(text)]
    counts = {one: sum(map(known.__contains__, words)) for one, known in _function_words().items()}
    for name, letters in table("common").data["letters"].items():
        counts[name] += min(_LETTERS_MAX, len(re.findall(letters, text)))
    ranked = sorted(counts, key=lambda name: -counts[name])
    best, second = counts[ranked[0]], counts[ranked[1]]
    if best == 0:
        return "en", 0.0
    sure = (best - second) / (best + 1)
    return (ranked[0] if ranked[0] in LANGUAGES else None), round(sure, 2)
