"""The command line as an operator uses it, including mistakes."""

import asyncio
import json
import os
import re
import socket
from pathlib import Path

import pytest

from docs import generate
from recall_server import __version__
from recall_server.bootstrap import open_application, working
from recall_server.cli import light
from recall_server.domain.errors import ModelKeyRejected
from recall_server.domain.extraction import Role
from tests.support.application import settings_for
from tests.support.cli import WITHIN_S, Said, recall, refused, spawned
from tests.support.forked import forked
from tests.support.processes import Server, calling, new_token
from tests.support.processes import recall as run_alone

pytestmark = pytest.mark.usefixtures("clean_environment")

COMMANDS = (
    (), ("serve",), ("worker",), ("create-token",), ("tokens",), ("tokens", "list"),
    ("tokens", "revoke"), ("audit",), ("audit", "tail"), ("audit", "export"),
    ("audit", "verify"), ("audit", "checkpoint"), ("status",), ("demo",),
    ("erase",), ("erase-allow",), ("verify-erasure",), ("verify-receipt",), ("key",),
)  # fmt: skip
TOKEN = r"rcl_[0-9A-Za-z]{38}"
SECRET = "hunter2canary"
DRAIN_S = 1


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    said = recall(*command, "--help")

    assert (said.code, said.err) == (0, "")
    assert "Usage: " in said.out
    assert not list(Path.cwd().iterdir())  # This makes no database.


def test_h_is_short_for_help_on_every_command() -> None:
    for command in ("", *(name.removeprefix("recall ") for name, _ in generate.commands())):
        short, long = recall(*command.split(), "-h"), recall(*command.split(), "--help")

        assert short == long, command
        assert short.code == 0
    for command in light.COMMANDS:
        assert spawned(command, "-h") == spawned(command, "--help")


def test_the_version_is_told() -> None:
    assert recall("--version") == Said(0, f"recall-server {__version__}\n", "")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_token_that_goes_into_a_file_of_others_too_is_told(options: tuple[str, ...]) -> None:
    recall("create-token", "alice")
    said = {}
    for mode in (0o644, 0o640, 0o600):
        kept, errors = Path(f"token-{mode:o}"), Path(f"errors-{mode:o}")
        kept.touch(mode)
        kept.chmod(mode)
        errors.touch()
        process = forked(("create-token", "alice", *options), {**os.environ}, kept, errors)
        process.join(WITHIN_S)
        assert process.exitcode == 0
        said[mode] = errors.read_text()
        assert len(re.findall(TOKEN, kept.read_text())) == 1

    assert ["chmod 600" in words for words in said.values()] == [True, True, False]
    assert "chmod" not in recall("create-token", "alice", *options).err


async def test_a_worker_that_runs_once_makes_memories_of_what_waits(database: Path | str) -> None:
    token = (await new_token(database, "alice", "--create"))["token"]
    async with (
        Server(database, worker_jobs=0) as server,
        calling(server.address, token) as call,
    ):
        await call("store_memory", text="Ana: I live in Porto.")
        waiting = await call("get_memory_stats")
        ran = await run_alone(database, "worker", "--once")
        again = await run_alone(database, "worker", "--once")
        listed = await call("inspect_memories")

    assert waiting["pending_extractions"] == 1
    assert re.fullmatch(r"[1-9] jobs? (was|were) run\.\n", ran)
    assert again == "0 jobs were run.\n"
    assert [one["text"] for one in listed["memories"]] == ["Ana lives in Porto."]


def test_a_token_is_made_shown_once_listed_and_revoked(url: str) -> None:
    told = recall("create-token", "alice", "--label", "laptop", "--db", url)
    made = recall("create-token", "bob", "--db", url, "--json").json()
    listed = recall("tokens", "list", "--db", url)
    as_json = recall("tokens", "list", "--db", url, "--json").json()
    bobs = recall("tokens", "list", "bob", "--db", url, "--json").json()
    assert isinstance(made, dict)
    assert isinstance(as_json, list)
    accessor = made["accessor"]
    revoked = recall("tokens", "revoke", accessor, "--db", url)
    again = recall("tokens", "revoke", accessor, "--db", url)
    after = recall("tokens", "list", "bob", "--db", url, "--json").json()

    assert len(re.findall(TOKEN, told.out)) == 1
    assert re.fullmatch(TOKEN, made["token"])
    assert {"token", "accessor", "namespace", "scopes", "expires_at"} <= set(made)
    assert [(one["namespace"], one["label"]) for one in as_json] == [
        ("alice", "laptop"),
        ("bob", ""),
    ]
    assert bobs == [one for one in as_json if one["namespace"] == "bob"]
    for one in as_json:  # The name is not shortened, so that it can be copied and searched for.
        assert one["accessor"] in listed.out
    assert not re.search("rcl_", listed.out + json.dumps(as_json))
    assert (revoked.code, again.code) == (0, 0)
    assert accessor in revoked.out
    assert "before" in again.out
    assert isinstance(after, list)
    assert after[0]["revoked_at"]


@pytest.mark.parametrize("name", ["alice", None], ids=["of_a_namespace", "of_all"])
def test_a_token_that_was_made_too_early_is_shown_as_refused(url: str, name: str | None) -> None:
    made = recall("create-token", "alice", "--db", url, "--json").json()
    before = recall("tokens", "list", "alice", "--db", url)
    line = recall("tokens", "not-before", *filter(None, [name]), "--db", url, "--json").json()
    assert isinstance(made, dict)
    assert isinstance(line, dict)
    after = recall("create-token", "alice", "--db", url, "--json").json()
    assert isinstance(after, dict)
    since = line["not_before"][:19]
    listed = [recall("tokens", "list", *of, "--db", url) for of in ((), ("alice",))]
    as_json = recall("tokens", "list", "alice", "--db", url, "--json").json()
    shown = [recall("tokens", "show", one["accessor"], "--db", url) for one in (made, after)]
    assert isinstance(as_json, list)

    assert "refused" not in before.out
    for said in listed:
        rows = {row.split()[0]: row for row in said.out.splitlines()}
        assert f"made before {since}" in rows[made["accessor"]]
        assert "made before" not in rows[after["accessor"]]
    moments = {one["accessor"]: one["not_before"] for one in as_json}
    assert moments[made["accessor"]].startswith(since)
    assert moments[after["accessor"]] is None
    assert f"made before {since}" in shown[0].out
    assert "made before" not in shown[1].out


def test_an_operator_searches_in_a_container_and_makes_a_token_for_it(url: str) -> None:
    made = recall("create-token", "alice", "--container", "projects/red", "--container", "",
                  "--db", url, "--json").json()  # fmt: skip
    assert isinstance(made, dict)
    shown = recall("tokens", "show", made["accessor"], "--db", url)
    found = recall("search", "alice", "heron", "--container", "projects/red", "--db", url)
    wrong = recall("search", "alice", "heron", "--container", "a room", "--db", url)
    nobody = recall("search", "nobody", "heron", "--db", url)
    filters = ("--topic", "birds", "--type", "fact", "--metadata", '{"project": "red"}',
               "--said-after", "2024-01-01")  # fmt: skip
    narrowed = recall("search", "alice", "heron", *filters, "--db", url)
    undated = recall("search", "alice", "heron", "--said-before", "noon", "--db", url)
    held = recall("quarantine", "list", "nobody", "--db", url)

    assert made["containers"] == ["", "projects/red"]
    assert re.search(r"containers +,projects/red", shown.out)
    assert (found.code, found.out) == (0, "Nothing is found.\n")
    assert (narrowed.code, narrowed.out) == (0, "Nothing is found.\n")
    assert (wrong.code, nobody.code, held.code, undated.code) == (2, 2, 2, 2)
    assert "said_before must be a date" in undated.err
    assert "A container is 1 to 128 characters" in wrong.err
    for said in (nobody, held):
        assert "There is no such namespace" in said.err


def test_a_token_is_made_with_limits_shown_rotated_and_cut_off(url: str) -> None:
    given = ("--scope", "memory:read,audit:read", "--scope", "consolidate", "--topic", "work",
             "--topic", "home", "--type", "fact", "--agent-id", "planner", "--uses", "3",
             "--expires-in", "12h")  # fmt: skip
    made = recall("create-token", "alice", *given, "--db", url, "--json").json()
    never = recall("create-token", "alice", "--never", "--db", url, "--json").json()
    plain = recall("create-token", "alice", "--db", url, "--json").json()
    assert isinstance(made, dict)
    assert isinstance(never, dict)
    assert isinstance(plain, dict)
    shown = recall("tokens", "show", made["accessor"], "--db", url)
    rotated = recall("tokens", "rotate", plain["accessor"], "--db", url, "--json").json()
    assert isinstance(rotated, dict)
    line = recall("tokens", "not-before", "alice", "--at", "2020-01-01T00:00:00Z", "--db", url)
    everywhere = recall("tokens", "not-before", "--at", "2020-01-01", "--db", url)
    nobodys = recall("tokens", "not-before", "carol", "--db", url)

    assert made["scopes"] == ["audit:read", "consolidate", "memory:read"]
    assert (made["topics"], made["types"], made["agent_id"]) == (
        ["home", "work"],
        ["fact"],
        "planner",
    )
    assert made["uses_left"] == 3
    assert never["expires_at"] is None
    assert plain["expires_at"]
    assert plain["scopes"] == ["consolidate", "memory:forget", "memory:read", "memory:write"]
    assert "planner" in shown.out
    assert "rcl_" not in shown.out
    assert rotated["accessor"] != plain["accessor"]
    assert re.fullmatch(TOKEN, rotated["token"])
    assert (line.code, everywhere.code) == (0, 0)
    refused(nobodys, "NOT_FOUND")
    for wrong in (("--scope", "root"), ("--expires-in", "soon"), ("--never", "--expires-in", "1d")):
        refused(recall("create-token", "alice", *wrong, "--db", url), "INVALID_ARGUMENT")


def test_a_token_hands_on_less_and_one_that_is_signed_is_taken_back(url: str) -> None:
    parent = recall("create-token", "alice", "--db", url, "--json").json()
    assert isinstance(parent, dict)
    of = ("tokens", "delegate", parent["accessor"], "--db", url)
    made = recall(*of, "--scope", "memory:read", "--topic", "work", "--expires-in", "10m", "--json")
    child = made.json()
    usual = recall(*of)
    assert isinstance(child, dict)
    ended = recall("tokens", "revoke", child["accessor"], "--db", url)
    theirs = ("tokens", "revoke", "corp:0f/one", "--db", url, "--namespace")
    known = recall(*theirs, "alice")

    assert child["parent"] == parent["accessor"]
    assert (child["scopes"], child["topics"]) == (["memory:read"], ["work"])
    assert usual.code == 0
    assert len(re.findall(r"[\w-]+\.[\w-]+\.[\w-]+", usual.out)) == 1
    assert (ended.code, child["accessor"] in ended.out) == (0, True)
    assert (known.code, "corp:0f/one" in known.out) == (0, True)
    refused(recall(*theirs, "carol"), "NOT_FOUND")
    refused(recall(*of, "--scope", "admin"), "WOULD_WIDEN")
    refused(recall(*of, "--expires-in", "2d"), "INVALID_ARGUMENT")


def test_an_unknown_accessor_is_refused(url: str) -> None:
    recall("create-token", "alice", "--db", url)

    refused(recall("tokens", "revoke", "acc_nobody", "--db", url), "TOKEN_NOT_FOUND")
    refused(recall("tokens", "revoke", "acc_nobody/child_x", "--db", url), "TOKEN_NOT_FOUND")
    refused(recall("tokens", "delegate", "acc_nobody", "--db", url), "TOKEN_NOT_FOUND")
    refused(recall("tokens", "revoke", "", "--db", url), "TOKEN_NOT_FOUND")
    refused(recall("tokens", "revoke", "acc_\n\x1b[2J", "--db", url), "TOKEN_NOT_FOUND")


def test_the_audit_log_and_the_counts_are_shown(url: str) -> None:
    empty = recall("audit", "tail", "--db", url)
    for name in ("alice", "bob", "alice"):
        recall("create-token", name, "--db", url)
    newest = recall("audit", "tail", "--tail", "2", "--db", url, "--json").json()
    bobs = recall("audit", "tail", "--namespace", "bob", "--db", url, "--json").json()
    positional = recall("audit", "tail", "bob", "--db", url, "--json").json()
    both = recall("audit", "tail", "bob", "--namespace", "alice", "--db", url)
    table = recall("audit", "tail", "--db", url)
    state = recall("status", "--db", url, "--json").json()
    text = recall("status", "--db", url)

    assert "empty" in empty.out
    assert isinstance(newest, list)
    assert isinstance(bobs, list)
    assert isinstance(state, dict)
    assert [line["namespace"] for line in newest] == ["bob", "alice"]
    assert [line["operation"] for line in bobs] == ["create_token"]
    assert isinstance(positional, list)
    assert {line["namespace"] for line in positional} == {"bob"}
    refused(both, "INVALID_ARGUMENT", "not both")
    assert table.out.count("create_token") == 3
    assert state["engine"] == ("postgres" if "://" in url else "sqlite")
    assert (state["namespaces"], state["findable_items"]) == (2, 0)
    assert state["engine"] in text.out
    for bad in ("0", "-1", "x", "10001"):
        assert recall("audit", "tail", "--tail", bad, "--db", url).code == 2


async def test_a_rejected_key_of_a_model_is_shown(database: Path | str, url: str) -> None:
    async with open_application(settings_for(database, embedder="none")) as built:
        await built.services.model_keys.reject(Role.MERGE, ModelKeyRejected(403))
    key = {"recall_key_file": built.settings.key_path}
    before = await asyncio.to_thread(recall, "status", "--db", url, **key)
    async with open_application(settings_for(database, embedder="none")) as built, working(built):
        pass
    after = await asyncio.to_thread(recall, "status", "--db", url, **key)

    assert re.search(r"^rejected keys +merge \(HTTP 403\) since ", before.out, re.MULTILINE)
    assert re.search(r"^rejected keys +none$", after.out, re.MULTILINE)


@pytest.mark.parametrize(
    "label",
    ["[/bold] [red]", "\x1b[2Jcleared", "two\nlines", "\udcff", "x" * 10_000],
    ids=["markup", "escape", "line break", "no utf-8", "long"],
)
def test_a_hostile_label_breaks_no_listing(label: str) -> None:
    made = recall("create-token", "alice", "--label", label)
    listed = recall("tokens", "list")

    if made.code:
        refused(made, "[A-Z_]+")
        assert "cleared" not in made.err
    assert listed.code == 0
    assert "\x1b" not in listed.out
    good = recall("create-token", "alice", "--label", "laptop", "--json").json()
    assert isinstance(good, dict)
    assert good["accessor"] in recall("tokens", "list").out


def test_a_flag_goes_before_the_environment_and_that_before_the_default(
    database: Path | str, url: str
) -> None:
    def engine(*flags: str, **settings: object) -> tuple[str, int]:
        state = recall("status", "--json", *flags, **settings).json()
        assert isinstance(state, dict)
        return state["engine"], state["namespaces"]

    recall("create-token", "alice")
    assert Path("recall.db").is_file()
    for name in ("alice", "bob"):
        recall("create-token", name, "--db", "named.db", "--create")
    for name in ("alice", "bob", "carol"):
        recall("create-token", name, "--db", url)
    here = ("postgres" if "://" in url else "sqlite", 3)
    named: dict[str, object] = {"recall_db_url" if "://" in url else "recall_db_path": url}

    assert engine() == ("sqlite", 1)
    assert engine(**named) == here
    assert engine("--db", "named.db", **named) == ("sqlite", 2)
    assert engine("--db", url, recall_db_path="named.db") == here
    assert engine(recall_db_path="named.db") == ("sqlite", 2)


URLS = (
    f"postgresql://recall:{SECRET}@127.0.0.1:1/x",
    f"postgres://recall:{SECRET}@127.0.0.1:1/x?sslmode={SECRET}",
    f"postgresql://recall:{SECRET}@127.0.0.1:port/x",
    f"postgresql://recall:{SECRET}@[bad/x",
    f"postgresql://recall:{SECRET}@127.0.0.1:1/x?{SECRET}=1",
    f"postgresql+psycopg://recall:{SECRET}@127.0.0.1/x",
    f"mysql://recall:{SECRET}@127.0.0.1/x",
    f"://{SECRET}",
)


@pytest.mark.parametrize("wrong", URLS)
def test_a_wrong_url_is_refused_and_its_password_not_shown(wrong: str) -> None:
    for said in (recall("status", "--db", wrong), recall("status", recall_db_url=wrong)):
        refused(said, "DATABASE_UN[A-Z]+|INVALID_ARGUMENT")
        assert SECRET not in said.err
    assert not list(Path.cwd().iterdir())


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is() -> None:
    Path("garbage.db").write_bytes(b"canary " * 1_000)
    Path("folder.db").mkdir()

    for name in ("garbage.db", "folder.db", "folder.db/no/such.db/\x7f"):
        if name.startswith("folder.db/"):
            Path("folder.db").rmdir()
            Path("folder.db").write_text("not a folder")
        refused(recall("status", "--db", name), "DATABASE_UNUSABLE", name.split("/")[0])
    assert Path("garbage.db").read_bytes() == b"canary " * 1_000


def test_a_database_that_is_cut_off_or_overwritten_is_refused() -> None:
    recall("create-token", "alice", "--db", "whole.db", "--create")
    whole = Path("whole.db").read_bytes()
    Path("cut.db").write_bytes(whole[:8_000])
    Path("overwritten.db").write_bytes(whole[:100] + b"canary" * 2_000 + whole[12_100:])

    for name in ("cut.db", "overwritten.db"):
        refused(recall("status", "--db", name), "DATABASE_UNUSABLE", name)
    assert recall("status", "--db", "whole.db").code == 0


def test_a_read_only_file_or_folder_is_refused() -> None:
    recall("create-token", "alice", "--db", "mine.db", "--create")
    Path("mine.db").chmod(0o400)
    Path("folder").mkdir(mode=0o500)

    of_file = spawned("status", "--db", "mine.db", may_override=False)
    of_folder = spawned(
        "serve", "--port", "0", "--db", "folder/new.db", "--create", may_override=False
    )

    refused(of_file, "DATABASE_UNUSABLE", "mine.db")
    refused(of_folder, "DATABASE_UNUSABLE", "folder")


SETTINGS = (
    ("status", {"recall_extractor": "canary"}, "RECALL_EXTRACTOR"),
    ("status", {"recall_embedder": "canary"}, "RECALL_EMBEDDER"),
    ("status", {"recall_extractor": "anthropic"}, "ANTHROPIC_API_KEY"),
    ("status", {"recall_extractor": "openai", "openai_api_key": "canary"}, "RECALL_MODEL"),
    ("status", {"recall_extractor": "openai", "recall_model": "canary"}, "OPENAI_API_KEY"),
    (
        "status",
        {"recall_extractor": "openai", "recall_model": "m", "openai_base_url": "canary"},
        "OPENAI_BASE_URL",
    ),
    ("status", {"anthropic_api_key": "canary\u2026"}, "ANTHROPIC_API_KEY"),
    (
        "status",
        {"recall_extractor": "openai", "recall_model": "m", "openai_api_key": "canary canary"},
        "OPENAI_API_KEY",
    ),
    ("status", {"recall_log_level": "loud"}, "RECALL_LOG_LEVEL"),
    ("status", {"recall_deadline_s": "soon"}, "RECALL_DEADLINE_S"),
    ("status", {"recall_lease_s": "nan"}, "RECALL_LEASE_S"),
    ("status", {"recall_lease_s": "-1"}, "RECALL_LEASE_S"),
    ("serve", {"recall_port": "99999"}, "RECALL_PORT"),
    ("serve", {"recall_host": "0.0.0.0"}, "--allow-public"),
    ("serve", {"recall_host": "::"}, "--allow-public"),
    ("serve", {"recall_host": "memory.example"}, "--allow-public"),
)


@pytest.mark.parametrize(("command", "settings", "named"), SETTINGS, ids=str)
def test_a_wrong_setting_is_refused_by_name(
    command: str, settings: dict[str, str], named: str
) -> None:
    recall("create-token", "alice")
    said = recall(command, **settings)

    refused(said, "INVALID_ARGUMENT", named)
    assert "canary" not in said.err


@pytest.mark.parametrize("command", ["status", "audit tail", "tokens list", "tokens revoke acc_x"])
def test_a_mistyped_path_is_no_reason_to_make_a_database(command: str, tmp_path: Path) -> None:
    path = tmp_path / "mistyped.db"

    refused(recall(*command.split(), "--db", str(path)), "DATABASE_UNUSABLE", str(path))
    assert not path.exists()


@pytest.mark.parametrize(
    "name", ["", "Bad Name", "a/b", "acme\n", "\u0430cme", "\x1b[2J", "a" * 65]
)
def test_a_bad_namespace_is_refused_by_every_command(name: str) -> None:
    recall("create-token", "alice")
    for command in (("create-token",), ("audit", "tail", "--namespace"), ("tokens", "list")):
        refused(recall(*command, name), "INVALID_ARGUMENT", "1 to 64")


def test_a_port_in_use_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = spawned("serve", "--port", port)

    refused(said, "INVALID_ARGUMENT", port, "--port")


async def test_one_server_to_a_file_and_it_stops_when_told_to(tmp_path: Path) -> None:
    file = str(tmp_path / "recall.db")
    made = (
        await asyncio.to_thread(recall, "create-token", "alice", "--db", file, "--create", "--json")
    ).json()
    assert isinstance(made, dict)
    async with Server(Path(file), drain_s=DRAIN_S, embedder="none") as server:
        second = await asyncio.to_thread(spawned, "serve", "--port", "0", "--db", file)
        beside = await asyncio.to_thread(recall, "status", "--db", file)
        port = int(server.address.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        async with calling(server.address, made["token"]) as call:
            await call("get_memory_stats")
            code, seconds = await _timed_stop(server)
        log = server.log()
        writer.close()
    after = await asyncio.to_thread(recall, "status", "--db", file)

    refused(second, "DATABASE_UNUSABLE", file)
    assert beside.code == 0  # Other commands may read meanwhile.
    assert code == 0, log
    assert seconds < WITHIN_S
    assert "Traceback" not in log
    assert after.code == 0


async def _timed_stop(server: Server) -> tuple[int, float]:
    loop = asyncio.get_running_loop()
    started = loop.time()
    return await server.stop(), loop.time() - started
