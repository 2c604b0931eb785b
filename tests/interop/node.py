"""Node and the packages that `make interop` runs, pinned, from npm into `.interop/`."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interop import child
from tests.interop.child import Ended

HOME = Path(__file__).parents[2] / ".interop"
PINS = {
    # The Inspector needs Node 22; this package carries the program itself.
    "node": "22.23.3",
    "@modelcontextprotocol/inspector": "2.12.0",
    # The tag `latest` knows only the older version.
    "@modelcontextprotocol/conformance": "0.2.0-alpha.12",
    "mcp-remote": "0.15.1",
    "@a2a-js/sdk": "1.3.0",
}
# Their dependencies are taken as they were on this day, so that every run has the same code.
AS_OF = "2026-11-21"


class NodeUnusable(Exception):
    """The packages could not be installed."""


@dataclass(frozen=True)
class Node:
    """The installed programs. They may write to `home`."""

    programs: Path
    home: Path

    def environment(self, given: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return an environment with our Node first in the path, and no settings of the user."""
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        return {**kept, "PATH": path, "HOME": str(self.home), "NO_COLOR": "1", **(given or {})}

    async def run(
        self,
        program: str,
        *arguments: str,
        within_s: float = 60.0,
        given: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run one of the programs to its end. Raises `TimeoutError` if it does not end."""
        command = [str(self.programs / program), *arguments]
        return await child.run(command, self.environment(given), self.home, within_s=within_s)


def installed(
    home: Path, pins: Mapping[str, str] = PINS, folder: Path = HOME, as_of: str = AS_OF
) -> Node:
    """Install the programs into `folder`, unless these versions are there already. Raises
    `NodeUnusable`.
    """
    stamp = folder / "installed.json"
    wanted = json.dumps({**pins, "as of": as_of})
    if not stamp.exists() or stamp.read_text() != wanted:
        stamp.unlink(missing_ok=True)
        folder.mkdir(exist_ok=True)
        # Without its own file here, npm would install into the nearest folder above.
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": pins}))
        _npm(folder, "install", f"--before={as_of}", "--no-package-lock")
        # Some versions of npm do not run the install scripts of a package that is there already.
        _npm(folder, "rebuild", *pins)
        stamp.write_text(wanted)
    return Node(folder / "node_modules" / ".bin", home)


def _npm(folder: Path, *arguments: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NodeUnusable("There is no npm on the PATH. Any version will do.")
    command = [npm, *arguments, "--loglevel=error"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise NodeUnusable(f"npm {arguments[0]} failed: {ended.stderr.strip()[-2000:]}")
