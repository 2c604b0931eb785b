"""Finds who speaks, by the label of a line: a person, the user or an assistant."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from recall_server.domain.episode import Turn
from recall_server.integrations.extraction.rules.facts import Speaker
from recall_server.integrations.extraction.rules.language import Table, roles_of

_LABEL = re.compile(r"[ \t]{0,4}([^\W\d_a-zß-ÿ][^\s:：、。，]{0,15}?) ?[:：]")
# As in a copied review: "**ana-k**: fixed".
_HANDLE = re.compile(r"[ \t]{0,4}\*\*([a-z][\w.-]{1,30})\*\* ?:")
_LABELLED_CHARS = 20_000
_PARENTHESES = re.compile(r"\(([^()\n]{2,40})\)\*{0,2}[ ]?:\*{0,2}[ ]?$")


def speaker_of(label: str | None, line: str, language: Table) -> Speaker | None:
    """Return who "I" is; None for an assistant, whose words state no facts about anybody. `line` is
    the text before the words, such as "Agent (Mel): ".
    """
    user = Speaker("user", language.data["user"])
    if label is None:
        return user
    named = _PARENTHESES.search(line)
    if named and named[1][0].isalpha() and not named[1][0].islower():
        return Speaker(named[1], named[1])
    words = re.findall(r"\w+", label.lower()) or [""]
    if not roles_of("silent").isdisjoint([words[0], words[-1]]) or words[-1] == "agent":
        return None
    if words[0] in ("customer", "client") and language.name == "en":
        return Speaker("user", f"The {words[0]}")
    return user if words[0] in roles_of("users") else Speaker(label, label)


def labels(text: str, speakers: set[str]) -> frozenset[str]:
    """Return the speakers whose labels `parse_turns` does not know, such as "用户：" said once."""
    lines = [line for line in text[:_LABELLED_CHARS].split("\n") if line.strip()]
    handles = Counter(match[1] for match in map(_HANDLE.match, lines) if match)
    if len(named := frozenset(one for one in handles if handles[one] > 1)) > 1:
        return named
    found = Counter(match[1] for match in map(_LABEL.match, lines) if match)
    least = 1 if not speakers and found.total() > len(found) else 2
    roles = {one for one in found if one.lower() in roles_of("users") | roles_of("silent")}
    named = frozenset(one for one in found if found[one] >= least or one in roles) - speakers
    spoken = sum(found[one] for one in {*named, *(speakers & found.keys())})
    return named if len(named) + len(speakers) > 1 and spoken * 2 > len(lines) else frozenset()


def speaks(value: str, language: Table) -> bool:
    """Return whether a value is said in the first person, like "I'll ask", but unlike "me"."""
    first = language.search("words.first", value)
    return (
        first is not None
        and not (language.name == "en" and value.startswith("me "))
        and (not language.spaced or re.match(r"['’ ]\w", value[first.end() :]) is not None)
    )


@dataclass(frozen=True)
class Voice:
    """Who speaks, and in which turn."""

    speaker: Speaker
    turn: Turn
