"""What the tests of the attack rows share."""

import os
from collections.abc import Iterator

import pytest

from tests.surface.logs import real_logs


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings in the environment, and the log as it was afterwards."""
    for name in [name for name in os.environ if name.startswith("RECALL_")]:
        monkeypatch.delenv(name)
    with real_logs():
        yield
