"""The server of the other doors' tests, attacked."""

import os
from collections.abc import Iterator

import pytest

from tests.surface.conftest import running
from tests.surface.logs import real_logs

__all__ = ["nothing_set", "running"]


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings in the environment, and the log as it was afterwards."""
    for name in [name for name in os.environ if name.startswith("RECALL_")]:
        monkeypatch.delenv(name)
    with real_logs():
        yield
