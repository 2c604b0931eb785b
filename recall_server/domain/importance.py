"""Importance of a statement by rule, used until a model has judged it."""

import re

_RULES = (
    (0.20, re.compile(r"\b(?:prefer\w*|always|never|must|favou?rite)\b", re.IGNORECASE)),
    (0.15, re.compile(r"\b(?:correct\w*|forget|remember|deploy\w*|decid\w*)\b", re.IGNORECASE)),
    (
        0.10,
        re.compile(
            r"\b(?:api|code|server|database|python|test\w*|build|bug|release|version|config\w*"
            r"|docker|postgres\w*|sql\w*|git\w*)\b",
            re.IGNORECASE,
        ),
    ),
)
BASE = 0.45
LONG_CHARS = 500


def importance(text: str) -> float:
    """Return 0.45, plus bonuses for words of preference, correction and technique and for length;
    at most 1.
    """
    found = sum(bonus for bonus, words in _RULES if words.search(text))
    return round(min(1.0, BASE + found + (0.05 if len(text) > LONG_CHARS else 0.0)), 4)
