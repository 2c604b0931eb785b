"""The sample installations use only existing settings, and grant no right that they do not need.
The commands of the image and of the unit run as they are written.
"""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from recall_server.config import Settings, is_secret, variable_of
from tests.support.engines import KEY_FILE
from tests.support.paths import ROOT
from tests.support.processes import Process, free_port, until

DEPLOY = ROOT / "docs" / "operate" / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = ("server", "worker")
WITHIN_S = 60.0


def known() -> set[str]:
    fields = Settings.model_fields.items()
    names = {variable_of(name, field) for name, field in fields}
    return names | {
        f"{variable_of(name, field)}_FILE" for name, field in fields if is_secret(field)
    }


def test_compose_sets_settings_and_hands_secrets_over_as_files() -> None:
    for name in OURS:
        environment = SERVICES[name]["environment"]
        assert environment.keys() <= known()
        assert set(SERVICES[name]["secrets"]) == {
            Path(value).name for key, value in environment.items() if key.endswith("_FILE")
            if value.startswith("/run/secrets/")
        }  # fmt: skip
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    used = {secret for one in SERVICES.values() for secret in one.get("secrets", ())}

    assert used == COMPOSE["secrets"].keys()
    assert not re.search(r"PASSWORD: ", text)
    assert all(one["file"].startswith("secrets/") for one in COMPOSE["secrets"].values())


def test_compose_gives_away_no_right_that_is_not_needed() -> None:
    for name, one in SERVICES.items():
        assert one["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in one["security_opt"]
        assert "privileged" not in one
    for name in OURS:
        assert SERVICES[name]["read_only"]
        assert SERVICES[name]["user"].startswith("10001")
    assert [name for name, one in SERVICES.items() if "ports" in one] == ["proxy"]
    assert COMPOSE["networks"]["data"] == {"internal": True}
    assert SERVICES["db"]["networks"] == ["data"]
    assert "data" not in SERVICES["proxy"]["networks"]


def test_what_compose_names_is_there() -> None:
    for one in SERVICES.values():
        for volume in one["volumes"]:
            source = volume.partition(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).exists(), source
        assert set(one["networks"]) <= COMPOSE["networks"].keys()
        assert set(one.get("depends_on", ())) <= SERVICES.keys()
    assert (DEPLOY / SERVICES["server"]["build"] / "Dockerfile").exists()
    assert (DEPLOY / "postgres-init.sh").stat().st_mode & 0o111


@pytest.mark.parametrize("name", ["Caddyfile", "nginx.conf"])
def test_a_proxy_passes_events_on_at_once_and_takes_no_more_than_the_server(name: str) -> None:
    text = (DEPLOY / name).read_text("utf-8")
    body_bytes_max = Settings.model_fields["body_bytes_max"].default

    assert f"{body_bytes_max // 2**20}m" in text.lower()
    assert re.search(r"flush_interval -1|proxy_buffering off", text)
    assert "/metrics" not in text


def unit() -> dict[str, str]:
    lines = (DEPLOY / "recall-server.service").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_the_unit_leaves_time_to_stop_and_has_no_rights() -> None:
    found = unit()
    drain_s = Settings.model_fields["drain_s"].default

    assert found["ExecStart"].endswith("/recall serve")
    assert found["Environment"].split("=")[0] in known()
    assert int(found["TimeoutStopSec"]) > drain_s
    assert found["CapabilityBoundingSet"] == ""
    assert found["ProtectSystem"] == "strict"


def lacks(program: str, command: str) -> bool:
    """Docker may lack its plugin."""
    asked = subprocess.run(
        [program, *([command] if program == "docker" else []), "version"],
        capture_output=True,
        check=False,
    )
    return asked.returncode != 0


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("docker", ("compose", "--file", str(DEPLOY / "compose.yaml"), "config", "--quiet")),
        ("caddy", ("validate", "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile"))),
    ],
)
def test_the_program_itself_takes_its_file(program: str, arguments: tuple[str, ...]) -> None:
    if shutil.which(program) is None or lacks(program, arguments[0]):
        pytest.skip(f"{program} {arguments[0]} is not installed here")
    done = subprocess.run(
        [program, *arguments],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "RECALL_HOSTNAME": "memory.example.com"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def of_image(folder: Path, **given: object) -> dict[str, object]:
    """Return the settings of the image, with `folder` instead of its volume."""
    [line] = [
        one for one in (ROOT / "Dockerfile").read_text("utf-8").splitlines() if one[:4] == "ENV "
    ]
    pairs = dict(part.split("=", 1) for part in line.removeprefix("ENV ").split())
    ours = {
        key.removeprefix("RECALL_").lower(): value.replace("/data", str(folder))
        for key, value in pairs.items()
        if key.startswith("RECALL_")
    }
    return {**ours, "embedder": "none", **given}


@pytest.mark.parametrize("command", OURS)
async def test_the_image_is_put_on_either_engine_by_its_environment(
    database: Path | str, tmp_path: Path, command: str
) -> None:
    """Its health check passes, for a worker too. Only the ports differ."""
    folder = tmp_path if isinstance(database, Path) else tmp_path / "data"
    folder.mkdir(mode=0o700, exist_ok=True)
    port, probe = free_port(), free_port()
    settings = of_image(folder, host="127.0.0.1", port=port, probe_port=probe)
    if isinstance(database, str):
        settings["key_file"] = KEY_FILE
    given = {"server": "serve", "worker": "worker"}[command]
    async with Process(database, given, **settings) as process, httpx2.AsyncClient() as http:

        async def healthy() -> bool:
            assert process.alive, process.log()
            try:
                answer = await http.get(f"http://127.0.0.1:{probe}/health")
            except httpx2.TransportError:
                return False
            return answer.status_code == 200

        await until(healthy, WITHIN_S, f"it is healthy. {process.log()}")
        metrics = (await http.get(f"http://127.0.0.1:{probe}/metrics")).text
        assert await process.stop() == 0
    made = await asyncio.to_thread(lambda: sorted(path.name for path in folder.iterdir()))

    assert "recall_cache_bytes" in metrics
    assert ("recall.db" in made) is isinstance(database, Path)


def test_the_dashboard_is_json_and_the_rules_are_yaml() -> None:
    monitoring = ROOT / "docs" / "operate" / "monitoring"
    dashboard = json.loads((monitoring / "grafana.json").read_text("utf-8"))
    [rules] = yaml.safe_load((monitoring / "alerts.yaml").read_text("utf-8"))["groups"]

    assert len(dashboard["panels"]) == len({one["id"] for one in dashboard["panels"]}) > 5
    assert all({"alert", "expr", "annotations"} <= one.keys() for one in rules["rules"])
