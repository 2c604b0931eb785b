"""The application on the database of a test."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.config import Settings
from recall_server.services.erasure.eraser import DEFAULT_LIMITS, Limits
from tests.support.engines import KEY_FILE
from tests.support.models import HashEmbedder
from tests.support.runtime import Clock, RandomBytes


class _Given(Settings):
    """The settings of a test, without the environment: reading it takes a tenth of a test."""

    def __init__(self, **given: Any) -> None:
        known = {name: value for name, value in given.items() if value is not None}
        BaseModel.__init__(self, **known)


def settings_for(database: Path | str, **given: Any) -> Settings:
    where: dict[str, Any] = {"db_path": database}
    if isinstance(database, str):
        where = {"db_url": database, "key_file": KEY_FILE}
    return _Given(**{"extractor": "rules", "purge_interval_s": 0, **where, **given})


Open = Callable[..., AbstractAsyncContextManager[Application]]


@pytest.fixture
def open_app(database: Path | str, clock: Clock) -> Open:
    """Opens the application on the test's database: `open_app(extractor=…, deadline_s=…)`."""
    random_bytes = RandomBytes()

    @asynccontextmanager
    async def opened(
        *,
        extractor: object = None,
        embedder: object = None,
        judge: object = None,
        erasure_limits: Limits = DEFAULT_LIMITS,
        **given: object,
    ) -> AsyncIterator[Application]:
        async with open_application(
            settings_for(database, **given),
            extractor=extractor,  # type: ignore[arg-type]
            embedder=embedder or HashEmbedder(),  # type: ignore[arg-type]
            judge=judge,  # type: ignore[arg-type]
            now=clock,
            random_bytes=random_bytes,
            erasure_limits=erasure_limits,
        ) as built:
            yield built

    return opened
