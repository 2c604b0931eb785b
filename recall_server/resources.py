"""Finds the files shipped beside the package: `migrations/` and `agent-card.json`."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def shipped(name: str) -> Path:
    """Return the path of `name`, in an installed wheel or in a checkout."""
    for folder in (_PACKAGE / "_shipped", _PACKAGE.parent):
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"{name} was not shipped with this installation")
