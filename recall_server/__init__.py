"""A memory server for AI agents. `docs/internals/architecture.md` shows its layers."""

from pathlib import Path

__version__ = "0.1.0"

_PACKAGE = Path(__file__).parent


def shipped(name: str) -> Path:
    """Return the path of `migrations` or `agent-card.json`, in a wheel or in a checkout."""
    for folder in (_PACKAGE / "_shipped", _PACKAGE.parent):
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"{name} was not shipped with this installation")
