"""Each mistake on the command line gets one line, before anything is destroyed."""

import json
import re
from pathlib import Path

import pytest

from recall_server import local as local_server
from tests.support.cli import invoked, recall, refused, spawned
from tests.support.length import has_full_length, on_both_at_full_length
from tests.support.processes import free_port

pytestmark = pytest.mark.usefixtures("clean_environment")

HALF = "\udcff"
"""What Python makes of a byte on the command line that is no UTF-8."""

OF_NOBODY = (
    ("erase", "nobody", "--yes"),
    ("erase", "nobody", "--memory", "mem_x", "--yes"),
    ("erase", "nobody", "--subject", "Anna", "--dry-run"),
    ("erase", "nobody", "--container", "room", "--yes"),
    ("restore", "nobody", "mem_x"),
    ("purge-source", "nobody", "--agent", "web:x", "--yes"),
    ("hold", "set", "nobody", "--reason", "a court"),
    ("hold", "lift", "nobody"),
    ("conflicts", "list", "nobody"),
    ("conflicts", "resolve", "nobody", "q_x", "keep_new"),
    ("conflicts", "policy", "nobody"),
    ("conflicts", "policy", "nobody", "ask"),
    ("quarantine", "release", "nobody", "x"),
    ("tokens", "list", "nobody"),
    ("tokens", "not-before", "nobody"),
    ("tokens", "revoke", "corp:x/y", "--namespace", "nobody"),
    ("audit", "tail", "--namespace", "nobody"),
    ("audit", "export", "nobody"),
    ("audit", "checkpoint", "nobody"),
    ("export", "nobody"),
    ("search", "nobody", "tea"),
)  # fmt: skip


@on_both_at_full_length
@has_full_length
def test_a_namespace_that_is_not_there_is_told_in_the_same_words_by_every_command(
    url: str, tmp_path: Path
) -> None:
    """The control: each command accepts a namespace that exists."""
    text = tmp_path / "text"
    text.write_text("Anna: I live in Lisbon.", encoding="utf-8")
    allowed = ("erase-allow", "nobody", "--text-file", str(text))
    said = {recall(*command, "--db", url).err for command in (*OF_NOBODY, allowed)}

    assert len(said) == 1, said
    assert "There is no such namespace." in said.pop()
    recall("create-token", "nobody", "--db", url)
    for command in (OF_NOBODY[0], ("tokens", "list", "nobody"), allowed):
        assert recall(*command, "--db", url).code == 0


@pytest.mark.parametrize(
    "command",
    [
        ("tokens", "show", HALF),
        ("tokens", "revoke", HALF),
        ("conflicts", "resolve", "alice", HALF, "keep_new"),
        ("verify-erasure", "--canary", f"{HALF}canary-canary"),
    ],
    ids=" ".join,
)
def test_what_is_no_text_is_refused_as_such(url: str, command: tuple[str, ...]) -> None:
    recall("create-token", "alice", "--db", url)

    refused(recall(*command, "--db", url), "INVALID_TEXT")


def test_a_worker_makes_no_database_where_a_path_is_wrong(tmp_path: Path) -> None:
    nowhere = tmp_path / "recal.db"

    refused(spawned("worker", "--db", str(nowhere)), "DATABASE_UNUSABLE", str(nowhere))
    assert not nowhere.exists()


def test_a_life_of_nothing_is_not_the_usual_life(url: str) -> None:
    refused(recall("create-token", "alice", "--expires-in", "0d", "--db", url), "INVALID_ARGUMENT")
    refused(recall("create-token", "alice", "--expires-in", "", "--db", url), "INVALID_ARGUMENT")

    assert recall("create-token", "alice", "--expires-in", "1s", "--db", url).code == 0


def test_a_child_for_no_agent_at_all_is_not_made(url: str) -> None:
    made = recall("create-token", "alice", "--db", url, "--json").json()
    assert isinstance(made, dict)
    delegate = ("tokens", "delegate", made["accessor"], "--db", url)

    refused(recall(*delegate, "--agent-id", ""), "INVALID_ARGUMENT")
    assert recall(*delegate, "--agent-id", "painter").code == 0


def test_revoking_children_that_are_not_there_does_not_say_that_the_token_is_gone(url: str) -> None:
    made = recall("create-token", "alice", "--db", url, "--json").json()
    assert isinstance(made, dict)
    accessor = made["accessor"]
    children = recall("tokens", "revoke", accessor, "--children-only", "--db", url)
    shown = recall("tokens", "show", accessor, "--json", "--db", url).json()
    itself = recall("tokens", "revoke", accessor, "--db", url)
    again = recall("tokens", "revoke", accessor, "--db", url)

    assert "was revoked before" not in children.out
    assert isinstance(shown, dict)
    assert shown["revoked_at"] is None
    assert itself.out == f"Revoked {accessor} of alice.\n"
    assert "was revoked before" in again.out


def test_nothing_is_erased_whose_receipt_has_no_place(url: str, tmp_path: Path) -> None:
    """The control: the same command erases once it can write the receipt."""
    recall("create-token", "alice", "--db", url)
    before = tmp_path / "before.jws"
    before.write_text("an earlier receipt", encoding="utf-8")
    erase = ("erase", "alice", "--yes", "--db", url, "--receipt")
    for place in (tmp_path / "no" / "folder.jws", before):
        refused(recall(*erase, str(place)), "INVALID_ARGUMENT", str(place))
        tokens = recall("tokens", "list", "alice", "--json", "--db", url).json()
        assert isinstance(tokens, list)
        assert [one["revoked_at"] for one in tokens] == [None]
    done = recall(*erase, str(tmp_path / "receipt.jws"))
    shown = recall("verify-receipt", str(tmp_path / "receipt.jws"), "--db", url)
    proved = shown.json()

    assert before.read_text(encoding="utf-8") == "an earlier receipt"
    assert done.code == 0, done.err
    assert re.search(
        r"Receipt (ers_\w+)\. GET /v1/receipts/\1 .* Recall-Receipt-Secret: \S+$", done.err
    )
    assert isinstance(proved, dict)
    assert proved["kind"] == "namespace"
    assert "The receipt is valid" in shown.err


def test_a_file_that_is_not_what_it_should_be_is_told_by_its_name(url: str, tmp_path: Path) -> None:
    recall("create-token", "alice", "--db", url)
    other = tmp_path / "other"
    other.write_bytes(b"\xff not UTF-8, and no key")
    erased = recall("erase", "alice", "--yes", "--db", url, "--receipt", str(tmp_path / "r.jws"))
    assert erased.code == 0
    check = ("verify-receipt", str(tmp_path / "r.jws"), "--key")

    refused(recall(*check, str(other)), "INVALID_ARGUMENT", str(other))
    refused(recall("verify-receipt", str(other), "--db", url), "INVALID_ARGUMENT", "signature")
    allow = ("erase-allow", "alice", "--text-file", str(other), "--db", url)
    refused(recall(*allow), "INVALID_ARGUMENT", "UTF-8")
    key = tmp_path / "key.jwk"
    key.write_text(json.dumps(recall("key", "--db", url).json()), encoding="utf-8")
    assert recall(*check, str(key)).code == 0


@on_both_at_full_length
@has_full_length
def test_who_looks_for_a_word_in_a_file_that_is_not_there_is_not_told_that_it_is_clean(
    url: str, tmp_path: Path
) -> None:
    recall("create-token", "alice", "--db", url)
    look = ("verify-erasure", "--canary", "Zanzibar", "--db", url, "--path")
    (tmp_path / "log").write_text("nothing of it", encoding="utf-8")
    missing = recall(*look, str(tmp_path / "lgo"))

    assert (missing.code, "lgo (not there): not read" in missing.err) == (1, True)
    assert recall(*look, str(tmp_path / "log")).code == 0
    (tmp_path / "log").write_text("in Zanzibar", encoding="utf-8")
    found = recall(*look, str(tmp_path / "log"))
    assert (found.code, "A fragment is any 8 bytes" in found.err) == (1, True)


def test_checkpoints_that_vouch_for_nothing_are_not_taken_for_some(
    url: str, tmp_path: Path
) -> None:
    recall("create-token", "alice", "--db", url)
    empty, some = tmp_path / "empty.jws", tmp_path / "some.jws"
    empty.write_text("", encoding="utf-8")
    some.write_text(recall("audit", "checkpoint", "--db", url).out, encoding="utf-8")
    verify = ("audit", "verify", "--db", url, "--checkpoints")

    assert "no checkpoint confirms any of them" in recall(*verify, str(empty)).out
    assert "checkpoints confirm those up to " in recall(*verify, str(some)).out


def test_a_log_is_verified_by_the_name_of_its_namespace(url: str) -> None:
    """An export that is not there is no namespace either, and no good log."""
    for name in ("alice", "bob"):
        recall("create-token", name, "--db", url)
    by_option = recall("audit", "verify", "--namespace", "alice", "--db", url)
    by_name = recall("audit", "verify", "alice", "--db", url)
    gone = recall("audit", "verify", "alice.jsonl", "--db", url)
    both = recall("audit", "verify", "bob", "--namespace", "alice", "--db", url)

    assert (by_option.code, by_name.code) == (0, 0)
    assert by_name.out.startswith("alice: records 1 to ")
    assert "bob" not in by_name.out
    assert "There is no export alice.jsonl: this is taken for a namespace." in gone.err
    assert (gone.code, "There is no such namespace" in gone.err) == (2, True)
    refused(both, "INVALID_ARGUMENT", "Give an export, or a database")


def test_an_empty_question_is_told_as_everywhere(url: str) -> None:
    recall("create-token", "alice", "--db", url)

    for command in ("ask", "search"):
        refused(recall(command, "alice", "", "--db", url), "EMPTY_TEXT", "The text is empty.")


def test_a_setting_is_named_as_it_was_given(tmp_path: Path) -> None:
    by_flag = recall("serve", "--port", "99999")
    by_variable = recall("status", recall_port="99999")
    own = recall("status", recall_public_url="memory.example.com")

    refused(by_flag, "INVALID_ARGUMENT", "recall: --port: ")
    refused(by_variable, "INVALID_ARGUMENT", "recall: RECALL_PORT: ")
    refused(own, "INVALID_ARGUMENT", "recall: RECALL_PUBLIC_URL: it must be an address")
    for nowhere in ("", "."):
        refused(recall("status", "--db", nowhere), "INVALID_ARGUMENT", "--db: it must name a file")
    key = tmp_path / "card.pem"
    recall("create-token", "alice")
    gone = recall("doctor", recall_card_key_file=key)
    assert (gone.code, f"{key} cannot be read" in gone.out) == (1, True)


def test_a_token_for_an_impossible_name_leaves_no_database(tmp_path: Path) -> None:
    new = tmp_path / "new.db"

    refused(recall("create-token", "a b", "--create", "--db", new), "INVALID_ARGUMENT")
    assert not new.exists()


@pytest.mark.parametrize(
    "command",
    [
        ("add", "Tea, please."),
        ("stdio",),
        ("serve", "--create", "--db", "{}/new.db"),
        ("create-token", "alice", "--create", "--db", "{}/new.db"),
    ],
    ids=" ".join,
)
def test_a_folder_that_nobody_may_write_is_told_with_its_path(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    home = tmp_path / "data"
    home.mkdir(mode=0o500)
    written = [word.format(home) for word in command]

    refused(spawned(*written, may_override=False), "DATABASE_UNUSABLE", str(home))


@pytest.mark.parametrize("address", ["127.0.0.1:8000", "localhost", "htp://127.0.0.1", "http://"])
def test_an_address_that_is_none_is_told_before_it_is_asked(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECALL_TOKEN", "rcl_any")

    refused(recall("list", "--url", address), "INVALID_ARGUMENT", "--url", "http://")
    refused(recall("list", recall_url=address), "INVALID_ARGUMENT", "RECALL_URL", "http://")


def test_a_database_server_that_is_not_there_is_told_by_the_name_that_was_given_to_it() -> None:
    nowhere = f"postgresql://127.0.0.1:{free_port()}/x"
    by_option = recall("list", "--db", nowhere)
    by_variable = recall("list", recall_db_url=nowhere)
    looked = recall("doctor", "--db", nowhere)

    refused(by_option, "DATABASE_UNAVAILABLE", "Check that it runs and that --db is right")
    refused(by_variable, "DATABASE_UNAVAILABLE", "that RECALL_DB_URL is right")
    assert (looked.code, "that --db is right" in looked.out) == (1, True)


def test_a_file_of_a_token_that_is_no_text_is_told_as_that(tmp_path: Path) -> None:
    server = ("list", "--url", "http://127.0.0.1:1", "--token-file")
    recall("create-token", "alice")

    refused(recall(*server, "recall.db"), "INVALID_ARGUMENT", "recall.db", "not UTF-8")
    missing = recall(*server, str(tmp_path))
    refused(missing, "INVALID_ARGUMENT", "cannot be read (Is a directory)")
    hook = ("install", "claude-code", "--url", "https://memory.example.com/mcp", "--token-file")
    refused(recall(*hook, "recall.db"), "SERVER_UNREACHABLE", "recall.db", "not UTF-8")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("search", "tea", "--mode", "hybird"), "'hybird' is not one of 'hybrid', "),
        (("list", "--type", "fct"), "Did you mean 'fact'?"),
        (("conflicts", "resolve", "q_x", "keep-new"), "Did you mean 'keep_new'?"),
    ],
)
def test_a_value_that_is_no_choice_is_told_with_the_nearest(
    command: tuple[str, ...], told: str
) -> None:
    said = recall(*command)
    words = " ".join(said.err.replace("│", " ").split())

    assert said.code == 2
    assert told in words
    assert "Value error" not in words


def test_a_text_that_is_missing_is_told_by_the_name_of_its_argument(url: str) -> None:
    recall("create-token", "alice", "--db", url)

    for command in (("add", "alice", ""), ("edit", "alice", "mem_x", " ")):
        refused(recall(*command, "--db", url), "EMPTY_TEXT", "TEXT is empty")
    piped = invoked(("add", "alice", "-", "--db", url), {}, given="")
    refused(piped, "EMPTY_TEXT", "TEXT", "standard input is empty")
    resolve = ("conflicts", "resolve", "alice", "q_x", "--db", url)
    refused(recall(*resolve, "merge"), "ANSWER_UNCLEAR", "--text goes with merge")
    without = recall(*resolve, "keep_new", "--text", "Tea.")
    refused(without, "ANSWER_UNCLEAR", "--text goes with merge")
    answer = ("reviews", "answer", "alice", "prop_x", "--db", url)
    refused(recall(*answer, "edit"), "ANSWER_UNCLEAR", "--text goes with merge and edit")


def test_touching_matches_of_one_file_are_one_line_of_an_erasure_that_is_verified(
    url: str, tmp_path: Path
) -> None:
    """The control: what stands apart has a line of its own."""
    recall("create-token", "alice", "--db", url)
    log, word = tmp_path / "log", "xq7-Zanzibar-kv3"
    log.write_bytes(b"." * 5 + word.encode() + b"." * 5 + word[::-1].encode())
    look = ("verify-erasure", "--canary", word, "--db", url, "--path", str(log))
    lines = [line for line in recall(*look).out.splitlines() if line.startswith(f"{log}: ")]
    places = recall(*look, "--json")

    assert [line.partition(", ")[2] for line in sorted(lines)] == [
        "fragment, at bytes 5 to 13",
        "reversed, at byte 26",
    ]
    assert len(json.loads(places.out)["places"]) == 10


def test_a_server_that_is_not_there_is_told_with_its_address() -> None:
    at = f"127.0.0.1:{free_port()}"
    plain = recall("list", "--url", f"http://{at}", recall_token="rcl_any")
    secure = recall("list", "--url", f"https://{at}", recall_token="rcl_any")

    refused(plain, "UNAVAILABLE", at)
    refused(secure, "UNAVAILABLE", at, "speaks http")
    assert "speaks http" not in plain.err


def test_where_the_named_database_is_missing_the_command_that_makes_it_is_told(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "a file.db")
    made = f"recall create-token NAMESPACE --db '{path}' --create"
    refused(recall("add", "acme", "I like tea.", "--db", path), "DATABASE_UNUSABLE", made)
    assert recall("create-token", "acme", "--db", path, "--create").code == 0
    assert recall("add", "acme", "I like tea.", "--db", path).code == 0


def test_where_there_is_no_database_that_of_the_clients_is_named() -> None:
    before = recall("tokens", "list")
    recall("add", "I like tea.")
    after = recall("tokens", "list")

    refused(before, "DATABASE_UNUSABLE", "recall serve")
    refused(after, "DATABASE_UNUSABLE", "recall serve", str(local_server.database()))
    assert str(local_server.database()) not in before.err
    assert recall("tokens", "list", "--db", local_server.database()).code == 0


def test_a_hook_that_a_person_runs_says_who_runs_it() -> None:
    said = invoked(("hook", "stop"), {}, given="")

    assert (said.code, said.out) == (0, "")
    assert "coding agent" in said.err
