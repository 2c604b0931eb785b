"""An unknown variable is named at the start, with the setting that was probably meant."""

import pytest

from recall_server.doctor import examine, refuse_unsafe, unknown_settings
from recall_server.storage.inspection import Level
from tests.support.application import Open


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("RECALL_EMBEDER", "is RECALL_EMBEDDER meant?"),
        ("RECALL_TOP_K", "each search says its limit"),
        ("recall_vector_limit", "a search compares"),
        ("RECALL_DECAY_LAMBDA", None),
        ("RECALL_ANTHROPIC_API_KEY", None),
    ],
)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_variable_that_is_no_setting_is_named_at_start(
    open_app: Open,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    hint: str | None,
) -> None:
    monkeypatch.setenv(name, "zzz")
    async with open_app() as built:
        [finding] = [one for one in await examine(built) if one.check == "unknown_settings"]
        await refuse_unsafe(built)

    assert finding.level is Level.WARN
    assert name in finding.text
    assert "zzz" not in finding.text
    assert (hint or "") in finding.text
    assert name in capsys.readouterr().out


def test_variables_of_settings_clients_and_tests_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RECALL_PORT", "recall_port", "RECALL_TOKEN", "RECALL_TEST_POSTGRES", "PORT"):
        monkeypatch.setenv(name, "1")

    assert unknown_settings() == []
