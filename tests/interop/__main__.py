"""`python -m tests.interop`: all checks, or those of the suites named as arguments."""

import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

from recall_server import observe
from tests.interop import conformance, inspector, remote
from tests.interop.node import Node, NodeUnusable, installed
from tests.interop.report import Report
from tests.interop.server import serving

SUITES = ("inspector", "mcp-remote", "conformance")


async def run(node: Node, folder: Path, suites: set[str]) -> int:
    report = Report()
    if suites & {"inspector", "mcp-remote"}:
        with report.check("our server starts, and ends when it is told to"):
            async with serving(folder) as server:
                if "inspector" in suites:
                    await inspector.check(node, server, report)
                if "mcp-remote" in suites:
                    await remote.check(node, server, report)
    if "conformance" in suites:
        await conformance.check(node, folder, report)
    return report.close()


def main() -> int:
    suites = set(sys.argv[1:]) or set(SUITES)
    if unknown := suites - set(SUITES):
        print(f"no such suite: {', '.join(unknown)}; there are {', '.join(SUITES)}")
        return 2
    observe.configure("error")
    # The suites provoke what the SDK warns of.
    logging.getLogger("mcp").setLevel(logging.ERROR)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="recall-interop-") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        try:
            node = installed(home)
        except NodeUnusable as error:
            print(f"FAILED installing: {error}")
            return 1
        print(f"Node and its packages: {time.monotonic() - started:.1f} s", flush=True)
        return asyncio.run(run(node, Path(folder), suites))


if __name__ == "__main__":
    sys.exit(main())
