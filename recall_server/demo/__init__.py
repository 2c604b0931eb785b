"""`recall demo`: a tour of a real server, through real MCP and A2A clients: store, search,
supersede, go back in time, ask across a restart, isolate, erase.
"""

import asyncio
import io
import shutil
import sys
import tempfile
import unicodedata
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
import httpx2
import typer
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client import Client as A2AClient
from a2a.helpers import get_data_parts, new_data_part, new_text_part
from a2a.types import Message, Part, Role, SendMessageRequest, Task, TaskState
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from recall_server import __version__
from recall_server.api.app import create_app
from recall_server.application import Application
from recall_server.bootstrap import open_application, working
from recall_server.config import Settings
from recall_server.domain.context import Context
from recall_server.domain.errors import EmptyText, Invalid, RecallError, TextTooLong, Unavailable
from recall_server.domain.ids import Namespace, namespace
from recall_server.domain.permissions import Rights, Scope
from recall_server.domain.text.cleaning import storable
from recall_server.integrations.keys import verified
from recall_server.lifecycle import only_server, stop_signal
from recall_server.server import bound, listening
from recall_server.services.auth import TokenRequest
from recall_server.services.erasure.purge import RECEIPT_TYP

Json = dict[str, Any]
READ_S = 60.0


class Refused(RuntimeError):
    """The server answered with this error code."""


class McpAgent:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, tool: str, **arguments: Any) -> Json:
        """Return the data of the answer. Raises `Refused`."""
        answer: Json = (await self._client.call_tool(tool, arguments)).structured_content or {}
        if answer.get("status") != "ok":
            raise Refused(answer.get("code"))
        data: Json = answer["data"]
        return data

    async def inspected(self, memory_id: str) -> str:
        """Return the answer to an inspection: a code, or the number of memories."""
        try:
            found = await self.call("inspect_memories", memory_id=memory_id)
        except Refused as error:
            return str(error)
        return f"{found['total']} memories"


@asynccontextmanager
async def mcp_agent(address: str, token: str) -> AsyncIterator[McpAgent]:
    async with http_client(address, token) as http:
        transport = streamable_http_client(f"{address}/mcp", http_client=http)
        async with Client(transport, read_timeout_seconds=READ_S) as client:
            yield McpAgent(client)


def http_client(address: str, token: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(base_url=address, headers=headers, timeout=READ_S, trust_env=False)


@asynccontextmanager
async def a2a_agent(address: str, token: str) -> AsyncIterator[A2AClient]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(headers=headers, timeout=READ_S, trust_env=False) as http:
        card = await A2ACardResolver(http, address).get_agent_card()
        yield ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)


async def send(client: A2AClient, part: Part, task_id: str = "") -> Task:
    """Return the task as it is when the message is answered."""
    message = Message(
        message_id=uuid.uuid4().hex, role=Role.ROLE_USER, parts=[part], task_id=task_id
    )
    answers = [one async for one in client.send_message(SendMessageRequest(message=message))]
    return answers[-1].task


FIRST, SECOND = namespace("acme"), namespace("globex")
WIDTH = 100
MEMORIES_SHOWN = 12
QUESTIONS = (
    "Which database did billing move to?",
    "Is Owen vegetarian?",
    "How do we deploy billing?",
)
# No conversation names this person, so that the step is the same for every file.
KNOWN = "Nadia: I live in Lisbon. I like fado."
CONTRADICTION = "Nadia: I live in Porto."
SUBJECT = "Nadia"
# The texts are from these days; the question is about a day in between.
MOVES = (
    ("2023-03-04", "Ivo: I live in Ghent."),
    ("2024-05-06", "Ivo: I moved to Porto."),
    ("2025-07-08", "Ivo: I moved to Oslo."),
)
ASKED_FOR = ("2023-06-01", "2024-09-01", "")
WHERE_IVO_LIVES = "Where does Ivo live?"
WAIT_S = 60.0
POLL_S = 0.05


def of_file(path: Path, chars_max: int) -> str:
    """Return the user's text. Raises an `Invalid` or `TextTooLong` that says what to do."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not UTF-8 text. Save it as UTF-8 and try again.") from None
    except OSError as error:
        raise Invalid(f"{path} cannot be read ({error.strerror}). Name another file.") from None
    if len(text) > chars_max:
        raise TextTooLong(
            f"{path} has {len(text):,} characters; the demo takes {chars_max:,}. Give it a part."
        )
    storable(text)
    if not text.strip():
        raise EmptyText(f"{path} is empty. Name a file with a conversation or a text in it.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


async def show(file: Path | None, *, keep: bool) -> None:
    """Start a server, store `file` or the conversation of the package, and print the results.

    Raises an `Invalid` or `TextTooLong` on an unusable file, before anything is started. With
    `keep`, the server runs until SIGINT or SIGTERM, and its file stays.
    """
    if file is None:
        text = resources.files(__name__).joinpath("conversation.txt").read_text("utf-8")
    else:
        text = of_file(file, Settings.model_fields["text_chars_max"].default)
    questions = QUESTIONS if file is None else ()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # On a terminal that lacks a letter, print a question mark instead of a stack trace.
        sys.stdout.reconfigure(errors="replace")
    folder = Path(tempfile.mkdtemp(prefix="recall-demo-"))
    database = folder / "recall.db"
    try:
        with _first_error():
            async with _serving(database) as (built, address):
                token = await _token(built, FIRST)
                paused = await Tour(built, address, token).until_the_restart(text, questions)
            async with _serving(database) as (built, address):
                await Tour(built, address, token).after_the_restart(paused)
                if keep:
                    await _until_stopped(built, address)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _serving(database: Path) -> AsyncIterator[tuple[Application, str]]:
    # The environment is not read, so that the tour is the same on every machine. Jobs run one at a
    # time, so that memories come in the order of their texts.
    settings = Settings.model_construct(db_path=database, port=0, extractor="rules", worker_jobs=1)
    with only_server(settings):
        async with (
            open_application(settings) as built,
            working(built),
            listening(create_app(built), settings, bound(settings)) as address,
        ):
            yield built, address


@dataclass
class Tour:
    """The steps, against one process of the server."""

    built: Application
    address: str
    token: str

    async def until_the_restart(self, text: str, questions: Sequence[str]) -> Task:
        """Run the steps until the restart; return the task that waits for an answer."""
        embedder = self.built.embedder.model if self.built.embedder else "none"
        async with mcp_agent(self.address, self.token) as agent:
            _line(f"recall {__version__} serves a new SQLite file at {self.address}.")
            _line(f"Rules extract, {embedder} embeds: no key, no network.")
            memories = await self._store(agent, text)
            own = [one["text"] for one in memories[: len(QUESTIONS)]] or [text[:60]]
            await self._search(agent, questions or own)
            await self._supersede(agent, memories)
            await self._go_back(agent)
        return await self._contradict()

    async def after_the_restart(self, paused: Task) -> None:
        async with mcp_agent(self.address, self.token) as agent:
            memory_id = await self._answer(agent, paused)
            await self._isolate(memory_id)
            await self._erase(agent, memory_id)

    async def _store(self, agent: McpAgent, text: str) -> list[Json]:
        _step("Store", "a conversation, over MCP. The answer does not wait for extraction.")
        given = {"text": text, "idempotency_key": "demo"}
        stored = await agent.call("store_memory", **given)
        again = await agent.call("store_memory", **given)
        same = again["job_id"] == stored["job_id"]
        _line(f"stored as {stored['job_id']}; sent again: {'the same' if same else 'another'} job")
        await _extracted(agent)
        listed: list[Json] = (await agent.call("inspect_memories", limit=50))["memories"]
        memories = sorted(listed, key=lambda one: one["source"]["start"])
        total = (await agent.call("get_memory_stats"))["total"]
        _line(f"{total} memories were extracted:")
        best = sorted(memories, key=lambda one: -one["importance"])[:MEMORIES_SHOWN]
        for memory in sorted(best, key=memories.index):
            _line(f"  {memory['type']:<12}{memory['text']}")
        if not memories:
            _line("  The text states nothing plainly; its own words can still be searched.")
        return memories

    async def _search(self, agent: McpAgent, questions: Sequence[str]) -> None:
        _step("Search", "by words and by meaning. Every result cites the words it rests on.")
        for question in questions:
            found = await agent.call("search_memories", query=question, limit=1, explain=True)
            _line(f"? {question}")
            for hit in found["results"]:
                _line(f"  {hit['score']:.2f}  {hit['text']}")
                _line(f"        {_cited(hit['source'])}")

    async def _supersede(self, agent: McpAgent, memories: Sequence[Json]) -> None:
        _step("Supersede", "Later words replace older ones; the history stays, with its quotes.")
        for memory in memories:
            chain = (await agent.call("inspect_memories", memory_id=memory["id"]))["memories"]
            if len(chain) > 1:
                _history(chain)
                return
        _line("Nothing in this text replaced anything before it: no memory was superseded.")

    async def _go_back(self, agent: McpAgent) -> None:
        _step("Time", "What was true on a day can be asked, and any change taken back.")
        for day, text in MOVES:
            job = (await agent.call("store_memory", text=text, occurred_at=day))["job_id"]
            await _extracted(agent)
        for day in ASKED_FOR:
            _line(f"as of {day or 'now':<12}{await self._home(agent, day)}")
        async with http_client(self.address, self.token) as http:
            undone: Json = (await http.post(f"/v1/changes/{job}/undo", json={})).json()
            _line(f"undone: {job}; now {await self._home(agent, '')}")
            again = undone["change_id"]
            await http.post(f"/v1/changes/{again}/undo", json={})
            _line(f"the undo undone; now {await self._home(agent, '')}")
        entry = self.built.services.audit.begin(FIRST, "rebuild_namespace", "demo", None)
        compared = await self.built.services.rebuild.compare(Context(entry))
        kept = "as" if compared.same else "not as"
        _line(f"what is read is {kept} texts and events say: {compared.digest[:16]}")

    async def _home(self, agent: McpAgent, day: str) -> str:
        given = {"as_of": day} if day else {}
        found = await agent.call("search_memories", query=WHERE_IVO_LIVES, limit=1, **given)
        return next((hit["text"] for hit in found["results"]), "nothing")

    async def _contradict(self) -> Task:
        _step(
            "Ask", "An agent sends texts over A2A. Where one contradicts the memory, the task asks."
        )
        async with a2a_agent(self.address, await _token(self.built, FIRST)) as client:
            known = await send(client, new_text_part(KNOWN))
            paused = await send(client, new_data_part({"text": CONTRADICTION}))
        for text, task in ((KNOWN, known), (CONTRADICTION, paused)):
            _line(f'"{text}": {TaskState.Name(task.status.state)}')
        for question in _questions(paused):
            for side in question["existing"]:
                _line(f"  known  {_cited(side['source'])}")
            _line(f"  new    {_cited(question['new']['source'])}")
            _line(f"  {question['reason']}")
            _line(f"  Recommended: {question['recommended']}.")
        return paused

    async def _answer(self, agent: McpAgent, paused: Task) -> str:
        """Return the memory that the answer made."""
        _step("Answer", "The server was restarted. The task still waits; another agent answers it.")
        chosen = [
            {"id": question["id"], "choice": question["recommended"]}
            for question in _questions(paused)
        ]
        async with a2a_agent(self.address, await _token(self.built, FIRST)) as client:
            done = await send(client, new_data_part({"resolutions": chosen}), paused.id)
        (result,) = [data for one in done.artifacts for data in get_data_parts(one.parts)]
        _line(f"{chosen[0]['choice']}: {TaskState.Name(done.status.state)}")
        memory_id: str = result["memories"][0]["id"]
        _history((await agent.call("inspect_memories", memory_id=memory_id))["memories"])
        return memory_id

    async def _isolate(self, memory_id: str) -> None:
        _step("Isolate", "The token alone chooses the tenant. A token of another one:")
        async with mcp_agent(self.address, await _token(self.built, SECOND)) as other:
            found = await other.call("search_memories", query=f"Where does {SUBJECT} live?")
            _line(f"search: {found['total']} results")
            for title, one in (("an id of the first tenant", memory_id), ("no one's id", "mem_1")):
                _line(f"inspect {title}: {await other.inspected(one)}")

    async def _erase(self, agent: McpAgent, memory_id: str) -> None:
        _step("Erase", f"everything about {SUBJECT}, from rows, indexes and files, with a receipt.")
        admin = await _token(self.built, FIRST, Scope.ADMIN)
        async with http_client(self.address, admin) as http:
            erased: Json = (await http.post("/v1/erasure", json={"subject": SUBJECT})).json()
            counts = ", ".join(f"{n} {name}" for name, n in erased["counts"].items() if n)
            _line(f"erased: {counts}")
            place = f"/v1/receipts/{erased['receipt_id']}"
            secret = {"Recall-Receipt-Secret": erased["receipt_secret"]}
            collected: Json = {"final": False}
            async with asyncio.timeout(WAIT_S):
                while not collected["final"]:
                    await asyncio.sleep(POLL_S)
                    collected = (await http.get(place, headers=secret)).json()
        claims = verified(collected["receipt"], self.built.key.public, RECEIPT_TYP)
        files = claims["physical"]["state"]
        _line(f"receipt {erased['receipt_id']}: signature verified, files {files}")
        found = await agent.call("search_memories", query=f"Where does {SUBJECT} live?")
        named = sum(SUBJECT in hit["text"] for hit in found["results"])
        _line(f"search for {SUBJECT}: {named} results that name {SUBJECT}")
        _line(f"inspect the erased memory: {await agent.inspected(memory_id)}")


async def _extracted(agent: McpAgent) -> None:
    async with asyncio.timeout(WAIT_S):
        stats = await agent.call("get_memory_stats")
        while stats["pending_extractions"] or stats["pending_embeddings"]:
            await asyncio.sleep(POLL_S)
            stats = await agent.call("get_memory_stats")


async def _token(built: Application, owner: Namespace, *scopes: Scope) -> str:
    services = built.services
    entry = services.audit.begin(owner, "create_token", "demo", None)
    wanted = TokenRequest(Rights(frozenset(scopes))) if scopes else None
    token, _ = await services.access.issue(Context(entry), label="demo", wanted=wanted)
    return token


async def _until_stopped(built: Application, address: str) -> None:
    token, stop = await _token(built, FIRST), stop_signal()
    _step("Connect", "This server goes on. Stop it with Ctrl-C; its file stays.")
    typer.echo(
        f"Serving {address}/mcp with the token {token}\n"
        f"from {built.settings.db_path}\n"
        f"claude mcp add --transport http recall {address}/mcp \\\n"
        f'  --header "Authorization: Bearer {token}"'
    )
    sys.stdout.flush()
    await stop.wait()


def _questions(task: Task) -> list[Json]:
    if task.status.state != TaskState.TASK_STATE_INPUT_REQUIRED:
        raise Unavailable(f"The task is {TaskState.Name(task.status.state)}; it should have asked.")
    (asked,) = get_data_parts(task.status.message.parts)
    return list(asked["contradictions"])


def _history(chain: Sequence[Json]) -> None:
    for memory in chain:
        decided = "".join(
            f"; {one['choice']} by {one['decided_by']}" for one in memory["decisions"]
        )
        _line(f"  {memory['status']:<12}{memory['text']}{decided}")
        _line(f"  {'':<12}{_cited(memory['source'])}")


def _cited(source: Json) -> str:
    """Return the speaker, the day and the words."""
    said_at = source["said_at"]
    day = f"{datetime.fromisoformat(said_at):%d %b %Y}".lstrip("0") if said_at else "undated"
    return f'{source["speaker"] or "said"}, {day}: "{source["quote"]}"'


def _step(title: str, text: str) -> None:
    typer.echo(f"\n{title}")
    _line(text)


def _line(text: str) -> None:
    """Return one line without characters that could steer a terminal."""
    plain = " ".join(part for part in text.split("\n") if part)
    plain = "".join(c for c in plain if not unicodedata.category(c).startswith("C"))
    typer.echo(plain if len(plain) <= WIDTH else f"{plain[: WIDTH - 1].rstrip()}…")


@contextmanager
def _first_error() -> Iterator[None]:
    """Raise the error itself if the clients' task groups have wrapped it."""
    try:
        yield
    except BaseExceptionGroup as group:
        first: BaseException = group.subgroup(RecallError) or group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
