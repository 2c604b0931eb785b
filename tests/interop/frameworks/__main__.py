"""Frameworks by other people, each in its own environment, against a real server: `make
interop-frameworks`, or with SUITES="langgraph mem0" some of them.

A suite is a program in this folder that exits with 0 if all checks held. RECALL_URL and
RECALL_TOKEN name the server for it.
"""

import asyncio
import os
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

from tests.interop.child import run
from tests.interop.report import Report, demand
from tests.interop.server import Server, serving

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CLIENT = ROOT / "clients" / "python"
# These are kept between runs, since some take a minute to install.
ENVIRONMENTS = ROOT / ".venv-frameworks"
INSTALL_S = 600.0
SUITE_S = 300.0
# None of them reports to its makers that it ran.
SILENT = {
    "MEM0_TELEMETRY": "False",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "OTEL_SDK_DISABLED": "true",
    "MCP_USE_ANONYMIZED_TELEMETRY": "false",
}


@dataclass(frozen=True)
class Suite:
    """A program and its requirements; `client` is the extra of our client that it needs."""

    program: str
    requirements: tuple[str, ...]
    client: str | None = None


SUITES = {
    "crewai": Suite("crewai_adapter.py", ("crewai-tools[mcp]>=1.15,<2", "crewai>=1.15,<2")),
    "mcp-use": Suite("mcp_use_adapter.py", ("mcp-use>=1.7,<2", "langchain>=1.4,<2")),
    "langgraph": Suite("langgraph_store.py", ("langgraph>=1.2,<2",), "langgraph"),
    "mem0": Suite("mem0_client.py", ("mem0ai>=2.2,<3",), ""),
    "openai-agents": Suite("agents_session.py", ("openai-agents>=0.24,<1",), "openai-agents"),
    "openapi-python-client": Suite("generated.py", ("openapi-python-client>=0.29,<1", "ruff")),
}


async def installed(name: str, suite: Suite) -> Path:
    """Return the Python of the environment of a suite."""
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    wanted = [*suite.requirements]
    if suite.client is not None:
        wanted.append(f"{CLIENT}[{suite.client}]" if suite.client else str(CLIENT))
    if not python.exists():
        await asyncio.to_thread(venv.create, folder, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = await run([*pip, *wanted], os.environ, ROOT, within_s=INSTALL_S)
    demand(done.code == 0, f"pip ended with {done.code}: {done.err[-500:]}")
    if suite.client is not None:  # The same version may have changed.
        again = [*pip, "--force-reinstall", "--no-deps", str(CLIENT)]
        done = await run(again, os.environ, ROOT, within_s=INSTALL_S)
        demand(done.code == 0, f"pip ended with {done.code}: {done.err[-500:]}")
    return python


async def check(name: str, suite: Suite, server: Server, report: Report) -> None:
    with report.check(f"{name}: {', '.join(suite.requirements)}"):
        python = await installed(name, suite)
        token = await server.issued(name)
        path = f"{python.parent}:{os.environ['PATH']}"
        given = {"RECALL_URL": server.address, "RECALL_TOKEN": token, "PATH": path}
        with tempfile.TemporaryDirectory() as home:
            done = await run(
                [str(python), str(HERE / suite.program)],
                {**given, **SILENT, "HOME": home},
                Path(home),
                within_s=SUITE_S,
            )
        print(done.out, end="", flush=True)
        # The report shows the beginning, and the reason is at the end of a traceback.
        demand(done.code == 0, done.err[-500:])


async def main() -> int:
    wanted = sys.argv[1:] or list(SUITES)
    if unknown := set(wanted) - SUITES.keys():
        print(f"no such suite: {', '.join(unknown)}; there are {', '.join(SUITES)}")
        return 2
    report = Report()
    with tempfile.TemporaryDirectory(prefix="recall-frameworks-") as folder:
        async with serving(Path(folder), RECALL_MEM0="true") as server:
            for name in wanted:
                await check(name, SUITES[name], server, report)
    return report.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
