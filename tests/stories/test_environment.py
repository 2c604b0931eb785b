"""Where settings come from, and what happens if the database is not at its path."""

from pathlib import Path

import psycopg
import pytest

from recall_server.config import Access, Settings, variable_of
from recall_server.doctor import unknown_settings
from recall_server.domain.errors import DatabaseUnavailable, DatabaseUnusable, RecallError
from recall_server.storage import driver_for
from tests.support.cli import recall, refused, spawned
from tests.support.engines import Postgres, on_postgres
from tests.support.processes import free_port

pytestmark = pytest.mark.usefixtures("clean_environment")

SECRETS = {
    "RECALL_DB_PASSWORD": "db_password",
    "RECALL_DB_URL": "db_url",
    "ANTHROPIC_API_KEY": "anthropic_api_key",
    "OPENAI_API_KEY": "openai_api_key",
    "RECALL_MERGE_API_KEY": "merge_api_key",
    "RECALL_JUDGE_API_KEY": "judge_api_key",
    "RECALL_EMBEDDER_API_KEY": "embedder_api_key",
    "RECALL_SECRET_KEY": "secret_key",
}


def read(**given: object) -> Settings:
    """Return the settings as the command line reads them."""
    return Settings(_env_file=".env", **given)


def test_an_option_goes_before_the_environment_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = ["RECALL_PORT=1", "RECALL_HOST=1.1.1.1", "RECALL_DRAIN_S=1", "POSTGRES_PASSWORD=x"]
    Path(".env").write_text("\n".join(lines), "utf-8")
    monkeypatch.setenv("RECALL_HOST", "2.2.2.2")
    monkeypatch.setenv("RECALL_PORT", "2")

    found = read(port=3)

    assert (found.port, found.host, found.drain_s) == (3, "2.2.2.2", 1)
    assert Settings().drain_s != 1, "only the command line reads the file"


def test_names_of_other_systems_are_taken_where_ours_are_not_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ENGRAM_PORT", "1")
    monkeypatch.setenv("RERANK_MIN_SCORE", "0.35")
    monkeypatch.setenv("EMBEDDING_URL", "http://127.0.0.1:11434/v1")
    monkeypatch.setenv("ENGRAM_SERVER_URL", "http://127.0.0.1:3490")
    theirs, address = read(), Access().url
    monkeypatch.setenv("RECALL_PORT", "2")
    monkeypatch.setenv("RECALL_RERANK_MIN_SCORE", "0.5")
    monkeypatch.setenv("RECALL_EMBEDDER_URL", "http://127.0.0.1:2")
    monkeypatch.setenv("RECALL_URL", "http://127.0.0.1:2")
    ours = read()

    assert (theirs.port, theirs.embedder_url) == (1, "http://127.0.0.1:11434/v1")
    assert address == "http://127.0.0.1:3490"
    assert (theirs.rerank_min_score, ours.rerank_min_score) == (0.35, 0.5)
    assert (ours.port, ours.embedder_url, Access().url) == (2, *["http://127.0.0.1:2"] * 2)
    assert read(port=3).port == 3


def test_a_wrong_setting_is_told_by_the_name_that_it_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused(recall("serve", "--port", 99_999), "INVALID_ARGUMENT", "--port:")
    refused(recall("serve", recall_drain_s=-1), "INVALID_ARGUMENT", "RECALL_DRAIN_S:")
    monkeypatch.setenv("ENGRAM_PORT", "tcp://10.0.0.1:3490")
    refused(recall("serve"), "INVALID_ARGUMENT", "ENGRAM_PORT:")


def test_the_command_line_reads_the_file_of_its_folder() -> None:
    Path(".env").write_text("RECALL_DB_PATH=of-the-file.db\nRECALL_EMBEDER=none\n", "utf-8")

    assert recall("create-token", "alice").code == 0
    assert Path("of-the-file.db").exists()
    assert unknown_settings() == ["RECALL_EMBEDER (is RECALL_EMBEDDER meant?)"]

    Path(".env").write_bytes(b"RECALL_DB_PATH=\xff")
    refused(recall("status"), "INVALID_ARGUMENT", ".env")


def test_a_person_is_told_which_settings_a_file_of_the_folder_has() -> None:
    Path(".env").write_text("RECALL_DB_PATH=theirs.db\nANTHROPIC_API_KEY=none\nDEBUG=1\n", "utf-8")
    recall("create-token", "alice", "--create")

    listed = recall("list", "alice", "--json")

    assert "RECALL_DB_PATH" in listed.err
    assert ".env" in listed.err
    assert "RECALL_DB_PATH" not in listed.out
    Path(".env").unlink()
    assert ".env" not in recall("list", "alice", "--db", "theirs.db").err


@pytest.mark.parametrize(("variable", "setting"), SECRETS.items())
def test_every_secret_may_stand_in_a_file(
    monkeypatch: pytest.MonkeyPatch, variable: str, setting: str
) -> None:
    Path("secret").write_text("postgresql://of-the-file\n", "utf-8")
    monkeypatch.setenv(f"{variable}_FILE", "secret")
    found = getattr(read(), setting)
    secret = found[0] if isinstance(found, tuple) else found

    assert secret.get_secret_value() == "postgresql://of-the-file"
    assert unknown_settings() == []

    monkeypatch.setenv(variable, "postgresql://of-the-environment")
    refused(recall("status"), "INVALID_ARGUMENT", variable, f"{variable}_FILE")
    monkeypatch.delenv(variable)
    monkeypatch.setenv(f"{variable}_FILE", "nowhere")
    refused(recall("status"), "INVALID_ARGUMENT", f"{variable}_FILE", "nowhere")


def test_no_secret_is_without_a_file() -> None:
    secret = {name for name, field in Settings.model_fields.items() if "Secret" in repr(field)}

    assert secret == set(SECRETS.values())


def test_a_named_file_that_is_not_there_is_made_only_where_it_is_asked_for() -> None:
    for command in (
        ("create-token", "alice"),
        ("serve", "--port", "0"),
        ("import", "x", "--into", "a"),
    ):
        refused(recall(*command, "--db", "deep/recal.db"), "DATABASE_UNUSABLE", "--create")
    assert list(Path().iterdir()) == []

    assert recall("create-token", "alice", "--db", "new.db", "--create").code == 0
    assert recall("create-token", "alice", "--db", "new.db").code == 0


def test_no_folder_is_made_for_a_database_that_is_made() -> None:
    """The folder may be a wrong path, or a disk that is not mounted."""
    for command in (("create-token", "alice"), ("serve", "--port", "0")):
        said = recall(*command, "--db", "deep/new.db", "--create")
        refused(said, "DATABASE_UNUSABLE", "There is no folder deep ", "--db")
    assert list(Path().iterdir()) == []


def test_the_environment_names_a_new_file_but_no_new_folder() -> None:
    refused(
        recall("create-token", "alice", RECALL_DB_PATH="deep/new.db"), "DATABASE_UNUSABLE", "deep"
    )

    assert recall("create-token", "alice", RECALL_DB_PATH="new.db").code == 0


def test_a_start_that_fails_leaves_nothing_behind() -> None:
    refused(spawned("serve", "--port", "0", "--host", "192.0.2.1"), "INVALID_ARGUMENT")
    failed = spawned("serve", "--port", "0", "--host", "192.0.2.1", "--allow-public")
    refused(failed, "INVALID_ARGUMENT", "192.0.2.1")

    assert list(Path().iterdir()) == []


async def opening(url: str) -> RecallError:
    driver = driver_for(url)
    with pytest.raises((DatabaseUnusable, DatabaseUnavailable)) as raised:
        await driver.open()
    await driver.close()
    return raised.value


async def test_each_reason_why_postgres_is_not_reached_is_told_apart(postgres: Postgres) -> None:
    secret, port = "s3cr3t-w0rd", free_port()
    given = psycopg.conninfo.conninfo_to_dict(postgres.url)
    host = str(given.get("host"))
    cases = {
        f"postgresql://u:{secret}@127.0.0.1:{port}/n": (
            "DATABASE_UNAVAILABLE",
            f"127.0.0.1:{port} cannot be reached: the connection is refused",
        ),
        f"postgresql://u:{secret}@nohost.invalid/n": (
            "DATABASE_UNAVAILABLE",
            "nohost.invalid:5432 cannot be reached: its host name is unknown",
        ),
        postgres.named("nodb"): ("DATABASE_UNUSABLE", f"{host}:5432 has no database nodb"),
        psycopg.conninfo.make_conninfo(postgres.url, user="nobody", password=secret): (
            "DATABASE_UNUSABLE",
            f"{host}:5432 has no user nobody",
        ),
    }
    for url, (code, text) in cases.items():
        error = await opening(url)

        assert error.code == code, error.message
        assert text in error.message
        assert secret not in error.message


@on_postgres
async def test_a_password_stands_beside_the_url(database: str) -> None:
    for url in (database, "postgresql://user@host/name", "postgresql://host/name?user=u"):
        found = Settings(db_url=url, db_password="it's a \\ b&c").database
        assert isinstance(found, str)
        assert psycopg.conninfo.conninfo_to_dict(found)["password"] == "it's a \\ b&c"


def test_an_optional_setting_that_is_named_without_a_value_is_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    optional = {name: one for name, one in Settings.model_fields.items() if one.default is None}
    for name, one in optional.items():
        monkeypatch.setenv(variable_of(name, one), "")

    settings = Settings()
    assert {name: getattr(settings, name) for name in optional} == dict.fromkeys(optional)


def test_a_list_that_is_named_without_a_value_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the doctor takes "" for a key that opens secrets, and a request may have no origin."""
    lists = [name for name, one in Settings.model_fields.items() if one.default == ()]
    for name in lists:
        monkeypatch.setenv(f"RECALL_{name.upper()}", "")
    without = Settings()
    monkeypatch.setenv("RECALL_ALLOWED_HOSTS", "one.example, ,two.example,")

    assert [getattr(without, name) for name in lists] == [()] * 5
    assert Settings().allowed_hosts == ("one.example", "two.example")


def served_from(*options: str) -> str:
    """Return where `recall doctor` looks for the database, by its refusal of what is missing."""
    said = recall("doctor", *options)
    assert said.code == 2
    return said.err


def test_the_database_is_that_of_the_option_else_the_environment_else_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path(".env").write_text("RECALL_DB_URL=postgresql://of-the-file/x\n", "utf-8")
    of_file = read().database
    monkeypatch.setenv("RECALL_DB_PATH", "of-the-environment.db")
    of_environment = served_from()
    monkeypatch.setenv("RECALL_DB_URL", "postgresql://of-the-environment/x")
    of_url = read().database
    of_option = served_from("--db", "of-the-option.db")

    assert of_file == "postgresql://of-the-file/x"
    assert "of-the-environment.db" in of_environment
    assert of_url == "postgresql://of-the-environment/x"
    assert "of-the-option.db" in of_option


def test_a_name_of_another_system_in_the_environment_goes_before_ours_in_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path(".env").write_text("RECALL_PORT=1\n", "utf-8")
    monkeypatch.setenv("ENGRAM_PORT", "2")

    assert read().port == 2
    assert read(port=3).port == 3


def test_a_variable_without_a_prefix_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many shells and platforms set PORT. Control: with the prefix it is one."""
    before = read()
    ours = {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"}
    for name in {one.upper() for one in Settings.model_fields} - ours - {"RERANK_MIN_SCORE"}:
        monkeypatch.setenv(name, "7")
    after = read()
    Path(".env").write_text("RECALL_PORT=1\n", "utf-8")

    assert after == before
    assert read().port == 1
