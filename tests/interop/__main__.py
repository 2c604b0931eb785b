"""`python -m tests.interop`: all checks, or those of the suites that are named as arguments."""

import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

from recall_server import telemetry
from tests.interop import a2a_js, a2a_proof, conformance, inspector, remote
from tests.interop.a2a_proof import ProofUnusable, Verification
from tests.interop.node import Node, NodeUnusable, installed
from tests.interop.report import Report
from tests.interop.server import serving

SUITES = ("inspector", "mcp-remote", "a2a-js", "a2a-proof", "conformance")


async def run(node: Node, proof: Verification, folder: Path, suites: set[str]) -> int:
    report = Report()
    if suites - {"conformance"}:
        with report.check("our server starts, and ends when it is told to"):
            async with serving(folder) as server:
                if "inspector" in suites:
                    await inspector.check(node, server, report)
                if "mcp-remote" in suites:
                    await remote.check(node, server, report)
                if "a2a-js" in suites:
                    await a2a_js.check(node, server, report)
                if "a2a-proof" in suites:
                    await a2a_proof.check(proof, server, report)
    if "conformance" in suites:
        await conformance.check(node, folder, report)
    return report.close()


def main() -> int:
    suites = set(sys.argv[1:]) or set(SUITES)
    if unknown := suites - set(SUITES):
        print(f"no such suite: {', '.join(unknown)}; there are {', '.join(SUITES)}")
        return 2
    telemetry.configure_logs("error")
    # The suites do on purpose what the SDK warns of.
    logging.getLogger("mcp").setLevel(logging.ERROR)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="recall-interop-") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        try:
            node, proof = installed(home), a2a_proof.installed(home)
        except (NodeUnusable, ProofUnusable) as error:
            print(f"FAILED installing: {error}")
            return 1
        print(f"Node and the packages: {time.monotonic() - started:.1f} s", flush=True)
        return asyncio.run(run(node, proof, Path(folder), suites))


if __name__ == "__main__":
    sys.exit(main())
