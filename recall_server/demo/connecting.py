"""How other clients get in: what goes into their configuration, word for word."""

import json
from collections.abc import Iterator

from recall_server.config import Settings

TOKEN = "YOUR_TOKEN"  # noqa: S105  # stands where the real one goes
_fields = Settings.model_fields
DEFAULT_URL = f"http://{_fields['host'].default}:{_fields['port'].default}/mcp"


def configurations(url: str, token: str) -> Iterator[tuple[str, str]]:
    """Each client with its place, and the text to put there."""
    yield (
        "Claude Desktop, claude_desktop_config.json (it starts programs only, so npx bridges)",
        _nested(
            ("command", "npx"),
            ("args", ["-y", "mcp-remote", url, "--transport", "http-only", "--allow-http",
                      "--header", "Authorization:${AUTH_HEADER}"]),
            ("env", {"AUTH_HEADER": f"Bearer {token}"}),
        ),
    )  # fmt: skip
    header = f'--header "Authorization: Bearer {token}"'
    yield (
        "Claude Code, in a shell",
        f"claude mcp add --transport http recall {url} \\\n  {header}",
    )
    yield (
        "Cursor, ~/.cursor/mcp.json",
        _nested(("url", url), ("headers", {"Authorization": f"Bearer {token}"})),
    )


def _nested(*entries: tuple[str, object]) -> str:
    """The entry of our server, a line a key: whole JSON that needs no twenty lines."""
    lines = (f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in entries)
    text = ",\n".join(lines).replace(' "--transport"', '\n    "--transport"')
    return '{"mcpServers": {"recall": {\n' + text + "}}}"
