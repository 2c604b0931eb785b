"""The MCP clients that `recall install` sets up: one entry each, from which the docs are generated;
and the change of a client's own configuration, beside what is there, and its removal.

Every client starts `recall stdio`, which needs no address and no secret in the configuration.
"""

import json
import shlex
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from recall_server.domain.errors import Invalid
from recall_server.domain.text.cleaning import finite, no_number, unique_names
from recall_server.local import write_private

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
    if not isinstance(entry, Mapping):
        return False
    group = entry.get("hooks", [entry])
    return isinstance(group, list) and any(
        isinstance(one, Mapping)
        and "recall" in str(one.get("command"))
        and " hook " in str(one.get("command"))
        for one in group
    )


BACKUP = ".before-recall"

Document = MutableMapping[str, Any]


class _WrongForm(Exception):
    """A part of a file is of another kind than the client writes there."""


@dataclass(frozen=True)
class Change:
    """A change of a client's file: its text before and after. None: there is no file; `after` is
    None if nothing else is left in it. What was there has a backup, unless it was all `ours`.
    """

    path: Path
    before: str | None
    after: str | None
    what: str
    ours: bool = False

    @property
    def nothing(self) -> bool:
        return self.before == self.after

    def write(self) -> Path | None:
        """Write the file, keeping its mode. Return the backup of what was there, if anything."""
        backup, mode = None, 0o600
        if self.before is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        else:
            mode = stat.S_IMODE(self.path.stat().st_mode)
        if self.before is not None and not self.ours:
            # Not through a link at its name, and never readable by others, not even briefly.
            backup = self.path.with_name(self.path.name + BACKUP)
            write_private(backup, self.before)
            backup.chmod(mode)
        if self.after is None:
            self.path.unlink()
            return backup
        write_private(self.path, self.after)
        self.path.chmod(mode)
        return backup


def added(client: Client, home: Path, command: Command, options: Command = ()) -> list[Change]:
    """Return the changes that set the client up, with the command of this program and the `options`
    for a server elsewhere. Raises `Invalid` if a file cannot be changed without losing something.
    """
    entry = client.entry([*command, "stdio", *options])

    def add(document: Document) -> None:
        servers = _table(document, client.keys)
        if NAME in servers and not ours(servers[NAME]):
            raise Invalid(
                f"{client.file(home)} has another entry {NAME}. Remove or rename it, then run this "
                "again."
            )
        if servers.get(NAME) != entry:
            servers[NAME] = entry

    changes = _changes(client, home, add, lambda it, hooks: _add_hooks(it, hooks, command, options))
    return [*changes, *_plugin(client, home, lambda plugin: plugin.text(command, options))]


def removed(client: Client, home: Path) -> list[Change]:
    """Return the changes that remove what `added` wrote, and nothing else."""

    def remove(document: Document) -> None:
        servers = document
        for key in client.keys:
            found = servers.get(key)
            servers = found if isinstance(found, MutableMapping) else {}
        if ours(servers.get(NAME)):
            del servers[NAME]
            _prune(document, client.keys)

    changes = _changes(client, home, remove, _remove_hooks)
    return [*changes, *_plugin(client, home, lambda _: None)]


def _changes(
    client: Client,
    home: Path,
    server: Callable[[Document], None],
    hooks: Callable[[Document, Hooks], None],
) -> list[Change]:
    """The change of the servers of a client and that of its hooks: one, where they share a file."""
    path, what, of = client.file(home), ".".join((*client.keys, NAME)), client.hooks
    if of is None:
        return [_change(path, server, what, toml=client.toml)]
    if home / of.path != path:
        return [
            _change(path, server, what, toml=client.toml),
            _change(home / of.path, lambda it: hooks(it, of), "hooks"),
        ]

    def both(document: Document) -> None:
        server(document)
        hooks(document, of)

    return [_change(path, both, f"{what} with hooks")]


def _plugin(client: Client, home: Path, after: Callable[[Plugin], str | None]) -> Iterator[Change]:
    """The change of the program that has the hooks of a client, if that is how it runs them."""
    if (plugin := client.plugin) is None:
        return
    path = (home / plugin.path).resolve()
    before, wanted = _text(path), after(plugin)
    ours = before is not None and plugin.ours(before)
    if before is not None and not ours:
        if wanted is not None:
            raise Invalid(f"{path} is another program. Remove or rename it, then run this again.")
        wanted = before
    yield Change(path, before, wanted, "hooks", ours)


def _add_hooks(document: Document, of: Hooks, command: Command, options: Command) -> None:
    if of.version is not None:
        document.setdefault("version", of.version)
    hooks = _table(document, ("hooks",))
    for event in of.events:
        wanted = of.entry(command, event, options)
        entries = hooks.setdefault(event, [])
        if not isinstance(entries, list):
            raise _WrongForm(f"hooks.{event} is no list")
        if wanted not in entries:
            entries[:] = [*(one for one in entries if not our_hook(one)), wanted]


def _remove_hooks(document: Document, of: Hooks) -> None:
    hooks = document.get("hooks")
    if not isinstance(hooks, MutableMapping):
        return
    for event in of.events:
        entries = hooks.get(event)
        if isinstance(entries, list) and any(map(our_hook, entries)):
            entries[:] = [one for one in entries if not our_hook(one)]
            _prune(document, ("hooks", event))
    if of.version is not None and [*document] == ["version"]:
        del document["version"]


def _table(document: Document, keys: tuple[str, ...]) -> Document:
    for key in keys:
        inner = document.setdefault(key, {})
        if not isinstance(inner, MutableMapping):
            raise _WrongForm(f"{key} is no object")
        document = inner
    return document


def _prune(document: Document, keys: tuple[str, ...]) -> None:
    """Remove the objects along `keys` that are empty now."""
    if not keys:
        return
    first, *rest = keys
    if rest:
        _prune(document[first], tuple(rest))
    if not document[first]:
        del document[first]


def _change(
    path: Path, act: Callable[[Document], None], what: str, *, toml: bool = False
) -> Change:
    # A link stays a link: change the file that it points to.
    path = path.resolve()
    before = _text(path)
    document = _read(path, before or "", toml=toml)
    was = json.dumps(document, default=str)
    try:
        act(document)
    except _WrongForm as error:
        raise Invalid(f"{error} in {path}. Nothing was written. Correct it first.") from None
    if json.dumps(document, default=str) == was:
        return Change(path, before, before, what)
    if not document:
        return Change(path, before, None, what)
    return Change(path, before, _written(document, before or "", toml=toml), what)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8") if path.exists() else None
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not UTF-8. Nothing was written. Correct it first.") from None
    except OSError as error:
        raise Invalid(f"{path} cannot be read ({error.strerror}). Nothing was written.") from None


def _read(path: Path, text: str, *, toml: bool) -> Document:
    try:
        document: Any = tomlkit.parse(text) if toml else _plain_json(text or "{}")
    except (TOMLKitError, ValueError, RecursionError):
        kind = "TOML" if toml else "JSON; comments and trailing commas would be lost"
        raise Invalid(
            f"{path} is no plain {kind}. Nothing was written. Change it by hand: `recall "
            "install` with --print shows the entry."
        ) from None
    if not isinstance(document, MutableMapping):
        raise Invalid(f"{path} holds no object. Nothing was written. Correct it first.")
    return document


def _plain_json(text: str) -> Any:
    """Parse a JSON file. Raises `ValueError` if it could not be written back without a loss."""
    document = json.loads(
        text, object_pairs_hook=unique_names, parse_float=finite, parse_constant=no_number
    )
    json.dumps(document, ensure_ascii=False).encode()
    return document


def _written(document: Document, before: str, *, toml: bool) -> str:
    if toml:
        return tomlkit.dumps(document).rstrip("\n") + "\n"
    indent: int | str = 2
    for line in before.splitlines()[1:2]:
        indent = line[: len(line) - len(line.lstrip())] or 2
    end = "\n" if before.endswith("\n") or not before else ""
    return json.dumps(document, indent=indent, ensure_ascii=False) + end


def entry_text(client: Client, command: Command, options: Command = ()) -> str:
    """Return the entry in the form of the client's file."""
    document: Any = client.entry([*command, "stdio", *options])
    for key in reversed((*client.keys, NAME)):
        document = {key: document}
    return tomlkit.dumps(document) if client.toml else json.dumps(document, indent=2) + "\n"
