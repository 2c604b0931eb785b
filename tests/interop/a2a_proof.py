"""a2a-proof sends what a contract says, and judges the answers by it, over both bindings.

It needs packages that we do not need, so it has its own environment in `.interop/`.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop import child
from tests.interop.child import Ended
from tests.interop.node import HOME
from tests.interop.report import Report, demand
from tests.interop.server import Server

FILES = Path(__file__).parent
CONTRACT = FILES / "a2a_proof.yml"
BASELINE = FILES / "baseline-a2a-proof.toml"
PINS = FILES / "a2a_proof.txt"

TRANSPORTS = {"JSONRPC": "jsonrpc", "HTTP+JSON": "rest"}
AT_ONCE = "8"
WITHIN_S = 120.0

Json = dict[str, Any]


class ProofUnusable(Exception):
    """The package could not be installed."""


@dataclass(frozen=True)
class Verification:
    """The installed program. It may write to `home`."""

    program: Path
    home: Path

    async def run(self, *arguments: str, given: Mapping[str, str]) -> Ended:
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR", "PATH") if name in os.environ}
        environment = {**kept, "HOME": str(self.home), **given}
        return await child.run(
            [str(self.program), *arguments], environment, self.home, within_s=WITHIN_S
        )


def installed(home: Path) -> Verification:
    """Install the program, unless these versions are there already, and return it."""
    place = HOME / "a2a-proof"
    stamp = place / "installed.txt"
    wanted = PINS.read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(place, ignore_errors=True)
        _install(place)
        stamp.write_text(wanted)
    return Verification(place / "bin" / "a2a-proof", home)


def _install(place: Path) -> None:
    pip = [str(place / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", str(place)], [*pip, "-r", str(PINS)]):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise ProofUnusable(f"{command[0]} failed: {ended.stderr.strip()[-2000:]}")


async def check(proof: Verification, server: Server, report: Report) -> None:
    await _check_card(proof, server, report)
    for transport, named in TRANSPORTS.items():
        await _check_contract(proof, server, transport, named, report)
    await _check_stranger(proof, server, report)


async def _check_card(proof: Verification, server: Server, report: Report) -> None:
    with report.check("a2a-proof: the first example of each skill in our card, as it is, holds"):
        given = {"AUTHORIZATION": f"Bearer {await server.issued('proof-card')}"}
        made = await proof.run(
            "init", server.address, "--header-env", "Authorization=AUTHORIZATION", given=given
        )
        demand(made.code == 0, made.err)
        ended = await proof.run("run", "--format", "json", given=given)
        scenarios = _scenarios(ended)
        demand(len(scenarios) == 2 and ended.code == 0, f"it says {ended.out}")


async def _check_contract(
    proof: Verification, server: Server, transport: str, named: str, report: Report
) -> None:
    given = {"RECALL_URL": server.address, "RECALL_TOKEN": await server.issued(f"proof-{named}")}
    baseline: dict[str, Json] = tomllib.loads(BASELINE.read_text())
    with report.check(f"a2a-proof {transport}: the contract is gone through"):
        ended = await proof.run(
            "run", str(CONTRACT), "--transport", transport, "--jobs", AT_ONCE, "--format", "json",
            given=given,
        )  # fmt: skip
        scenarios = _scenarios(ended)
        unknown = set(baseline) - {one["name"] for one in scenarios}
        demand(not unknown, f"the baseline names what the contract does not: {unknown}")
        for one in scenarios:
            name: str = one["name"]
            known = " does not hold, as the baseline says" if name in baseline else ""
            with report.check(f"a2a-proof {transport}: {name}{known}"):
                _judge(one, baseline.get(name))


def _judge(scenario: Json, known: Json | None) -> None:
    why = "; ".join(_failures(scenario))
    if known is None:
        demand(scenario["passed"], why)
    else:
        demand(not scenario["passed"], "it holds now: take it out of the baseline")
        demand(known["says"] in why, f"it fails in another way than the baseline says: {why}")


async def _check_stranger(proof: Verification, server: Server, report: Report) -> None:
    with report.check("a2a-proof: with a wrong token nothing of it is answered"):
        given = {"RECALL_URL": server.address, "RECALL_TOKEN": "rcl_wrong"}
        ended = await proof.run("run", str(CONTRACT), "--format", "json", given=given)
        answered = [
            one["name"] for one in _scenarios(ended) if "401" not in "".join(_failures(one)[:1])
        ]
        demand(not answered, f"answered are {answered}")


def _scenarios(ended: Ended) -> list[Json]:
    """Return what it found, for every scenario."""
    demand(ended.code in (0, 1), ended.err or ended.out)
    found: Json = json.loads(ended.out)
    card: Json = found["card"] or {"passed": True}
    demand(card["passed"], f"the card: {card.get('failures')}")
    scenarios: list[Json] = found["scenarios"]
    return scenarios


def _failures(scenario: Json) -> list[str]:
    trials: list[Json] = scenario["trials"]
    turns = [turn for trial in trials for turn in trial["turns"]]
    errors = [trial["error"] for trial in trials if trial["error"]]
    return errors + [failure for turn in turns for failure in turn["failures"]]
