"""Run tests of a copy of the project, and report which of their rows fail."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

FAILED = 1


@dataclass(frozen=True)
class Rows:
    """The result of a run of pytest: its exit code (None: it took too long), the rows that passed
    and those that failed, and its output. A row that did not reach its test is in neither.
    """

    code: int | None
    green: tuple[str, ...]
    red: tuple[str, ...]
    seconds: float
    output: str

    def red_of(self, test: str) -> list[str]:
        """Return the failed rows of a test, or of one of its rows."""
        return [row for row in self.red if row == test or row.startswith(f"{test}[")]


def run(tree: Path, tests: Iterable[str], postgres: str, seconds_max: float) -> Rows:
    """Run the tests of `tree` on its own code."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="recall-rows-") as folder:
        report = Path(folder) / "rows.xml"
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"),
                *(f"--basetemp={folder}/tmp", f"--junitxml={report}", "-o", "junit_family=xunit1"),
                *dict.fromkeys(tests),
            ],
            cwd=tree,
            env=_environment(tree, postgres),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return Rows(None, (), (), time.monotonic() - started, output)
        green, red = _read(report) if report.exists() else ((), ())
    return Rows(process.returncode, green, red, time.monotonic() - started, output)


def _read(report: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    green, red = [], []
    for case in ET.parse(report).iter("testcase"):
        row = f"{case.attrib['file']}::{case.attrib['name']}"
        if case.find("failure") is not None:
            red.append(row)
        elif case.find("error") is None and case.find("skipped") is None:
            green.append(row)
    return tuple(green), tuple(red)


def _environment(tree: Path, postgres: str) -> dict[str, str]:
    ours = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("RECALL_", "ANTHROPIC_", "OPENAI_", "PYTEST_"))
    }
    return {**ours, "PYTHONPATH": str(tree), "RECALL_TEST_POSTGRES": postgres}
