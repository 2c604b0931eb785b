"""The official conformance suite, against our own server and against a fixture in its place.

Most scenarios call tools, resources and prompts that no memory server has. So each revision of
the protocol is run on both: our server, with a baseline of what it lacks, proves its own answers;
the fixture, behind the same middleware, proves everything between it and the client,
once as we serve and once streaming, which shows that nothing but our choice of plain JSON is in
the way of it.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop import fixture
from tests.interop.inject import open_to_all
from tests.interop.node import Node
from tests.interop.report import Report, demand

BASELINES = Path(__file__).parent
WITHIN_S = 240.0


@dataclass(frozen=True)
class Run:
    """One run of the suite. `proves` guards against passing for nothing: so many checks of each
    scenario must succeed, in those of the baseline too; `checks` is the like for the whole run.
    """

    target: str
    revision: str
    checks: int
    proves: Mapping[str, int] = field(default_factory=dict)

    @property
    def baseline(self) -> list[str]:
        """Return what may fail, in the form of the suite. Without a file, nothing may fail."""
        kind = "" if self.target == OURS else f"-{self.target}".replace(" ", "-")
        file = BASELINES / f"baseline{kind}-{self.revision}.yml"
        return ["--expected-failures", str(file)] if file.exists() else []

    @property
    def slug(self) -> str:
        return f"{self.target.replace(' ', '-')}-{self.revision}"


OURS, FIXTURE, STREAMING = "our server", "fixture", "streaming fixture"
RUNS = (
    Run(
        OURS,
        "2026-07-28",
        checks=96,
        proves={
            "server-stateless": 21,
            "tools-list": 4,
            "http-header-validation": 14,
            "caching": 4,
            "dns-rebinding-protection": 2,
            "input-required-result-unsupported-methods": 2,
            "server-sse-multiple-streams": 1,
        },
    ),
    Run(
        OURS,
        "2025-11-25",
        checks=35,
        proves={
            "server-initialize": 2,
            "ping": 2,
            "tools-list": 3,
            "dns-rebinding-protection": 2,
        },
    ),
    Run(FIXTURE, "2026-07-28", checks=158),
    Run(FIXTURE, "2025-11-25", checks=61),
    Run(STREAMING, "2026-07-28", checks=159),
    Run(STREAMING, "2025-11-25", checks=63),
)


async def check(node: Node, folder: Path, report: Report) -> None:
    for run in RUNS:
        named = f"conformance {run.revision}, {run.target}:"
        results = folder / run.slug
        with report.check(f"{named} as the baseline says"):
            await _suite(node, run, results)
            total = sum(_successes(results).values())
            demand(total >= run.checks, f"only {total} checks succeeded, not {run.checks}")
        for scenario, least in run.proves.items():
            with report.check(f"{named} {scenario} proves {least}"):
                got = _successes(results)[scenario]
                demand(got >= least, f"only {got} of its checks succeeded")


async def _suite(node: Node, run: Run, results: Path) -> None:
    instead = None if run.target == OURS else fixture.server()
    database = results.with_suffix(".db")
    async with open_to_all(database, instead, streaming=run.target == STREAMING) as url:
        ended = await node.run(
            "conformance", "server", "--url", url, "--requirements", run.revision,
            "--output-dir", str(results), *run.baseline,
            within_s=WITHIN_S,
        )  # fmt: skip
    demand(ended.code == 0, _verdict(ended.out) or ended.err)


def _verdict(out: str) -> str:
    """Return what the suite says about the baseline, which comes after its summary."""
    found = re.search(r"(Unexpected|Stale|Expected failures).*", out, re.DOTALL)
    return found[0] if found else out[-600:]


def _successes(results: Path) -> Counter[str]:
    """Count the successful checks of each scenario, whose folder has its name and the time."""
    counted: Counter[str] = Counter()
    for file in results.glob("server-*/checks.json"):
        scenario = re.sub(r"^server-|-\d{4}-\d\d-\d\dT[\d-]+Z$", "", file.parent.name)
        checks = json.loads(file.read_text())
        counted[scenario] += sum(check["status"] == "SUCCESS" for check in checks)
    return counted
