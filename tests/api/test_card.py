"""The SDK's own client finds, verifies and caches the served card, over real HTTP."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver
from a2a.types import AgentCard
from a2a.utils.signing import (
    InvalidSignaturesError,
    NoSignatureError,
    create_signature_verifier,
)
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as new_ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as new_rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from google.protobuf import json_format
from jwt import PyJWKSet
from jwt.utils import base64url_decode
from pydantic import ValidationError
from starlette.applications import Starlette

from recall_server import shipped
from recall_server.api.a2a import card as card_module
from recall_server.api.a2a.card import (
    CARD_PATH,
    CONTRADICTIONS,
    JSONRPC_PATH,
    JWKS_PATH,
    REST_PATH,
    REVIEW_SKILL,
    SKILL,
    Card,
    card_keys,
)
from recall_server.api.app import create_app
from recall_server.config import Settings
from recall_server.domain.errors import Invalid
from recall_server.server import bound, listening
from tests.support.application import Open, settings_for
from tests.support.engines import on_sqlite
from tests.support.server import Running

PUBLIC = "https://memory.example.com"
SCHEMA = {"type": "object", "required": ["resolutions"], "maxProperties": 1}

Json = dict[str, Any]


def pem(key: Any, encryption: KeySerializationEncryption | None = None) -> bytes:
    shown: bytes = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption()
    )
    return shown


def ed25519() -> bytes:
    return pem(Ed25519PrivateKey.generate())


def p256() -> bytes:
    return pem(new_ec(SECP256R1()))


def load(*, key_file: Path | None = None, **given: Any) -> Card:
    told = {
        "public_url": PUBLIC,
        "skills": [SKILL, REVIEW_SKILL],
        "extensions": {CONTRADICTIONS: {"response_schema": SCHEMA}},
    }
    return Card(key_file=key_file, **{**told, **given})


@dataclass(frozen=True)
class KeyFile:
    path: Path

    def write(self, *keys: bytes) -> Path:
        self.path.write_bytes(b"".join(keys))
        return self.path


@pytest.fixture
def key_file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "card.pem")


Serving = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def serving(open_app: Open, database: Path | str, key_file: KeyFile) -> Serving:
    """Return a function that runs a server with these keys and a public address."""

    @asynccontextmanager
    async def opened(*keys: bytes) -> AsyncIterator[Running]:
        signed_by = key_file.write(*keys)
        # The address must be known before the card is signed.
        listener = bound(settings_for(database, port=0))
        host, port = listener.getsockname()
        url = f"http://{host}:{port}"
        async with (
            open_app(port=port, public_url=url + "/", card_key_file=signed_by) as built,
            listening(create_app(built), built.settings, listener) as address,
        ):
            assert address == url
            yield Running(built, address)

    return opened


async def fetched(running: Running, check: Callable[[AgentCard], None] | None = None) -> AgentCard:
    async with httpx.AsyncClient(trust_env=False) as http:
        return await A2ACardResolver(http, running.address).get_agent_card(signature_verifier=check)


async def verifier(running: Running) -> Callable[[AgentCard], None]:
    """Return a check that trusts the server's published keys."""
    async with running.http() as http:
        answer = await http.get(JWKS_PATH)
    return verifier_of(answer.json(), running.address + JWKS_PATH)


def verifier_of(keys: Json, where: str) -> Callable[[AgentCard], None]:
    known = {one.key_id: one for one in PyJWKSet.from_dict(keys).keys}

    def key_of(kid: str | None, jku: str | None) -> Any:
        assert jku == where
        # A key of the wrong kind stands in for an unknown one, and verifies nothing.
        return known.get(kid) or PyJWKSet.from_dict(unknown).keys[0]

    return create_signature_verifier(key_of, ["EdDSA", "ES256"])


unknown: Json = {
    "keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]
}


def protected(card: AgentCard) -> list[Json]:
    return [json.loads(base64url_decode(one.protected.encode())) for one in card.signatures]


@on_sqlite
async def test_anybody_finds_the_card_under_the_address_that_they_called(running: Running) -> None:
    card = await fetched(running)

    base = running.address
    assert [(i.url, i.protocol_binding, i.protocol_version) for i in card.supported_interfaces] == [
        (base + JSONRPC_PATH, "JSONRPC", "1.0"),
        (base + REST_PATH, "HTTP+JSON", "1.0"),
        (base + JSONRPC_PATH, "JSONRPC", "0.3"),
    ]
    assert [skill.id for skill in card.skills] == [SKILL, REVIEW_SKILL]
    async with running.http() as http:
        named = f"localhost:{running.address.rpartition(':')[2]}"
        other = (await http.get(CARD_PATH, headers={"Host": named})).json()
        foreign = await http.get(CARD_PATH, headers={"Host": "evil.example"})
    assert other["supportedInterfaces"][0]["url"] == f"http://{named}/a2a"
    assert foreign.status_code == 421


@on_sqlite
async def test_the_scheme_of_the_card_is_the_one_that_the_guard_asks_for(running: Running) -> None:
    card = await fetched(running)

    [required] = card.security_requirements
    [name] = required.schemes
    scheme = card.security_schemes[name].http_auth_security_scheme.scheme
    async with running.http() as http:
        refused = await http.post(JSONRPC_PATH, json={})
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"].split()[0] == scheme


@on_sqlite
async def test_a_client_of_0_3_finds_the_fields_of_its_time(running: Running) -> None:
    async with running.http() as http:
        shown = (await http.get(CARD_PATH)).json()

    assert shown["url"] == running.address + JSONRPC_PATH
    assert (shown["protocolVersion"], shown["preferredTransport"]) == ("0.3", "JSONRPC")
    assert shown["security"] == [{"bearer": ["memory"]}]
    assert shown["securitySchemes"]["bearer"]["type"] == "http"
    assert shown["supportsAuthenticatedExtendedCard"] is True


@on_sqlite
async def test_a_client_that_has_the_card_is_not_sent_it_again(running: Running) -> None:
    async with running.http() as http:
        first = await http.get(CARD_PATH)
        tag = first.headers["ETag"]
        for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
            again = await http.get(CARD_PATH, headers={"If-None-Match": known})
            assert (again.status_code, again.content) == (304, b""), known
            assert again.headers["ETag"] == tag
            assert again.headers["Cache-Control"] == first.headers["Cache-Control"]
        changed = await http.get(CARD_PATH, headers={"If-None-Match": 'W/"other"'})

    assert first.headers["Cache-Control"] == "public, max-age=300"
    assert (changed.status_code, changed.content) == (200, first.content)


@on_sqlite
async def test_head_tells_what_get_would_send(running: Running) -> None:
    async with running.http() as http:
        got, head = await http.get(CARD_PATH), await http.head(CARD_PATH)

    assert (head.status_code, head.content) == (200, b"")
    for name in ("ETag", "Cache-Control", "Content-Type", "Content-Length"):
        assert head.headers[name] == got.headers[name]


@on_sqlite
async def test_without_a_key_the_card_has_no_signature(running: Running) -> None:
    card = await fetched(running)

    assert not card.signatures
    async with running.http() as http:
        # The key that signs receipts is published, and signs no card.
        assert (await http.get(JWKS_PATH)).json() == {
            "keys": [dict(running.application.key.public)]
        }
    with pytest.raises(NoSignatureError):
        await fetched(running, verifier_of(unknown, ""))


@on_sqlite
@pytest.mark.parametrize(("new", "alg"), [(ed25519, "EdDSA"), (p256, "ES256")])
async def test_a_signed_card_is_believed_and_a_tampered_one_is_not(
    serving: Serving, new: Callable[[], bytes], alg: str
) -> None:
    async with serving(new()) as running:
        check = await verifier(running)
        card = await fetched(running, check)

    [header] = protected(card)
    assert header["alg"] == alg
    assert header["typ"] == "JOSE"
    assert header["jku"] == running.address + JWKS_PATH
    check(card)
    for tamper in TAMPERED:
        changed = AgentCard()
        changed.CopyFrom(card)
        tamper(changed)
        with pytest.raises(InvalidSignaturesError):
            check(changed)


def _elsewhere(card: AgentCard) -> None:
    card.supported_interfaces[1].url = "https://evil.example/a2a/v1"


def _another_skill(card: AgentCard) -> None:
    card.skills.add(id="send_all_tokens", name="x", description="x", tags=["x"])


def _for_anybody(card: AgentCard) -> None:
    del card.security_requirements[:]


def _no_role(card: AgentCard) -> None:
    card.security_requirements[0].schemes["bearer"].list[:] = []


def _no_push(card: AgentCard) -> None:
    card.capabilities.push_notifications = False


TAMPERED = (_elsewhere, _another_skill, _for_anybody, _no_role, _no_push)


@on_sqlite
async def test_the_key_set_holds_what_verifies_and_nothing_that_signs(serving: Serving) -> None:
    async with serving(p256(), ed25519()) as running, running.http() as http:
        answer = await http.get(JWKS_PATH)
        head = await http.head(JWKS_PATH)

    assert answer.headers["Content-Type"] == "application/jwk-set+json"
    assert answer.headers["Cache-Control"] == "public, max-age=300"
    assert (head.status_code, head.content) == (200, b"")
    one, other, receipts = answer.json()["keys"]
    assert receipts == running.application.key.public
    assert set(one) == {"kty", "crv", "x", "y", "kid", "alg", "use"}
    assert set(other) == {"kty", "crv", "x", "kid", "alg", "use"}
    assert (one["alg"], other["alg"], other["use"]) == ("ES256", "EdDSA", "sig")


async def test_while_one_key_follows_another_both_are_believed(key_file: KeyFile) -> None:
    old, new = ed25519(), p256()
    shown = {}
    for name, signing in {"old": old, "both": old + new, "new": new}.items():
        shown[name] = await _shown(load(key_file=key_file.write(signing)))

    (before, old_keys, _), (between, both_keys, _), (after, new_keys, _) = shown.values()
    assert len(between.signatures) == 2
    for card, keys in (
        (before, old_keys), (before, both_keys), (between, old_keys), (between, both_keys),
        (between, new_keys), (after, both_keys), (after, new_keys),
    ):  # fmt: skip
        verifier_of(keys, PUBLIC + JWKS_PATH)(card)
    for card, keys in ((before, new_keys), (after, old_keys)):
        with pytest.raises(InvalidSignaturesError):
            verifier_of(keys, PUBLIC + JWKS_PATH)(card)
    # Otherwise a client would be told to keep a signature of a removed key.
    assert len({tag for _, _, tag in shown.values()}) == 3


async def test_replicas_with_one_key_serve_one_card(key_file: KeyFile) -> None:
    path = key_file.write(p256())

    one, other = [await _shown(load(key_file=path)) for _ in range(2)]

    assert one[0].signatures != other[0].signatures
    assert one[1:] == other[1:]


async def _shown(card: Card) -> tuple[AgentCard, Json, str]:
    """Return the card, its keys and its tag, as a proxy on another host serves them."""
    transport = httpx.ASGITransport(Starlette(routes=card.routes()))
    async with httpx.AsyncClient(transport=transport, base_url="http://behind:8000") as http:
        keys = (await http.get(JWKS_PATH)).json()
        tag = (await http.get(CARD_PATH)).headers["ETag"]
        return await A2ACardResolver(http, "http://behind:8000").get_agent_card(), keys, tag


async def test_the_public_address_goes_before_the_one_of_the_request(key_file: KeyFile) -> None:
    card, _, _ = await _shown(load(key_file=key_file.write(ed25519())))

    assert {one.url for one in card.supported_interfaces} == {f"{PUBLIC}/a2a", f"{PUBLIC}/a2a/v1"}
    [extension] = card.capabilities.extensions
    assert (extension.uri, extension.required) == (CONTRADICTIONS, False)
    assert json_format.MessageToDict(extension.params) == {"response_schema": SCHEMA}


def test_the_thumbprint_is_the_one_of_the_standard(key_file: KeyFile) -> None:
    """RFC 8037, A.1 to A.3, defines it."""
    seed = base64url_decode(b"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A")

    [key] = card_keys(key_file.write(pem(Ed25519PrivateKey.from_private_bytes(seed))))

    assert key.public["x"] == "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    assert key.kid == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    assert "nWGxne" not in repr(key)


def test_a_key_is_found_among_what_else_tools_write_and_signs_once(key_file: KeyFile) -> None:
    key = new_ec(SECP256R1())
    traditional = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    parameters = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    path = key_file.write(b"card key\n", parameters, traditional, public, pem(key))

    assert len(load(key_file=path).for_address(PUBLIC).signatures) == 1


def _wrong_keys() -> Iterator[tuple[str, bytes, str]]:
    yield "nothing", b"", "holds no private key in PEM"
    public = Ed25519PrivateKey.generate().public_key()
    shown = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    yield "public", shown, "holds no private key in PEM"
    yield "rsa", pem(new_rsa(65_537, 2_048)), "another kind than Ed25519 or EC P-256"
    yield "p384", pem(new_ec(SECP384R1())), "another kind than Ed25519 or EC P-256"
    locked = pem(Ed25519PrivateKey.generate(), BestAvailableEncryption(b"secret"))
    yield "encrypted", locked, "is encrypted"
    yield "damaged", ed25519().replace(b"M", b"", 1), "cannot be read"
    yield "one of two", ed25519() + pem(new_ec(SECP384R1())), "another kind"


@pytest.mark.parametrize(("name", "content", "said"), list(_wrong_keys()))
def test_a_key_that_cannot_sign_is_named_at_the_start(
    name: str, content: bytes, said: str, key_file: KeyFile
) -> None:
    path = key_file.write(content)

    with pytest.raises(Invalid) as refused:
        load(key_file=path)

    assert f"RECALL_CARD_KEY_FILE: {path} " in refused.value.message
    assert said in refused.value.message
    assert "\n" not in refused.value.message
    assert "BEGIN" not in refused.value.message


def test_a_key_file_that_is_not_there_is_named_at_the_start(tmp_path: Path) -> None:
    for path in (tmp_path / "none.pem", tmp_path):
        with pytest.raises(Invalid, match="cannot be read"):
            load(key_file=path)


@on_sqlite
async def test_a_signature_needs_an_address_to_cover(open_app: Open, key_file: KeyFile) -> None:
    async with open_app(card_key_file=key_file.write(ed25519())) as built:
        with pytest.raises(Invalid, match="RECALL_CARD_KEY_FILE needs RECALL_PUBLIC_URL"):
            create_app(built)


@pytest.mark.parametrize(
    "wrong",
    ["memory.example.com", "ftp://memory.example.com", "https://", "https://me:pw@example.com",
     "https://example.com/?a=1", "https://example.com/#a", "https://exa mple.com",
     "https://example.com\n"],
)  # fmt: skip
def test_a_public_address_is_an_address(wrong: str) -> None:
    with pytest.raises(ValidationError, match="an address such as"):
        Settings(public_url=wrong)


def test_a_setting_without_a_value_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECALL_PUBLIC_URL", "")
    monkeypatch.setenv("RECALL_CARD_KEY_FILE", "")

    settings = Settings()

    assert (settings.public_url, settings.card_key_file) == (None, None)


def _shipped() -> Json:
    card: Json = json.loads(shipped("agent-card.json").read_text("utf-8"))
    return card


def _lies() -> Iterator[tuple[str, Json]]:
    """Yield wrong parts of a card, each with the words that the error must contain."""
    yield "version says 9.9.9", {"version": "9.9.9"}
    yield "description: Field is required", {"description": ""}
    yield "skills[0].tags", {"skills": [{**_shipped()["skills"][0], "tags": []}]}
    yield "skills says ['other'", {"skills": [{**_shipped()["skills"][0], "id": "other"}]}
    yield "supportedInterfaces says", {"supportedInterfaces": _shipped()["supportedInterfaces"][:2]}
    yield "extensions says []", {"capabilities": {"streaming": True}}
    yield "securityRequirements says []", {"securityRequirements": []}
    key = {"apiKeySecurityScheme": {"name": "X-Key", "location": "header"}}
    yield "securitySchemes says", {"securitySchemes": {"bearer": key}}
    yield (
        "securityRequirements[0].schemes.bearer is empty",
        {"securityRequirements": [{"schemes": {"bearer": {"list": []}}}]},
    )
    yield 'no field named "url"', {"url": PUBLIC}


@pytest.mark.parametrize(("said", "part"), list(_lies()), ids=lambda value: str(value)[:40])
def test_a_card_that_is_not_true_or_not_valid_is_not_served(
    said: str, part: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / "agent-card.json"
    monkeypatch.setattr(card_module, "shipped", lambda _: changed)
    changed.write_text(json.dumps(_shipped()))
    load()

    changed.write_text(json.dumps({**_shipped(), **part}))
    with pytest.raises(Invalid) as refused:
        load()

    assert refused.value.message.startswith("agent-card.json cannot be served: ")
    assert said in refused.value.message


UNLIKE: tuple[Json, ...] = ({"skills": []}, {"skills": [SKILL]}, {"extensions": {}})
EMPTY: tuple[object, ...] = ({}, [], "", None)


def test_a_card_is_held_against_what_the_server_does() -> None:
    for unlike in UNLIKE:
        with pytest.raises(Invalid, match="but it is"):
            load(**unlike)
    for empty in EMPTY:
        with pytest.raises(Invalid, match=r"params\.schema\.x is empty"):
            load(extensions={CONTRADICTIONS: {"schema": {"x": empty, "y": 1}}})
