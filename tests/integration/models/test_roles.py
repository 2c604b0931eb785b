"""Each role of a language model may have a provider, address, key and deadline of its own."""

from typing import Any

import pytest

from recall_server import factories
from recall_server.config import ANTHROPIC_URL, Settings
from recall_server.domain.errors import Invalid
from recall_server.domain.extraction import Role

CLAUDE = {"extractor": "anthropic", "anthropic_api_key": "sk-claude"}
LOCAL = "http://127.0.0.1:11434/v1"


def settings(**given: Any) -> Settings:
    return Settings(**given)


def chosen(role: Role, **given: Any) -> tuple[Any, ...] | None:
    """Return provider, model, address, key and deadline of a role."""
    found = settings(**given).model_of(role)
    if found is None:
        return None
    key = found.api_key and found.api_key.get_secret_value()
    return found.provider, found.model, found.url, key, found.deadline_s


@pytest.mark.parametrize("role", [Role.MERGE, Role.JUDGE])
def test_a_role_without_settings_of_its_own_has_those_of_the_extractor(role: Role) -> None:
    of_all = {**CLAUDE, "model": "large", "model_deadline_s": 7}

    assert chosen(role, **of_all) == chosen(Role.EXTRACT, **of_all)
    assert chosen(role, **of_all) == ("anthropic", "large", ANTHROPIC_URL, "sk-claude", 7)
    assert chosen(role) is None


@pytest.mark.parametrize("role", [Role.MERGE, Role.JUDGE])
def test_a_role_may_have_what_the_others_do_not(role: Role) -> None:
    own = {
        f"{role}_provider": "openai",
        f"{role}_model": "qwen3",
        f"{role}_url": LOCAL,
        f"{role}_api_key": "sk-own",
        f"{role}_deadline_s": 120,
    }

    assert chosen(role, **CLAUDE, **own) == ("openai", "qwen3", LOCAL, "sk-own", 120)
    assert chosen(Role.EXTRACT, **CLAUDE, **own) == chosen(Role.EXTRACT, **CLAUDE)
    assert chosen(role, extractor="rules", **own) == ("openai", "qwen3", LOCAL, "sk-own", 120)


@pytest.mark.parametrize("role", [Role.MERGE, Role.JUDGE])
def test_the_key_of_a_provider_goes_to_no_address_of_a_role(role: Role) -> None:
    given = {"extractor": "openai", "model": "small", "openai_api_key": "sk-openai"}

    elsewhere = chosen(role, **given, **{f"{role}_url": LOCAL})
    there = chosen(role, **given, **{f"{role}_api_key": "sk-own"})

    assert elsewhere == ("openai", "small", LOCAL, None, 60.0)
    assert there == ("openai", "small", None, "sk-own", 60.0)


@pytest.mark.parametrize("role", [Role.MERGE, Role.JUDGE])
def test_the_model_of_another_provider_is_none_of_this_one(role: Role) -> None:
    given = {**CLAUDE, "model": "claude-opus-5-5", f"{role}_provider": "openai"}

    found = chosen(role, **given, **{f"{role}_url": LOCAL})

    assert found is not None
    assert found[1] is None


def test_a_role_may_have_no_model() -> None:
    assert chosen(Role.MERGE, **CLAUDE, merge_provider="rules") is None
    assert chosen(Role.JUDGE, **CLAUDE, judge_provider="none") is None
    assert factories.judge(settings(**CLAUDE, judge_provider="none")) is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"judge_provider": "anthropic"}, "ANTHROPIC_API_KEY"),
        ({**CLAUDE, "judge_url": "https://gateway.example.com"}, "RECALL_JUDGE_API_KEY"),
        ({**CLAUDE, "judge_provider": "openai"}, "RECALL_JUDGE_MODEL"),
        (
            {**CLAUDE, "judge_provider": "openai", "judge_model": "m", "openai_base_url": "x"},
            "OPENAI_BASE_URL",
        ),
    ],
)
def test_what_a_role_lacks_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(Invalid, match=named):
        factories.judge(settings(**given))
