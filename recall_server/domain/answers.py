"""Answers to the questions of a paused task: a list of choices, one word for all, or prose."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from recall_server.domain.errors import Invalid, RecallError
from recall_server.domain.plan import Choice, Question, Resolution
from recall_server.domain.security.screening import orders
from recall_server.domain.security.suspicion import suspicions
from recall_server.domain.text.cleaning import clean_text

MERGED_CHARS_MAX = 4_096
_CHOICES = ", ".join(Choice)

# Prose that stands for a choice. It is accepted only if exactly one choice matches.
_PROSE: Mapping[Choice, re.Pattern[str]] = {
    Choice.KEEP_EXISTING: re.compile(
        r"\bkeep[_ -]existing\b|\b(?:keep|stay with|leave|stick with)\b[^.;\n]{0,20}"
        r"\b(?:existing|old|current|previous|first|as it (?:is|was))\b",
        re.IGNORECASE,
    ),
    Choice.KEEP_NEW: re.compile(
        r"\bkeep[_ -]new\b|\b(?:keep|take|use|accept|prefer)\b[^.;\n]{0,20}"
        r"\b(?:new|newer|latest|second)\b|\breplace\b[^.;\n]{0,12}\b(?:it|old|existing)\b",
        re.IGNORECASE,
    ),
    Choice.KEEP_BOTH: re.compile(r"\bkeep[_ -]both\b|\bboth\b", re.IGNORECASE),
}
_NAMED = re.compile(r"\b(q_[0-9a-z]{26}|\d{1,3})\s*[:=.)-]+\s*([^\n,;]+)")


class AnswerUnclear(Invalid):
    """The answer could not be understood. Send resolutions with id and choice."""

    code = "ANSWER_UNCLEAR"


def resolutions(
    given: str | Sequence[Any], questions: Sequence[Question], *, by: str, at: datetime
) -> list[Resolution]:
    """Parse an answer to the open `questions`; it may leave some of them open.

    A list holds `{"id", "choice", "text"?}`. A text is one choice for all ("keep_new"), one for
    each ("1: keep_new, 2: keep_both", by number or id), or prose that names a choice. Raises
    `AnswerUnclear`, which names the faulty part; no part of the answer is used then.
    """
    if not isinstance(given, str):
        return _listed(given, questions, by, at)
    named = _NAMED.findall(given)
    if named:
        ids = {str(number): question.id for number, question in enumerate(questions, 1)}
        listed = [
            {"id": ids.get(name, name), "choice": str(_meant(words) or words.strip())}
            for name, words in named
        ]
        return _listed(listed, questions, by, at)
    choice = _meant(given)
    if choice is None:
        raise AnswerUnclear(
            "It is not clear which side to keep. Answer keep_existing, keep_new or keep_both, or "
            "send resolutions with an id and a choice for each question."
        )
    return [Resolution(question.id, choice, by, at) for question in questions]


def _meant(words: str) -> Choice | None:
    """Return the one choice that the words name; None if they name none or several."""
    plain = words.strip().strip("\"'`.!").lower().replace("-", "_").replace(" ", "_")
    if plain in set(Choice) - {Choice.MERGE}:
        return Choice(plain)
    found = [choice for choice, pattern in _PROSE.items() if pattern.search(words)]
    return found[0] if len(found) == 1 else None


def _listed(
    given: Sequence[Any], questions: Sequence[Question], by: str, at: datetime
) -> list[Resolution]:
    if not given:
        raise AnswerUnclear("The list of resolutions is empty. Send one for each question.")
    open_ids = [question.id for question in questions]
    found: dict[str, Resolution] = {}
    for number, one in enumerate(given, 1):
        resolution = _one(number, one, open_ids, by, at)
        if resolution.question_id in found:
            raise AnswerUnclear(f"Resolution {number} answers a question twice. Send one of each.")
        found[resolution.question_id] = resolution
    return list(found.values())


def _one(number: int, given: Any, open_ids: Sequence[str], by: str, at: datetime) -> Resolution:
    if not isinstance(given, Mapping) or not set(given) <= {"id", "choice", "text"}:
        raise AnswerUnclear(f"Resolution {number} must be an object of id, choice and text.")
    if given.get("id") not in open_ids:
        raise AnswerUnclear(
            f"Resolution {number} has no id of an open question: {_list(open_ids)}."
        )
    choice, text = given.get("choice"), given.get("text")
    if choice not in set(Choice):
        raise AnswerUnclear(
            f"Resolution {number} has an unknown choice. Choose one of: {_CHOICES}."
        )
    if (text is not None) != (choice == Choice.MERGE) or not isinstance(text, str | None):
        raise AnswerUnclear(f"Resolution {number}: 'text' goes with merge, and merge needs it.")
    if text is not None:
        try:
            clean_text(text, chars_max=MERGED_CHARS_MAX)
        except RecallError as error:
            raise AnswerUnclear(f"Resolution {number}: {error.message}") from None
        if orders(text) or suspicions(text):
            raise AnswerUnclear(f"Resolution {number}: the text gives orders to a model.")
    return Resolution(given["id"], Choice(choice), by, at, text)


def _list(ids: Sequence[str]) -> str:
    return ", ".join(ids[:10]) + (" …" if len(ids) > 10 else "")
