"""The tables of the languages, and the detection of a text's language."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any

LANGUAGES = ("en", "de", "es", "fr", "zh", "ja")
_LETTERS_MAX = 3
_ELISION = re.compile(r"(?<!\w)[djlnstcm]['’][aeiouyéèêhAEIOUÉ]")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_KANA = re.compile(r"[ぁ-ヿ]")
_HAN = re.compile(r"[㐀-鿿]")
_FOREIGN = re.compile(r"[Ͱ-Ͽ\u0400-\u04ff֐-ۿऀ-෿\u0e00-\u0fff가-힯]")
_LATIN = re.compile(r"[A-Za-zÀ-ɏ]")
_DETECTED_CHARS = 4_000


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
    def _cues(self) -> dict[str, re.Pattern[str]]:
        # "J'ai" and "d'emojis" are two words each; "don't" is one.
        inside = r"\w" if self.name == "fr" else r"[\w']"
        first, last = (f"(?<!{inside})(?:", f")(?!{inside})") if self.spaced else ("(?:", ")")
        found = {}
        for group in ("words", "drop", "keep"):
            for name, written in self.data[group].items():
                cue = written.replace("{evaluative}", self.data["words"]["evaluative"])
                found[f"{group}.{name}"] = re.compile(f"{first}{cue}{last}", re.IGNORECASE)
        return found

    def has(self, name: str, text: str) -> bool:
        """Return whether a text has a cue."""
        return self.search(name, text) is not None

    def search(self, name: str, text: str) -> re.Match[str] | None:
        cue = self._cues.get(name)
        return cue.search(text.replace("’", "'")) if cue else None

    def starts(self, name: str, text: str) -> re.Match[str] | None:
        cue = self._cues.get(name)
        return cue.match(text.replace("’", "'")) if cue else None

    def is_common(self, word: str) -> bool:
        """Return whether a word is one of the function words by which the language is detected."""
        known = _function_words().get(self.name, frozenset())
        return word.lower().replace("’", "'").split("'")[0] in known


@cache
def table(name: str) -> Table:
    """Return the table of a language."""
    return Table(name, _read(name))


def common() -> dict[str, Any]:
    """Return the table of what all languages share."""
    return _read("common")


@cache
def pattern(name: str, key: str) -> re.Pattern[str]:
    """Return a pattern of a language's table."""
    return re.compile(table(name).data[key], re.IGNORECASE)


@cache
def titles(key: str) -> re.Pattern[str]:
    """Return a pattern of the common table, for headings."""
    return re.compile(common()["headings"][key], re.IGNORECASE)


def load(name: str) -> None:
    """Compile the cues and patterns of a language, which the first text would wait for."""
    table(name).has("", "")
    times(name)
    for key in ("openers", "split"):
        pattern(name, key)


@cache
def _read(name: str) -> dict[str, Any]:
    file = resources.files(__package__).joinpath("tables", f"{name}.toml")
    return tomllib.loads(file.read_text("utf-8"))


@cache
def times(name: str) -> re.Pattern[str]:
    """Return the pattern of times relative to the day on which they are said."""
    language = table(name)
    relative = language.data["relative"]
    rows = [row[0] for unit in ("day", "week", "month", "year") for row in relative[unit]]
    edges = (r"(?<![\w'])(?:", r")(?!\w)") if language.spaced else ("(?:", ")")
    return re.compile(f"{edges[0]}{'|'.join(rows)}|{relative['ago']}{edges[1]}", re.IGNORECASE)


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
    others = common()["words"]
    return own | {name: frozenset(words.split()) for name, words in others.items()}


def detect(text: str) -> tuple[str | None, float]:
    """Return the language of a text (None if there is no table of it), and how sure that is."""
    text = text[:_DETECTED_CHARS]
    han, kana = len(_HAN.findall(text)), len(_KANA.findall(text))
    latin, foreign = len(_LATIN.findall(text)), len(_FOREIGN.findall(text))
    if foreign > latin / 4 + han + kana:
        return None, 1.0
    if han + kana > latin / 4:
        return ("ja" if kana * 8 > han else "zh"), 1.0
    words = [word.lower().replace("’", "'") for word in _WORD.findall(text)]
    counts = {
        name: sum(map(known.__contains__, words)) for name, known in _function_words().items()
    }
    for name, letters in common()["letters"].items():
        counts[name] += min(_LETTERS_MAX, sum(map(text.count, letters)))
    counts["fr"] += min(_LETTERS_MAX, len(_ELISION.findall(text)))
    ranked = sorted(counts, key=lambda name: -counts[name])
    best, second = counts[ranked[0]], counts[ranked[1]]
    if best == 0:
        return "en", 0.0
    sure = (best - second) / (best + 1)
    return (ranked[0] if ranked[0] in LANGUAGES else None), round(sure, 2)
