"""The server does not start with a file of identity providers that could accept somebody else's
tokens.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from recall_server.bootstrap import open_application
from recall_server.domain.errors import Invalid
from recall_server.domain.permissions import Scope
from recall_server.integrations.issuers import keys_of, load_issuers
from tests.support.application import settings_for
from tests.support.identity_provider import jwk, private
from tests.support.paths import ROOT

HERE = "https://memory.example.com/mcp"
GOOD: dict[str, Any] = {
    "name": "corp",
    "issuer": "https://login.example.com",
    "jwks_url": "https://login.example.com/jwks.json",
    "algorithms": ["RS256"],
    "namespace_claim": "tenant",
    "namespaces": {"acme": "acme-prod"},
    "scopes": {"memory.read": ["memory:read"], "memory.use": ["memory:read", "memory:write"]},
}

FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "a shared secret": ({"algorithms": ["HS256"]}, "algorithms"),
    "none": ({"algorithms": ["none"]}, "algorithms"),
    "no algorithm": ({"algorithms": []}, "algorithms"),
    "nothing to find keys by": ({"jwks_url": None}, "jwks_url or jwks_file"),
    "two places for keys": ({"jwks_file": "keys.json"}, "jwks_url or jwks_file"),
    "ourselves": ({"issuer": "recall"}, "this server"),
    "any kind of token": ({"typ": "JWT"}, "required_claims"),
    "no namespaces": ({"namespaces": {}}, "namespaces"),
    "no namespace claim": ({"namespace_claim": None}, "namespace_claim"),
    "a namespace that is none": ({"namespaces": {"acme": "*"}}, "namespace"),
    "a scope of ours that is none": ({"scopes": {"all": ["root"]}}, "scopes"),
    "a scope of two words": ({"scopes": {"read write": ["memory:read"]}}, "blanks"),
    "no scopes": ({"scopes": {}}, "scopes"),
    "a moment without a zone": ({"not_before": "2026-03-01T12:00:00"}, "not_before"),
    "a name that is none": ({"name": "corp/x"}, "name"),
    "a field that is none": ({"audiance": HERE}, "audiance"),
}


def written(folder: Path, *entries: dict[str, Any]) -> Path:
    file = folder / "issuers.json"
    file.write_text(json.dumps(entries))
    return file


def faulty(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (GOOD | given).items() if value is not None}


def test_an_issuer_as_the_documents_have_it(tmp_path: Path) -> None:
    one, *others = load_issuers(written(tmp_path, GOOD), HERE)

    assert others == []
    assert one.audience == HERE
    assert one.namespace_of({"tenant": "acme"}) == "acme-prod"
    assert one.scopes_of({"scope": "memory.use openid"}) == {Scope.READ, Scope.WRITE}
    assert one.name_for(Scope.READ) == "memory.read"
    assert one.name_for(Scope.ERASE) is None
    page = ROOT / "docs/operate/identity-providers.md"
    example = page.read_text().partition("```json\n[{")[2].partition("}]\n```")[0]
    assert json.loads("{" + example + "}") == GOOD


@pytest.mark.parametrize(("given", "named"), FAULTS.values(), ids=FAULTS)
def test_what_is_not_safe_is_refused_and_named(
    given: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(Invalid, match=f"RECALL_ISSUERS_FILE.*{named}"):
        load_issuers(written(tmp_path, faulty(given)), HERE)


def test_somebody_else_s_tokens_are_not_let_in_for_want_of_an_audience(tmp_path: Path) -> None:
    """The library accepts a token without an audience if none is required."""
    with pytest.raises(Invalid, match="audience: missing, and there is no RECALL_PUBLIC_URL"):
        load_issuers(written(tmp_path, GOOD), None)
    own = load_issuers(written(tmp_path, GOOD | {"audience": "urn:ours"}), None)
    assert own[0].audience == "urn:ours"


def test_no_two_issuers_are_one(tmp_path: Path) -> None:
    for other in ({"name": "other"}, {"issuer": "https://other.example.com"}):
        with pytest.raises(Invalid, match="two issuers with the same"):
            load_issuers(written(tmp_path, GOOD, GOOD | other), HERE)
    both = GOOD | {"name": "other", "issuer": "https://other.example.com"}
    assert len(load_issuers(written(tmp_path, GOOD, both), HERE)) == 2


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1]", "[", '[{"name":"a","name":"b"}]'])
def test_a_file_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "issuers.json"
    file.write_text(text)
    for path in (file, tmp_path / "nowhere.json"):
        with pytest.raises(Invalid, match="RECALL_ISSUERS_FILE"):
            load_issuers(path, HERE)


async def test_keys_that_cannot_be_had_stop_the_start(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    for given in (
        {"jwks_url": "http://login.example.com/jwks.json"},
        {"jwks_url": "https://login.example.com:x/"},
        {"jwks_url": None, "jwks_file": str(keys)},
    ):
        settings = settings_for(
            tmp_path / "recall.db",
            issuers_file=written(tmp_path, faulty(given)),
            public_url="https://memory.example.com",
        )
        with pytest.raises(Invalid, match="RECALL_ISSUERS_FILE: the keys of corp: "):
            async with open_application(settings):
                pass
    keys.write_text(json.dumps({"keys": [jwk(private("corp"), "k1")]}))
    async with open_application(settings) as built:
        assert [one.name for one in built.issuers] == ["corp"]


def test_only_keys_that_verify_by_what_was_allowed_are_kept() -> None:
    shown = [
        jwk(private("a"), "rsa"),
        jwk(private("a"), "for secrets", use="enc"),
        jwk(private("b", "ES256"), "ec", "ES256"),
        {"kty": "AKP", "kid": "of tomorrow"},
    ]
    bare = {name: value for name, value in jwk(private("c"), "bare").items() if name != "alg"}
    data = json.dumps({"keys": [*shown, bare]}).encode()

    assert {kid: set(found) for kid, found in keys_of(data, ("RS256", "PS256")).items()} == {
        "rsa": {"RS256"},
        "bare": {"RS256", "PS256"},
    }
    assert set(keys_of(data, ("ES256",))) == {"ec"}
    secret = json.dumps({"keys": [{**shown[0], "d": "AQAB"}]}).encode()
    with pytest.raises(ValueError, match="none that may be shown"):
        keys_of(secret, ("RS256",))
