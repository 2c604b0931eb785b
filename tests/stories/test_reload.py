"""`recall serve --reload`, in a copy of the product that is changed while it runs."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.support.cli import recall, refused
from tests.support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clean_environment")]


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """Return a folder with a copy of the package."""
    copy = tmp_path / "product"
    shutil.copytree(ROOT / "recall_server", copy / "recall_server")
    for name in ("migrations", "agent-card.json"):
        (copy / name).symlink_to(ROOT / name)
    return copy


@pytest.fixture
def reloading(product: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-P", "-m", "recall_server", "serve", "--reload", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(product), "RECALL_EMBEDDER": "none"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.terminate()


def served(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Return the engine, as the server that starts next says it, and its address."""
    assert process.stderr is not None
    for line in process.stderr:
        said = json.loads(line)
        if said["event"] == "serving":
            return said["engine"], said["address"].removesuffix("/mcp")
    raise AssertionError("it has ended")


def test_a_change_of_the_code_starts_the_server_again_on_the_same_file(
    product: Path, reloading: subprocess.Popen[str]
) -> None:
    engine, old = served(reloading)
    httpx2.get(f"{old}/health").raise_for_status()
    module = product / "recall_server" / "cli" / "commands.py"
    said = "engine=built.store.engine,"
    module.write_text(module.read_text("utf-8").replace(said, 'engine="changed",'), "utf-8")

    changed, new = served(reloading)

    assert (engine, changed) == ("sqlite", "changed")
    httpx2.get(f"{new}/health").raise_for_status()
    with pytest.raises(httpx2.TransportError):
        httpx2.get(f"{old}/health")

    reloading.send_signal(signal.SIGTERM)
    assert reloading.wait() == 0
    assert not Path("recall.db.lock").exists()
    with pytest.raises(httpx2.TransportError):
        httpx2.get(f"{new}/health")


def test_it_is_refused_where_others_could_reach_it() -> None:
    refused(
        recall("serve", "--reload", "--host", "0.0.0.0", "--allow-public"),
        "INVALID_ARGUMENT",
        "--reload",
        "127.0.0.1",
    )
    refused(recall("serve", "--reload", "--until-unused"), "INVALID_ARGUMENT", "--until-unused")
