"""Prompts for models, read from the `.md` files in this folder and filled in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import NamedTuple

_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}")
_FILE = re.compile(
    r"version: (?P<version>\d+)\n\n# System\n(?P<system>.+?)\n# User\n(?P<user>.+)", re.DOTALL
)


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

        # In one pass, so that a value that looks like a placeholder is not replaced in turn.
        def value(found: re.Match[str]) -> str:
            return values[found[1]]

        return Filled(_PLACEHOLDER.sub(value, self.system), _PLACEHOLDER.sub(value, self.user))


def load(name: str) -> Prompt:
    """Read the prompt of this name. Raises `ValueError` with the fault of its file."""
    file = resources.files(__name__).joinpath(f"{name}.md")
    return parse(name, file.read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Prompt:
    """Parse a prompt: `version: NUMBER`, then `# System` and `# User`. Raises `ValueError`."""
    if (found := _FILE.fullmatch(text)) is None:
        raise ValueError(f"prompt {name}: wants a version, then `# System`, then `# User`")
    return Prompt(name, found["version"], found["system"].strip(), found["user"].strip())
