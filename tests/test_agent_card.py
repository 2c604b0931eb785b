"""The A2A card that ships: readable by the SDK, and true of this version."""

import json

from a2a.types import AgentCard
from google.protobuf import json_format  # type: ignore[import-untyped]

from recall_server import __version__
from recall_server.files import shipped


def card() -> AgentCard:
    # ParseDict refuses fields that the type does not have.
    parsed = json_format.ParseDict(
        json.loads(shipped("agent-card.json").read_text("utf-8")), AgentCard()
    )
    assert isinstance(parsed, AgentCard)
    return parsed


def test_the_card_names_the_version_that_ships() -> None:
    assert card().version == __version__


def test_the_card_says_who_may_come_in() -> None:
    shown = card()

    scheme = shown.security_schemes["bearer"].http_auth_security_scheme
    required = [set(one.schemes) for one in shown.security_requirements]
    assert (scheme.scheme, required) == ("Bearer", [{"bearer"}])


def test_the_card_promises_nothing_that_is_not_served() -> None:
    shown = card()

    promised = shown.capabilities
    assert not shown.supported_interfaces
    assert not shown.skills
    assert not promised.streaming
    assert not promised.push_notifications
    assert not promised.extended_agent_card
