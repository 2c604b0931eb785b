"""@a2a-js/sdk, the JavaScript client of A2A, over each binding that our card names."""

import json
import shutil
from pathlib import Path

from tests.interop.child import Ended
from tests.interop.node import HOME, Node
from tests.interop.report import Report, demand
from tests.interop.server import Server

SCRIPT = Path(__file__).with_name("a2a_js.mjs")
WITHIN_S = 90.0
# The binding, the revision of the protocol, and how many checks the script makes with them.
WAYS = (("JSONRPC", "1.0", 14), ("HTTP+JSON", "1.0", 14), ("JSONRPC", "0.3", 13))


async def check(node: Node, server: Server, report: Report) -> None:
    # A module is looked for next to the script that imports it.
    script = str(shutil.copy(SCRIPT, HOME))
    for binding, version, checks in WAYS:
        named = f"a2a-js {binding} {version}:"
        # Each has its own namespace, since the texts of one would contradict those of the next.
        token = await server.issued(f"js-{binding}-{version}".lower().translate(_PLAIN))
        made = 0
        with report.check(f"{named} all {checks} checks are made"):
            ended = await node.run(
                "node", script, server.address, binding, version,
                within_s=WITHIN_S, given={"RECALL_TOKEN": token},
            )  # fmt: skip
            made = _told(ended, named, report)
            demand(ended.code == 0 and made == checks, f"{made} were made: {ended.err}")


_PLAIN = str.maketrans("+.", "--")


def _told(ended: Ended, named: str, report: Report) -> int:
    """Report what the script printed, and return how many checks that was."""
    lines = [json.loads(line) for line in ended.out.splitlines()]
    for line in lines:
        with report.check(f"{named} {line['check']}"):
            demand(line["why"] is None, line["why"])
    return len(lines)
