"""The commands of the README and of the quick start run as they are printed, with another port."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from tests.support.paths import ROOT
from tests.support.processes import free_port

pytestmark = pytest.mark.slow
# These install or test this project, belong to another program, or show a namespace with a past.
OF_OTHERS = ("make ", "pip ", "claude ", "recall timeline ")
# Some two dozen processes run one after the other, on a machine that may be busy.
WITHIN_S = 300


def commands(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = re.findall(r"^\$ (.*?)(?:  +#.*)?$", "\n".join(blocks), re.MULTILINE)
    return [line for line in lines if not line.startswith(OF_OTHERS)]


def script(page: str, port: int) -> str:
    """Return a shell script of the commands. A server runs in the background until the others are
    done.
    """
    lines = [
        "set -eu",
        f'recall() {{ "{sys.executable}" -m recall_server "$@"; }}',
    ]
    for command in commands(page):
        printed = command.replace("8000", str(port))
        if command == "recall serve":
            lines += [
                f'"{sys.executable}" -m recall_server serve --port {port} & server=$!',
                "trap 'kill $server; wait $server' EXIT",
                f"until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.1; done",
            ]
        else:
            lines.append(printed if ">" in printed else f"{printed} >> said")
    return "\n".join(lines)


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
async def test_the_commands_run_as_they_are_printed(page: str, tmp_path: Path) -> None:
    ours = {name: one for name, one in os.environ.items() if not name.startswith("RECALL_")}
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        script(page, free_port()),
        cwd=tmp_path,
        # `recall install` writes into the home, so it must not be that of the person who runs the
        # test.
        env={
            **ours,
            "PYTHONPATH": str(ROOT),
            "HOME": str(tmp_path),
            "XDG_CACHE_HOME": str(user_cache_path()),
        },
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), WITHIN_S)
    said = tmp_path / "said"

    assert process.returncode == 0, err.decode()[-2_000:]
    assert (tmp_path / "token").read_text().startswith("rcl_")
    if page == "README.md":
        assert (tmp_path / ".claude.json").exists()
    else:
        assert "- Ana moved from Porto to Lisbon." in said.read_text()
