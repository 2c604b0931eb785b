"""Prompts for models, read from the `.md` files in this folder and filled in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import NamedTuple

_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}")
_HEADER = re.compile(r"([a-z]+): (\S.*)")
_PART = re.compile(r"^# (System|User)$", re.MULTILINE)


class Filled(NamedTuple):
    """The system text, and the user message with the text of others."""

    system: str
    user: str


@dataclass(frozen=True)
class Prompt:
    """One prompt; `version` goes into the provenance of its results."""

    name: str
    version: str
    system: str
    user: str

    @cached_property
    def placeholders(self) -> frozenset[str]:
        return frozenset(_PLACEHOLDER.findall(self.system + self.user))

    def fill(self, **values: str) -> Filled:
        """Fill in every placeholder. Raises `ValueError` if one is missing or unknown."""
        if values.keys() != self.placeholders:
            missing = ", ".join(sorted(self.placeholders - values.keys())) or "none"
            unknown = ", ".join(sorted(values.keys() - self.placeholders)) or "none"
            raise ValueError(f"prompt {self.name}: missing {missing}; unknown {unknown}")

        # One pass, so that a value that looks like a placeholder is not filled in again.
        def value(found: re.Match[str]) -> str:
            return values[found[1]]

        return Filled(_PLACEHOLDER.sub(value, self.system), _PLACEHOLDER.sub(value, self.user))


def load(name: str) -> Prompt:
    """Read the prompt of this name. Raises `ValueError` with the fault of its file."""
    file = resources.files(__name__).joinpath(f"{name}.md")
    return parse(name, file.read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Prompt:
    """Parse a prompt: lines `name:` and `version:`, then `# System` and `# User`, each once.

    Raises `ValueError` if a part or a header line is missing, unknown or duplicate.
    """
    head, *parts = _PART.split(text)
    if parts[::2] != ["System", "User"]:
        raise ValueError(f"prompt {name}: wants `# System`, then `# User`, and no other such part")
    header = _header(name, head)
    system, user = (part.strip() for part in parts[1::2])
    if not (system and user):
        raise ValueError(f"prompt {name}: a part is empty")
    if "{{" in _PLACEHOLDER.sub("", system + user):
        raise ValueError(f"prompt {name}: a placeholder is not of the form {{{{lower_case}}}}")
    return Prompt(name=name, version=header["version"], system=system, user=user)


def _header(name: str, head: str) -> dict[str, str]:
    lines = [line for line in head.splitlines() if line.strip()]
    found = [_HEADER.fullmatch(line.strip()) for line in lines]
    header = {match[1]: match[2].strip() for match in found if match}
    if len(header) != len(lines) or header.keys() != {"name", "version"}:
        raise ValueError(f"prompt {name}: wants exactly the header lines `name:` and `version:`")
    if header["name"] != name:
        raise ValueError(f"prompt {name}: calls itself {header['name']}")
    return header
