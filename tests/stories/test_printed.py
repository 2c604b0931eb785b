"""The commands of the README and of the quick start run as they are printed, with another port."""

import asyncio
import os
import re
import shlex
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from tests.support.forked import completed, forked
from tests.support.paths import ROOT
from tests.support.processes import START_S, free_port, until

pytestmark = pytest.mark.slow
# These install or test this project, belong to another program, or show a namespace with a past.
OF_OTHERS = ("make ", "pip ", "claude ", "recall timeline ")
WITHIN_S = 60


def commands(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = re.findall(r"^\$ (.*?)(?:  +#.*)?$", "\n".join(blocks), re.MULTILINE)
    return [line for line in lines if not line.startswith(OF_OTHERS)]


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
async def test_the_commands_run_as_they_are_printed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    port, said, log = free_port(), "", tmp_path / "log"
    log.touch()
    variables = {name: one for name, one in os.environ.items() if not name.startswith("RECALL_")}
    # `recall install` writes into the home, so it must not be that of the person who runs the test.
    variables |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(user_cache_path())}
    with ExitStack() as stack:
        for printed in commands(page):
            match shlex.split(printed.replace("8000", str(port))):
                case ["export", setting]:
                    name, _, value = setting.partition("=")
                    variables[name] = value
                case ["recall", "serve"]:
                    command = ("serve", "--port", str(port))
                    server = forked(command, variables, Path(os.devnull), log)
                    stack.callback(server.kill)
                    await until(lambda: listens(port), START_S, "the server listens")
                case ["recall", *command, ">", file]:
                    (tmp_path / file).write_bytes(await ran(command, variables))
                case ["recall", *command]:
                    said += (await ran(command, variables)).decode()
                case _:
                    pytest.fail(f"This test cannot run {printed}.")

    assert (tmp_path / "token").read_text().startswith("rcl_")
    if page == "README.md":
        assert (tmp_path / ".claude.json").exists()
    else:
        assert "- Ana moved from Porto to Lisbon." in said


async def ran(command: list[str], variables: dict[str, str]) -> bytes:
    """Return the output of `recall COMMAND`."""
    done = await asyncio.to_thread(completed, (*command,), variables, WITHIN_S)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


async def listens(port: int) -> bool:
    with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
