"""The A2A card in the root of the repository is a valid card of a server with default settings."""

import json
from urllib.parse import urlsplit

from a2a.types import AgentCard
from a2a.utils.proto_utils import validate_proto_required_fields
from google.protobuf import json_format

from recall_server import __version__, shipped
from recall_server.config import Settings


def card() -> AgentCard:
    # ParseDict refuses fields that the type does not have.
    parsed = json_format.ParseDict(
        json.loads(shipped("agent-card.json").read_text("utf-8")), AgentCard()
    )
    assert isinstance(parsed, AgentCard)
    return parsed


def test_the_card_has_every_field_that_the_protocol_requires() -> None:
    validate_proto_required_fields(card())


def test_the_card_names_the_version_that_ships() -> None:
    assert card().version == __version__


def test_the_card_names_the_address_of_a_server_without_settings() -> None:
    host, port = (Settings.model_fields[name].default for name in ("host", "port"))

    addresses = {urlsplit(one.url)[:2] for one in card().supported_interfaces}
    assert addresses == {("http", f"{host}:{port}")}


def test_the_card_says_who_may_come_in() -> None:
    shown = card()

    scheme = shown.security_schemes["bearer"].http_auth_security_scheme
    required = [
        {name: list(roles.list) for name, roles in one.schemes.items()}
        for one in shown.security_requirements
    ]
    # A signature does not cover an empty list, so there is a role.
    assert (scheme.scheme, required) == ("Bearer", [{"bearer": ["memory"]}])


def test_the_card_shows_each_skill_by_text_and_by_data() -> None:
    for skill in card().skills:
        text, data = skill.examples

        assert not text.startswith("{")
        named = {"consolidate_memories": {"text", "topic"}}
        assert set(json.loads(data)) == named.get(skill.id, {"skill", "id", "choice"})
