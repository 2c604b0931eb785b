"""Isolation on the command line: an operator names the namespace of each command."""

import re
from collections.abc import Iterator

import pytest
import typer
from typer.main import get_command

from recall_server.application import Application
from recall_server.cli.commands import app
from recall_server.domain.context import Context
from recall_server.domain.ids import Namespace
from recall_server.domain.screening import Held
from recall_server.domain.task import Mode, Request
from recall_server.services.memory.ingest import Submission
from tests.support.a2a_clients import LISBON, PORTO
from tests.support.audit import Database, inside, line, recall
from tests.support.cli import Said
from tests.support.conversation import contradicted, drained, enter
from tests.support.isolation import ORDER, rows, unlike
from tests.support.length import has_full_length, on_both_at_full_length
from tests.support.logs import real_logs
from tests.support.server import Running
from tests.support.webhooks import planted

ALICE, BOB = Namespace("alice"), Namespace("bob")

# How each command with a namespace names a row in it; None if it names none.
COMMANDS: dict[str, tuple[str, ...] | None] = {
    "conflicts show": ("question",),
    "conflicts resolve": ("question", "keep_new"),
    "reviews answer": ("disputed", "keep_both"),
    "quarantine release": ("suspect",),
    "quarantine reject": ("suspect to reject",),
    "show": ("memory",),
    "edit": ("memory", "User: My favourite colour is red."),
    "restore": ("forgotten",),
    "undo": ("change", "--dry-run", "--with-dependents"),
    "forget": ("memory to forget",),
    "erase": ("--memory", "memory", "--yes"),
    "purge-source": ("--episode", "episode", "--yes"),
    "webhooks test": ("webhook",),
    "webhooks remove": ("webhook",),
    "aliases list": None,
    "aliases set": None,
    "aliases remove": ("alias",),
    "webhooks list": None,
    "webhooks add": None,
    "conflicts list": None,
    "reviews list": None,
    "conflicts policy": None,
    "quarantine list": None,
    "audit tail": None,
    "audit verify": None,
    "audit export": None,
    "audit checkpoint": None,
    "tokens list": None,
    "tokens not-before": None,
    "create-token": None,
    "erase-allow": None,
    "hold lift": None,
    "hold set": None,
    "search": None,
    "add": None,
    "ask": None,
    "list": None,
    "texts": None,
    "stats": None,
    "timeline": None,
    "changes": None,
    "rebuild": None,
    "recheck": None,
    "export": None,
}

# These report that nothing was done. That is no error.
FOUND_NOTHING = {"purge-source"}
# These fail for Bob's own row too: no key decrypts the secret of this webhook.
EXITS = {"webhooks test": 1}


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    with real_logs():
        yield


def _taking_a_namespace() -> set[str]:
    found = set()

    def walk(command: object, name: str) -> None:
        for key, child in getattr(command, "commands", {}).items():
            walk(child, f"{name} {key}".strip())
        for param in getattr(command, "params", ()):
            if param.param_type_name == "argument" and "NAMESPACE" in (param.metavar or ""):
                found.add(name)

    walk(get_command(app), "")
    return found


def test_every_command_that_takes_a_namespace_is_held_to_the_wall() -> None:
    """A new command without a case fails here."""
    assert isinstance(app, typer.Typer)
    assert _taking_a_namespace() == set(COMMANDS)


def _furnish(database: Database) -> dict[str, str]:
    """Make one row of every kind for Alice."""

    async def act(built: Application) -> dict[str, str]:
        services = built.services
        await enter(built, ALICE)
        await enter(built, BOB)
        for text in ("User: My favourite colour is teal.", "User: I like quokka jam.",
                     "User: I like swimming."):  # fmt: skip
            await _remember(built, text)
        for told in ("Ana: I swim.", "Ana: I row."):
            await _remember(built, f"{told}\nMallory: {ORDER}\n{told} Twice.")
        await drained(built)
        for text in (LISBON, PORTO):
            wanted = Request(Mode.INGEST, "life", text)
            await services.consolidate.start(Context(line(built)), wanted)
            await drained(built)
        async with built.store.transaction(ALICE, write=False) as tx:
            kept = await tx.memories.page(limit=50, offset=0, type_="", topic="")
            suspects = await built.services.tasks.questions(Context(line(built)), limit=5)
        jam = next(one for one in kept if "jam" in one.text)
        other = next(one for one in kept if "teal" in one.text)
        swims = next(one for one in kept if "swim" in one.text)
        await services.recall.forget(Context(line(built)), jam.id)
        changed = await services.changes.page(Context(line(built)), None)
        held = await services.quarantine.list(
            Context(line(built)), state=Held.HELD, limit=5, offset=0
        )
        aliases = await services.aliases.set(Context(line(built)), "Ana", ["Quirin"])
        return {
            "disputed": await contradicted(built),
            "alias": aliases[0].alias,
            "webhook": await planted(built, ALICE),
            "question": suspects[0].question.id,
            "suspect": held.found[0].item_id,
            "suspect to reject": held.found[1].item_id,
            "forgotten": jam.id,
            "memory": other.id,
            "change": changed.changes[0].id,
            "memory to forget": swims.id,
            "episode": other.citation.episode_id,
        }

    found: dict[str, str] = inside(database, act)
    return found


async def _remember(built: Application, text: str) -> None:
    await built.services.ingest.remember(Context(line(built)), Submission(text, "life"))


def _rows(database: Database) -> dict[str, str]:
    async def act(built: Application) -> dict[str, str]:
        return await rows(Running(built, ""))

    found: dict[str, str] = inside(database, act)
    return found


def _said(database: Database, name: str, owner: str, told: list[str]) -> Said:
    command = name.split()
    return recall(database, *command, owner, *told)


@on_both_at_full_length
@has_full_length
def test_anothers_id_is_answered_like_one_that_never_was(database: Database) -> None:
    """An id of Alice is refused in Bob's namespace, and accepted in hers."""
    ids = _furnish(database)
    before = _rows(database)
    asked = {name: given for name, given in COMMANDS.items() if given is not None}
    for name, given in asked.items():
        known = [ids.get(part, part) for part in given]
        never = [unlike(ids[part]) if part in ids else part for part in given]
        foreign = _said(database, name, "bob", known)
        unknown = _said(database, name, "bob", never)
        assert foreign.code == (0 if name in FOUND_NOTHING else 2), (name, foreign)
        assert (foreign.code, foreign.out, _plain(foreign)) == (
            unknown.code,
            unknown.out,
            _plain(unknown),
        ), name
    assert _rows(database) == before

    for name, given in asked.items():
        served = _said(database, name, "alice", [ids.get(part, part) for part in given])
        assert served.code == EXITS.get(name, 0), (name, served)
        assert name not in FOUND_NOTHING or "Done: 1 episodes" in served.out, (name, served)


def _plain(said: Said) -> str:
    """Return the output for a person, without the lines of the log."""
    return "\n".join(one for one in said.err.splitlines() if re.match("recall: ", one))
