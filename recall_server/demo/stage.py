"""The stage: a real server on a free port and a fresh file, for as long as the demo lasts."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from recall_server import __version__
from recall_server.api.app import create_app
from recall_server.application import Application
from recall_server.bootstrap import open_application, working
from recall_server.config import Settings
from recall_server.demo import connecting, questions, scenes
from recall_server.demo.agent import Agent, arriving
from recall_server.demo.delegating import delegate
from recall_server.demo.page import Page
from recall_server.demo.story import Story, bundled, of_file
from recall_server.domain.errors import RecallError
from recall_server.domain.namespace import Namespace, namespace
from recall_server.lifecycle import stop_signal
from recall_server.server import bound, listening, only_server

FIRST = namespace("acme")
SECOND = namespace("globex")
BOOK_LINES_MAX = 10_000


async def show(file: Path | None, *, keep: bool) -> None:
    """Start a server, tell it `file` or the conversation that ships, and print what it does.

    Raises an `Invalid` or `TextTooLong` on a file that is of no use, before anything is started.
    With `keep`, the server goes on until SIGINT or SIGTERM, and its file stays.
    """
    limit = Settings.model_fields["text_chars_max"].default
    story = bundled(limit) if file is None else of_file(file, limit)
    folder = Path(tempfile.mkdtemp(prefix="recall-demo-"))
    try:
        with _plain_errors():
            async with _serving(folder / "recall.db") as (built, address):
                await _play(Page(), built, f"{address}/mcp", story, keep=keep)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _serving(file: Path) -> AsyncIterator[tuple[Application, str]]:
    # The environment is not read: a demo that says something else on each machine shows nothing.
    # One job at a time, so that what is told first is known first.
    settings = Settings.model_construct(db_path=file, port=0, extractor="rules", worker_jobs=1)
    with only_server(settings):
        async with (
            open_application(settings) as built,
            working(built),
            listening(create_app(built), settings, bound(settings)) as address,
        ):
            yield built, address


async def _play(page: Page, built: Application, url: str, story: Story, *, keep: bool) -> None:
    token, stranger = await _token(built, FIRST), await _token(built, SECOND)
    async with arriving(url, token) as agent:
        await _programme(page, built, url, agent, story)
        await scenes.store(page, agent, story.parts)
        memories = await scenes.extract(page, agent, story.parts)
        await scenes.change(page, agent, memories)
        asked = questions.BY_HEART if story.own else questions.about(memories, story.parts[0].text)
        await scenes.search(page, agent, asked)
        address = url.removesuffix("/mcp")
        await delegate(page, address, await _token(built, FIRST), await _token(built, FIRST), agent)
    async with arriving(url, stranger) as other:
        await scenes.stranger(page, other, asked[0], memories)
    scenes.book(page, await built.services.audit.newest(None, BOOK_LINES_MAX))
    if not keep:
        why = "For a server that stays: `recall serve`, and `recall create-token NAMESPACE`."
        scenes.connect(page, connecting.DEFAULT_URL, connecting.TOKEN, why)
        return
    scenes.connect(page, url, token, "This server goes on, so these work as they stand.")
    page.line(f"\nServing {url} with the token {token}")
    page.code(f"from {built.settings.db_path}")
    page.line("The file stays when you stop: `recall serve --db FILE` goes on with it.")
    await _until_stopped(page)


async def _programme(page: Page, built: Application, url: str, agent: Agent, story: Story) -> None:
    embedder = built.embedder.model if built.embedder else "none"
    page.line(f"recall {__version__}: a memory for AI agents, told {story.name}", style="bold")
    page.line(
        f"{url} on a fresh SQLite file: MCP {agent.protocol}, {await agent.tools()} tools. "
        f"Extractor {built.extractor.name}, embedder {embedder}: no model, key or network. The "
        "demo always uses these, to show the same everywhere; `recall serve` asks Claude where "
        "there is an ANTHROPIC_API_KEY."
    )


async def _token(built: Application, owner: Namespace) -> str:
    services = built.services
    entry = services.audit.begin(owner, "create_token", "demo", None)
    token, _ = await services.access.issue(owner, label="demo", entry=entry)
    return token


async def _until_stopped(page: Page) -> None:
    stop = stop_signal()
    page.line("Stop it with Ctrl-C.")
    await stop.wait()


@contextmanager
def _plain_errors() -> Iterator[None]:
    """The client's task groups wrap errors; the command line wants the error itself."""
    try:
        yield
    except BaseExceptionGroup as group:
        first: BaseException = group.subgroup(RecallError) or group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
