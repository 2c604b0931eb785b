"""The MCP clients that `recall install` sets up: one entry each, from which the docs are generated.

Every client starts `recall stdio`, which needs no address and no secret in the configuration.
"""

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

Command = Sequence[str]
Entry = dict[str, Any]

NAME = "recall"
# Seconds that a client waits for a hook; the commands themselves are far quicker.
HOOK_S = 10


@dataclass(frozen=True)
class Hooks:
    """The hooks of a client: its file, its names of the events that `recall hook` answers, and how
    many of its time units make a second. With a `version`, which the file must state, an entry is
    one hook, and not a group of them.
    """

    path: str
    events: Mapping[str, str]
    second: int = 1
    version: int | None = None

    def entry(self, command: Command, event: str, options: Command = ()) -> Entry:
        """Return the hook of one event in the form of the client."""
        words = shlex.join([*command, "hook", self.events[event], *options])
        timeout = HOOK_S * self.second
        if self.version is not None:
            return {"command": words, "timeout": timeout}
        return {"hooks": [{"type": "command", "command": words, "timeout": timeout}]}


@dataclass(frozen=True)
class Plugin:
    """The hooks of a client that runs programs of its own language: the file of ours there, and
    its source beside this module.
    """

    path: str
    source: str

    def text(self, command: Command, options: Command = ()) -> str:
        """Return the program, with the command of this program in it."""
        text = resources.files(__package__).joinpath(self.source).read_text("utf-8")
        given = {"HOOK": [*command, "hook"], "OPTIONS": [*options]}
        lines = [
            f"const {name} = {json.dumps(given[name])}"
            if (name := line.removeprefix("const ").partition(" ")[0]) in given
            else line
            for line in text.splitlines()
        ]
        return "\n".join(lines) + "\n"

    def ours(self, text: str) -> bool:
        """Return whether a file is this program, with any command."""
        return text.partition("\n")[0] == self.text(()).partition("\n")[0]


@dataclass(frozen=True)
class Client:
    """Where a client configures its servers: a file below the user's home folder (`path_macos` if
    it differs on macOS), the keys that lead to the servers, and the form of an entry.
    """

    name: str
    title: str
    path: str
    keys: tuple[str, ...]
    entry: Callable[[Command], Entry]
    path_macos: str | None = None
    hooks: Hooks | None = None
    plugin: Plugin | None = None
    after: str = "Restart it."

    def file(self, home: Path) -> Path:
        return home / ((sys.platform == "darwin" and self.path_macos) or self.path)

    @property
    def toml(self) -> bool:
        return self.path.endswith(".toml")


def _plain(command: Command) -> Entry:
    return {"command": command[0], "args": [*command[1:]]}


def _typed(command: Command) -> Entry:
    return {"type": "stdio", **_plain(command)}


def _custom(command: Command) -> Entry:
    return {"source": "custom", **_plain(command), "env": {}}


def _local(command: Command) -> Entry:
    return {"type": "local", "command": [*command], "enabled": True}


_SERVERS = ("mcpServers",)
CLIENTS: Mapping[str, Client] = {
    one.name: one
    for one in (
        Client(
            "claude-code",
            "Claude Code",
            ".claude.json",
            _SERVERS,
            _typed,
            hooks=Hooks(
                ".claude/settings.json",
                {
                    "SessionStart": "session-start",
                    "UserPromptSubmit": "user-prompt-submit",
                    "PreCompact": "pre-compact",
                    "Stop": "stop",
                    "SessionEnd": "session-end",
                },
            ),
            after="Begin a new session; `/mcp` shows it, and `/hooks` its hooks.",
        ),
        Client(
            "claude-desktop",
            "Claude Desktop",
            ".config/Claude/claude_desktop_config.json",
            _SERVERS,
            _plain,
            "Library/Application Support/Claude/claude_desktop_config.json",
            after="Quit Claude Desktop and open it again.",
        ),
        Client(
            "codex",
            "Codex",
            ".codex/config.toml",
            ("mcp_servers",),
            _plain,
            hooks=Hooks(
                ".codex/hooks.json",
                {
                    "SessionStart": "session-start",
                    "UserPromptSubmit": "user-prompt-submit",
                    "PreCompact": "pre-compact",
                    "Stop": "stop",
                },
            ),
            after="Begin a new session; Codex runs its hooks when you have trusted them: `/hooks`.",
        ),
        Client(
            "cursor",
            "Cursor",
            ".cursor/mcp.json",
            _SERVERS,
            _plain,
            hooks=Hooks(
                ".cursor/hooks.json",
                {
                    "sessionStart": "session-start",
                    "beforeSubmitPrompt": "user-prompt-submit",
                    "preCompact": "pre-compact",
                    "stop": "stop",
                    "sessionEnd": "session-end",
                },
                version=1,
            ),
            after="Restart it; Hooks in its settings shows them.",
        ),
        Client(
            "vscode",
            "VS Code",
            ".config/Code/User/mcp.json",
            ("servers",),
            _typed,
            "Library/Application Support/Code/User/mcp.json",
            after="`MCP: List Servers` in the command palette shows it.",
        ),
        Client("windsurf", "Windsurf", ".codeium/windsurf/mcp_config.json", _SERVERS, _plain),
        Client("zed", "Zed", ".config/zed/settings.json", ("context_servers",), _custom),
        Client(
            "gemini",
            "Gemini CLI",
            ".gemini/settings.json",
            _SERVERS,
            _plain,
            hooks=Hooks(
                ".gemini/settings.json",
                {
                    "SessionStart": "session-start",
                    "BeforeAgent": "user-prompt-submit",
                    "AfterAgent": "stop",
                },
                second=1_000,
            ),
        ),
        Client(
            "opencode",
            "opencode",
            ".config/opencode/opencode.json",
            ("mcp",),
            _local,
            plugin=Plugin(".config/opencode/plugins/recall.js", "opencode.js"),
        ),
    )
}


def ours(entry: object) -> bool:
    """Return whether an entry starts `recall stdio`."""
    if not isinstance(entry, Mapping):
        return False
    command, args = entry.get("command"), entry.get("args", [])
    words = [*(command if isinstance(command, list) else [command]), *args]
    return "stdio" in words and any("recall" in str(word) for word in words)


def our_hook(entry: object) -> bool:
    """Return whether an entry of hooks runs `recall hook`."""
    if not isinstance(entry, Mapping):
        return False
    group = entry.get("hooks", [entry])
    return isinstance(group, list) and any(
        isinstance(one, Mapping)
        and "recall" in str(one.get("command"))
        and " hook " in str(one.get("command"))
        for one in group
    )
