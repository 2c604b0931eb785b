"""No test can build the image, so they read its text: what it copies, and its user."""

import json
import re

from recall_server.api.app import OPEN_PATHS
from recall_server.config import Settings
from tests.support.paths import ROOT

LINES = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ").splitlines()


def instruction(name: str) -> list[str]:
    return [line.removeprefix(name).strip() for line in LINES if line.startswith(f"{name} ")]


def copied() -> set[str]:
    from_here = [line.split() for line in instruction("COPY") if not line.startswith("--from")]
    return {source for words in from_here for source in words[:-1]}


def environment() -> dict[str, str]:
    return dict(part.split("=", 1) for line in instruction("ENV") for part in line.split())


def test_everything_that_is_copied_exists_and_is_let_through() -> None:
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    let_through = {line[1:] for line in ignored if line.startswith("!")}

    assert all((ROOT / source).exists() for source in copied())
    assert copied() == let_through


def test_the_server_does_not_run_as_root_and_keeps_its_data_outside() -> None:
    last = LINES[max(i for i, line in enumerate(LINES) if line.startswith("FROM ")) :]

    assert "USER recall" in last
    assert "VOLUME /data" in last


def test_the_image_serves_from_its_volume_unless_told_otherwise() -> None:
    started = json.loads(instruction("ENTRYPOINT")[0]) + json.loads(instruction("CMD")[0])

    assert started == ["recall", "serve"]
    assert environment()["RECALL_DB_PATH"] == "/data/recall.db"
    assert environment()["RECALL_HOST"] == "0.0.0.0"


def test_a_model_is_fetched_while_building_and_only_if_one_is_named() -> None:
    (fetching,) = (line for line in instruction("RUN") if "SentenceTransformer" in line)

    assert instruction("ARG") == ["MODEL="]
    assert 'if [ -n "$MODEL" ]; then' in fetching
    assert "/opt/recall/models/" in (ROOT / "docs" / "operate" / "install.md").read_text("utf-8")
    assert "RECALL_ALLOW_DOWNLOADS" not in environment()


def test_every_setting_of_the_image_is_one() -> None:
    known = {f"RECALL_{name.upper()}" for name in Settings.model_fields}

    assert {name for name in environment() if name.startswith("RECALL_")} <= known


def test_the_health_check_is_python_and_asks_an_open_path() -> None:
    check = instruction("HEALTHCHECK")[0]
    command = json.loads(check[check.index("[") :])
    path = re.search(r"'GET', '([^']+)'", command[2])

    assert command[:2] == ["python", "-c"]
    assert f", {environment()['RECALL_PROBE_PORT']}, " in command[2]
    assert path is not None
    assert path[1] in OPEN_PATHS
    compile(command[2], "HEALTHCHECK", "exec")
