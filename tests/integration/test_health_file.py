"""The health file of a process is fresh while its background work runs."""

import asyncio
import contextlib
import os
import stat
from pathlib import Path

import pytest

from recall_server import __version__, lifecycle
from recall_server.bootstrap import working
from recall_server.domain.errors import Invalid
from tests.support.application import Open
from tests.support.engines import on_sqlite
from tests.support.processes import Database, Process, until

WITHIN_S = 60.0


@pytest.mark.parametrize("command", ["serve", "worker"])
async def test_a_process_has_a_health_file_until_it_is_stopped(
    database: Database, tmp_path: Path, command: str
) -> None:
    path = tmp_path / "health"
    options = ("--port", "0") if command == "serve" else ()

    async def there() -> bool:
        return path.exists()

    async with Process(database, command, *options, health_file=path) as process:
        await until(there, WITHIN_S, process.log())
        said, mode = path.read_text("utf-8").split(), stat.S_IMODE(path.stat().st_mode)
        pid = process.pid
        code = await process.stop()
    left = path.exists()

    assert said == [__version__, str(pid)]
    assert (mode, code, left) == (0o600, 0, False)


@on_sqlite
async def test_the_file_grows_old_when_the_loops_have_stopped(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control is the same process while the loops run."""
    path = tmp_path / "health"
    monkeypatch.setattr(lifecycle, "HEALTH_S", 0.01)
    monkeypatch.setattr(lifecycle, "STALE_S", 0.2)

    async def written_anew() -> bool:
        os.utime(path, (0, 0))
        await asyncio.sleep(0.05)  # This is several times the interval of writes.
        return path.stat().st_mtime > 0

    async with (
        open_app(health_file=path, worker_poll_s=0.02) as application,
        contextlib.AsyncExitStack() as background,
    ):
        await background.enter_async_context(working(application))
        async with lifecycle.showing_health(application):
            await until(written_anew, WITHIN_S, "it is fresh")
            await background.aclose()

            async def stale() -> bool:
                return not await written_anew()

            await until(stale, WITHIN_S, "it has grown old")
        assert not path.exists()


@on_sqlite
async def test_a_file_that_cannot_be_written_stops_the_start(
    open_app: Open, tmp_path: Path
) -> None:
    async with open_app(health_file=tmp_path / "nowhere" / "health") as application:
        with pytest.raises(Invalid, match="RECALL_HEALTH_FILE"):
            async with lifecycle.showing_health(application):
                pass
