"""The files that are published for clients match the code: bundle, registry entry and plugin."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from docs import generate
from recall_server import __version__
from recall_server.api.mcp import listed_of, tools_of
from recall_server.api.operations import OPERATIONS
from recall_server.domain.permissions import DEFAULT_SCOPES, Rights
from recall_server.local import clients
from tests.support.paths import ROOT

CLIENTS = ROOT / "clients"
NAMED = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "pyproject.toml", "Dockerfile")),
    *(path for path in sorted(CLIENTS.rglob("*")) if path.suffix in {".json", ".toml", ".md"}),
    *sorted((ROOT / "docs").rglob("*.md")),
]
COMMAND = ("uvx", "--from", "recall-server", "recall")

# The rules of server.json of 2025-12-11 for the fields that ours uses.
_TEXT = {"type": "string", "minLength": 1}
_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {"type": {"enum": ["named", "positional"]}, "name": _TEXT, "value": _TEXT},
    "required": ["type"],
    "additionalProperties": False,
}
SERVER_JSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "$schema": {"type": "string", "pattern": r"/schemas/2025-12-11/server\.schema\.json$"},
        "name": {
            "type": "string",
            "pattern": r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$",
            "minLength": 3,
            "maxLength": 200,
        },
        "title": {**_TEXT, "maxLength": 100},
        "description": {**_TEXT, "maxLength": 100},
        "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$", "maxLength": 255},
        "packages": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "registryType": {"enum": ["npm", "pypi", "oci", "nuget", "mcpb"]},
                    "identifier": _TEXT,
                    "version": _TEXT,
                    "runtimeHint": _TEXT,
                    "runtimeArguments": {"type": "array", "items": _INPUT},
                    "packageArguments": {"type": "array", "items": _INPUT},
                    "transport": {
                        "type": "object",
                        "properties": {"type": {"enum": ["stdio", "streamable-http", "sse"]}},
                        "required": ["type"],
                    },
                    "environmentVariables": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "name": _TEXT,
                                "description": _TEXT,
                                "isRequired": {"type": "boolean"},
                                "isSecret": {"type": "boolean"},
                            },
                            "required": ["name"],
                            "additionalProperties": False,
                        },
                    },
                },
                "required": ["registryType", "identifier", "transport"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["$schema", "name", "description", "version"],
    "additionalProperties": False,
}


def read(name: str) -> Any:
    return json.loads((CLIENTS / name).read_text("utf-8"))


def test_the_registry_entry_keeps_to_its_schema_and_is_named_in_the_readme() -> None:
    entry = read("server.json")

    jsonschema.validate(entry, SERVER_JSON)
    assert entry["version"] == entry["packages"][0]["version"] == __version__
    readme = (ROOT / "README.md").read_text("utf-8")
    assert re.findall(r"mcp-name: (\S+)", readme) == [entry["name"]]


@pytest.mark.parametrize("path", NAMED, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_name_in_the_registry_is_the_same_wherever_it_stands(path: Path) -> None:
    found = set(re.findall(r"io\.github\.[\w-]+/[\w.-]*\w", path.read_text("utf-8")))

    assert found <= {read("server.json")["name"]}
    if path.name in {"README.md", "CONTRIBUTING.md"} and path.parent == ROOT:
        assert found


@pytest.mark.parametrize("path", ["agent-card.json", "clients/plugin/.claude-plugin/plugin.json"])
def test_what_is_published_has_the_version_of_this_release(path: str) -> None:
    assert json.loads((ROOT / path).read_text("utf-8"))["version"] == __version__


def test_the_bundle_is_of_this_version_and_names_the_tools_of_a_new_token() -> None:
    manifest = read("mcpb/manifest.json")
    with (CLIENTS / "mcpb" / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]

    rights = Rights(DEFAULT_SCOPES)
    listed = listed_of(tools_of(OPERATIONS), (), ())
    offered = {tool.name for tool in listed if tool.operation.allowed(rights)}
    assert manifest["version"] == project["version"] == __version__
    assert project["dependencies"] == [f"recall-server=={__version__}"]
    assert {tool["name"] for tool in manifest["tools"]} == offered
    assert manifest["user_config"]["token"]["sensitive"] is True


def test_the_plugin_has_the_server_and_the_hooks_that_install_writes() -> None:
    entry = clients.CLIENTS["claude-desktop"].entry([*COMMAND, "stdio"])
    of = clients.CLIENTS["claude-code"].hooks
    assert of is not None
    hooks = {event: [of.entry(COMMAND, event)] for event in of.events}

    assert read("plugin/.mcp.json") == {"mcpServers": {"recall": entry}}
    assert read("plugin/hooks/hooks.json") == {"hooks": hooks}
    assert read("plugin/.claude-plugin/plugin.json")["version"] == __version__


@pytest.mark.parametrize("name", clients.CLIENTS)
def test_every_client_has_its_page_as_the_table_says(name: str) -> None:
    assert name not in generate.stale_clients(), "run: make docs-reference"
    index = (ROOT / "docs" / "clients.md").read_text("utf-8")
    assert f"(clients/{name}.md)" in index
