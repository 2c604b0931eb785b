"""The commands that other programs call. Each is loaded by itself: loading all the others takes
longer than these take to do their work.

`recall stdio` is MCP on standard input and output, for clients that start their servers.
`recall hook` is what a coding agent runs at its events, with the event as JSON on standard
input; it is silent on failure: its memory must not delay an agent or show it an error.
"""

import asyncio
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from threading import Timer
from typing import Annotated, Any, NoReturn
from urllib.parse import urlsplit

import typer

from recall_server import __version__
from recall_server import local as local_server
from recall_server.cli import importing
from recall_server.domain.errors import Invalid, RecallError
from recall_server.domain.text.messages import message_of
from recall_server.local import Local, client_of, read_token, write_private

Url = Annotated[
    str,
    typer.Option(
        envvar="RECALL_URL",
        help="A server elsewhere, such as https://memory.example.com/mcp.",
        show_default="the local server",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="A file with the token of that server.", show_default="RECALL_TOKEN"),
]
Token = Annotated[str, typer.Option(envvar="RECALL_TOKEN", hidden=True)]
LocalDb = Annotated[
    Path | None,
    typer.Option(
        "--db",
        envvar="RECALL_DB_PATH",
        help="The SQLite file of the local server.",
        show_default="recall.db in the user's data folder",
    ),
]


def stdio(
    url: Url = "", token_file: TokenFile = None, token: Token = "", db: LocalDb = None
) -> None:
    """Speak MCP on standard input and output, for a client that starts its servers: to the local
    server, which is started where none runs, or to the one at --url.
    """
    with importing():
        from recall_server.local.proxy import (  # noqa: PLC0415  # loads the MCP SDK
            LocalServer,
            RemoteServer,
            serve_stdio,
        )

    if url:
        try:
            server = RemoteServer.checked(url, token_file, token)
        except RecallError as error:
            _refuse(error)
        asyncio.run(serve_stdio(server))
        return
    if token_file is not None:
        _refuse(Invalid("--token-file is of a server elsewhere. Name it with --url."))
    database = (db or local_server.database()).absolute()
    try:
        local_server.private(database.parent)
    except RecallError as error:
        _refuse(error)
    with client_of(database):
        asyncio.run(serve_stdio(LocalServer(Local(database))))


def _refuse(error: RecallError) -> NoReturn:
    typer.echo(f"recall: {error.message} [{error.code}]", err=True)
    raise typer.Exit(2)


PART_BYTES_MAX = 200_000
PART_MESSAGES_MAX = 200
MESSAGE_CHARS_MAX = 20_000
_ROLES = frozenset({"user", "assistant"})

Message = dict[str, str]


@dataclass(frozen=True)
class Part:
    """Messages between two positions of a transcript, and the key under which they are sent."""

    start: int
    end: int
    messages: list[Message]
    key: str


@dataclass(frozen=True)
class Transcript:
    """A transcript, and the file with the position up to which it was sent. Each part is noted
    there before it is sent, so that after a failure the same part is sent again under the same key,
    and is stored once.
    """

    path: Path
    session: str
    state: Path

    def parts(self) -> Iterator[Part]:
        """Yield the parts that were not sent yet, in order. A part counts as sent when
        the next one is requested.
        """
        start, until = self._kept()
        with self.path.open("rb") as file:
            while True:
                file.seek(start)
                end, messages = _read(file, until)
                if end == start:
                    return
                self._keep(start, end)
                yield Part(start, end, messages, self._key(start, end))
                self._keep(end, None)
                start, until = end, None

    def _key(self, start: int, end: int) -> str:
        session = hashlib.sha256(self.session.encode()).hexdigest()[:32]
        return f"hook:{session}:{start}-{end}"

    def _kept(self) -> tuple[int, int | None]:
        """Return the position, and the end of a part that may have been sent from there."""
        try:
            start, until = json.loads(self.state.read_text())
            within = start <= self.path.stat().st_size
        except (OSError, ValueError, TypeError):
            return 0, None
        # A transcript that has become shorter is a different one.
        return (start, until) if within else (0, None)

    def _keep(self, start: int, until: int | None) -> None:
        write_private(self.state, json.dumps([start, until]))


def _read(file: Any, until: int | None) -> tuple[int, list[Message]]:
    """Read messages from here to `until`, or as many as fit into one part. Return where they end,
    and the messages. An incomplete last line is left for later.
    """
    start = end = file.tell()
    messages: list[Message] = []
    for line in file:
        if not line.endswith(b"\n"):
            break
        end += len(line)
        message = _message(line)
        messages += [message] if message else []
        full = end - start >= PART_BYTES_MAX or len(messages) >= PART_MESSAGES_MAX
        if end == until or (until is None and full):
            break
    return end, messages


def _message(line: bytes) -> Message | None:
    """Return the message of a line, in the formats of Claude Code, Codex and Cursor; None if it is
    no message of the conversation, but a result of a tool, a thought, or an addition of the host.
    """
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("isMeta") or record.get("isSidechain"):
        return None
    said = message_of(record)
    if said is None or said.role not in _ROLES:
        return None
    text = _asked(said.words)[:MESSAGE_CHARS_MAX].strip()
    if not text:
        return None
    message = {"role": said.role, "content": text}
    return {**message, "at": said.at} if said.at else message


def _asked(text: str) -> str:
    """Return what a person wrote, without the files that Cursor shows beside it."""
    _, begun, rest = text.partition("<user_query>")
    return rest.partition("</user_query>")[0] if begun else text


ASKED_S = 0.3
HANDED_IN_S = 5.0
_HANDED_IN = frozenset({"pre-compact", "stop", "session-end"})
_SENT = ("session_id", "cwd", "prompt")
# Cursor sends this with each event.
_CURSOR = "cursor_version"


def hook(
    event: Annotated[
        str, typer.Argument(metavar="EVENT", help="The event, such as user-prompt-submit.")
    ],
    url: Url = "",
    token_file: TokenFile = None,
    token: Token = "",
    db: LocalDb = None,
) -> None:
    """Answer an event of a coding agent, given as JSON on standard input: with what is remembered,
    or with nothing; at the end of a turn or session, store what is new of its transcript.
    """
    try:
        given = _plain(_given())
        server = _server(url, token_file, token, db)
        if server is not None:
            _answer(event, given, *server)
    except (OSError, HTTPException, ValueError, AttributeError, RecallError) as error:
        sys.stderr.write(f"recall hook: {error}\n")


def _given() -> dict[str, Any]:
    try:
        given = json.loads(sys.stdin.read())
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise Invalid("A coding agent runs this, and sends the event as JSON on standard input.")
    return given


def _server(
    url: str, token_file: Path | None, token: str, db: Path | None
) -> tuple[str, str] | None:
    """Return address and token of the server; None if the local one must be started first, which
    goes on without this command.
    """
    if url:
        return url.rstrip("/").removesuffix("/mcp"), read_token(token_file) if token_file else token
    database = (db or local_server.database()).absolute()
    address = local_server.address_of(database)
    if address is None:
        local_server.private(database.parent)
        Local(database).begin()
        return None
    local_server.touch(database)
    return address, Local(database).token()


def _answer(event: str, given: Mapping[str, Any], address: str, token: str) -> None:
    sent = {name: given[name] for name in _SENT if isinstance(given.get(name), str)}
    if "cwd" in sent:
        sent["cwd"] = str(_project(Path(sent["cwd"])))
    if event not in _HANDED_IN:
        answer = _called(address, token, event, sent, ASKED_S)
        if answer:
            sys.stdout.write(json.dumps(_cursors(answer) if _CURSOR in given else answer))
        return
    path, session = given.get("transcript_path"), sent.get("session_id", "")
    if isinstance(given.get("prompt_response"), str):
        _called(address, token, event, {**sent, **_turn(given)}, HANDED_IN_S)
        return
    if not isinstance(path, str) or not session:
        return
    for part in Transcript(Path(path), session, _state(session)).parts():
        if part.messages:
            body = {**sent, "messages": part.messages, "idempotency_key": part.key}
            _called(address, token, event, body, HANDED_IN_S)


def _plain(given: dict[str, Any]) -> dict[str, Any]:
    """Return what a host has sent, under the names that the others use."""
    if _CURSOR not in given:
        return given
    roots = given.get("workspace_roots") or [None]
    session = given.get("conversation_id") or given.get("session_id")
    return {**given, "session_id": session, "cwd": given.get("cwd") or roots[0]}


def _cursors(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer in the form of Cursor, whose prompt goes on only if it is told so."""
    said = answer["hookSpecificOutput"]["additionalContext"]
    return {"continue": True, "additional_context": said}


def _turn(given: Mapping[str, Any]) -> dict[str, Any]:
    """A turn of a host that hands in what was said, as Gemini CLI does, and no transcript that
    would say it once only.
    """
    said = (("user", given.get("prompt")), ("assistant", given["prompt_response"]))
    messages = [
        {"role": role, "content": text[:MESSAGE_CHARS_MAX]}
        for role, text in said
        if isinstance(text, str) and text.strip()
    ]
    named = [given.get("session_id"), given.get("timestamp"), messages]
    digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()[:32]
    return {"messages": messages, "idempotency_key": f"hook:{digest}"}


def _project(folder: Path) -> Path:
    """Return the root of the git repository that a folder is in, or else the folder."""
    for one in (folder, *folder.parents):
        if (one / ".git").exists():
            return one
    return folder


def _state(session: str) -> Path:
    name = hashlib.sha256(session.encode()).hexdigest()[:32]
    return local_server.database().parent / "hooks" / f"{name}.json"


def _called(address: str, token: str, event: str, body: Any, within_s: float) -> Any:
    """Return the answer of the route. Raises `OSError`, `HTTPException` or `ValueError`."""
    where = urlsplit(address)
    kind = HTTPSConnection if where.scheme == "https" else HTTPConnection
    connection = kind(where.hostname or "", where.port, timeout=within_s)
    # The timeout of the socket is for each piece of the answer.
    late = Timer(within_s, connection.close)
    late.daemon = True
    late.start()
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request(
            "POST", f"{where.path}/v1/hooks/{event}", json.dumps(body).encode(), headers
        )
        response = connection.getresponse()
        said = json.loads(response.read())
    finally:
        late.cancel()
        connection.close()
    if response.status != 200:
        raise ValueError(said.get("detail", response.status))
    return said


COMMANDS: dict[str, Callable[..., None]] = {"stdio": stdio, "hook": hook}

# A command has the help options of the app that it is in.
HELP = {"help_option_names": ["--help", "-h"]}
app = typer.Typer(add_completion=False, context_settings=HELP, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"recall-server {__version__}")
        raise typer.Exit


for name, command in COMMANDS.items():
    app.command(name)(command)
