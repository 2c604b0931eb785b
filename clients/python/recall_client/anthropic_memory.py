"""The backend of Anthropic's memory tool (`memory_20250818`) on recall-server.

    tool = RecallMemoryTool(client, container="assistant")
    anthropic.beta.messages.run_tools(model=…, messages=…, tools=[tool])

A file is a document, and each change of it is a version. Directories are the common parts of paths.
"""

import asyncio
from typing import Any

from anthropic.lib.tools import BetaFunctionToolResultType, ToolError
from anthropic.tools.memory import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool
from anthropic.types.beta import (
    BetaMemoryTool20250818Command,
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)

from recall_client._documents import Documents, content
from recall_client._sync_client import RecallClient

VIA = "anthropic-memory"
ROOT = "/memories"
LINES_MAX = 999_999
_NUMBER_CHARS = 6
_LEVELS_SHOWN = 2
_CONTEXT_LINES = 2


class RecallMemoryTool(BetaAbstractMemoryTool):
    """The files of one container, which serves as the directory of one user or agent. The caller
    closes `client`.
    """

    def __init__(self, client: RecallClient, *, container: str = VIA, **given: Any) -> None:
        super().__init__(**given)
        self._documents = Documents(client, VIA)
        self._container = container

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        path = _checked(command.path)
        found = self._documents.get(self._container, path)
        if found is None:
            return self._directory(command.path, path)
        lines = content(found).split("\n")
        if len(lines) > LINES_MAX:
            raise ToolError(f"File {command.path} exceeds maximum line limit of 999,999 lines.")
        first, last = 1, len(lines)
        if command.view_range and len(command.view_range) == 2:
            first = max(1, command.view_range[0])
            last = last if command.view_range[1] == -1 else command.view_range[1]
        return (
            f"Here's the content of {command.path} with line numbers:\n"
            f"{_numbered(lines[first - 1 : last], first)}"
        )

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        path = _checked(command.path)
        if path == ROOT or self._documents.get(self._container, path) or self._below(path):
            raise ToolError(f"File {command.path} already exists")
        self._write(path, command.file_text)
        return f"File created successfully at: {command.path}"

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        path, text = self._file(command.path)
        old = command.old_str
        places = [at for at in range(len(text)) if text.startswith(old, at)]
        if not places:
            raise ToolError(
                f"No replacement was performed, old_str `{old}` did not appear verbatim in "
                f"{command.path}."
            )
        lines = [text[:at].count("\n") + 1 for at in places]
        if len(places) > 1:
            raise ToolError(
                f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: "
                f"{', '.join(map(str, lines))}. Please ensure it is unique"
            )
        changed = text.replace(old, command.new_str)
        self._write(path, changed)
        first = max(1, lines[0] - _CONTEXT_LINES)
        shown = changed.split("\n")[first - 1 : lines[0] + _CONTEXT_LINES]
        return (
            "The memory file has been edited. Here is the snippet showing the change (with line "
            f"numbers):\n{_numbered(shown, first)}"
        )

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        path, text = self._file(command.path)
        lines = text.removesuffix("\n").split("\n") if text else []
        if not 0 <= command.insert_line <= len(lines):
            raise ToolError(
                f"Invalid `insert_line` parameter: {command.insert_line}. It should be within the "
                f"range [0, {len(lines)}]."
            )
        lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
        self._write(path, "\n".join(lines).removesuffix("\n") + "\n")
        return f"The file {command.path} has been edited."

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        path = _checked(command.path)
        if path == ROOT:
            raise ToolError("Cannot delete the /memories directory itself")
        gone = [path] if self._documents.get(self._container, path) else self._below(path)
        if not gone:
            raise ToolError(f"The path {command.path} does not exist")
        for one in gone:
            self._documents.delete(self._container, one)
        return f"Successfully deleted {command.path}"

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        old, new = _checked(command.old_path), _checked(command.new_path)
        if old == ROOT:
            raise ToolError("Cannot rename the /memories directory itself")
        if new == ROOT or self._documents.get(self._container, new) or self._below(new):
            raise ToolError(f"The destination {command.new_path} already exists")
        moved = [old] if self._documents.get(self._container, old) else self._below(old)
        if not moved:
            raise ToolError(f"The path {command.old_path} does not exist")
        if new.startswith(f"{old}/"):
            raise ToolError(f"Cannot move {command.old_path} into itself")
        for one in moved:
            _, text = self._file(one)
            self._write(new + one.removeprefix(old), text)
            self._documents.delete(self._container, one)
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    def clear_all_memory(self) -> str:
        """Forget all files with their versions."""
        for path in self._below(ROOT):
            self._documents.delete(self._container, path)
        return "All memory cleared"

    def _file(self, given: str) -> tuple[str, str]:
        """Return the path and the content of a file. Raises `ToolError` if there is none."""
        path = _checked(given)
        found = self._documents.get(self._container, path)
        if found is not None:
            return path, content(found)
        if path == ROOT or self._below(path):
            raise ToolError(f"The path {given} is not a file.")
        raise ToolError(f"The path {given} does not exist. Please provide a valid path.")

    def _write(self, path: str, text: str) -> None:
        self._documents.put(self._container, path, text, bytes=len(text.encode()))

    def _below(self, path: str) -> list[str]:
        """Return the files in a directory and in those below it."""
        files = (one.metadata["key"] for one in self._documents.current(self._container))
        return [file for file in files if file.startswith(f"{path}/")]

    def _directory(self, given: str, path: str) -> str:
        sizes = {
            one.metadata["key"]: int(one.metadata["bytes"])
            for one in self._documents.current(self._container)
            if one.metadata["key"].startswith(f"{path}/")
        }
        if not sizes and path != ROOT:
            raise ToolError(f"The path {given} does not exist. Please provide a valid path.")
        shown: dict[str, int] = {}
        for file, size in sizes.items():
            parts = file.removeprefix(f"{path}/").split("/")
            for depth in range(1, min(len(parts), _LEVELS_SHOWN) + 1):
                if any(part.startswith(".") for part in parts[:depth]):
                    break
                name = "/".join(parts[:depth]) + ("/" if depth < len(parts) else "")
                shown[name] = shown.get(name, 0) + size
        lines = [f"{_size(sum(sizes.values()))}\t{given}"]
        lines += [f"{_size(size)}\t{given}/{name}" for name, size in sorted(shown.items())]
        return (
            f"Here're the files and directories up to 2 levels deep in {given}, excluding hidden "
            "items:\n" + "\n".join(lines)
        )


class AsyncRecallMemoryTool(BetaAsyncAbstractMemoryTool):
    """The same for `AsyncAnthropic`; each command runs in a thread."""

    def __init__(self, client: RecallClient, *, container: str = VIA, **given: Any) -> None:
        super().__init__(**given)
        self._tool = RecallMemoryTool(client, container=container)

    async def execute(self, command: BetaMemoryTool20250818Command) -> BetaFunctionToolResultType:
        return await asyncio.to_thread(self._tool.execute, command)

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> BetaFunctionToolResultType:
        return await self.execute(command)

    async def create(
        self, command: BetaMemoryTool20250818CreateCommand
    ) -> BetaFunctionToolResultType:
        return await self.execute(command)

    async def str_replace(
        self, command: BetaMemoryTool20250818StrReplaceCommand
    ) -> BetaFunctionToolResultType:
        return await self.execute(command)

    async def insert(
        self, command: BetaMemoryTool20250818InsertCommand
    ) -> BetaFunctionToolResultType:
        return await self.execute(command)

    async def delete(
        self, command: BetaMemoryTool20250818DeleteCommand
    ) -> BetaFunctionToolResultType:
        return await self.execute(command)

    async def rename(
        self, command: BetaMemoryTool20250818RenameCommand
    ) -> BetaFunctionToolResultType:
        return await self.execute(command)

    async def clear_all_memory(self) -> BetaFunctionToolResultType:
        return await asyncio.to_thread(self._tool.clear_all_memory)


def _checked(path: str) -> str:
    """Return a path in its only form. Raises `ToolError`."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolError(f"Path must start with /memories, got: {path}")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ToolError(f"Path {path} would escape /memories directory")
    return "/" + "/".join(parts)


def _numbered(lines: list[str], first: int) -> str:
    return "\n".join(
        f"{number:>{_NUMBER_CHARS}}\t{line}" for number, line in enumerate(lines, first)
    )


def _size(count: int) -> str:
    """Return bytes as a person reads them."""
    size, unit = float(count), 0
    while size >= 1024 and unit < 3:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f}".removesuffix(".0") + "BKMG"[unit]
