"""The A2A card: what this server is, where it is, and what it can do; signed if there is a key.

`agent-card.json` is the card of a server that runs by the defaults. What is served is that file
with the real address filled in, and only if it tells the truth about this server.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import AgentCard
from a2a.utils.errors import InvalidParamsError
from a2a.utils.proto_utils import validate_proto_required_fields
from a2a.utils.signing import create_agent_card_signer
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from google.protobuf import json_format
from jwt import PyJWK
from jwt.algorithms import ECAlgorithm, OKPAlgorithm
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from recall_server import __version__, shipped
from recall_server.api.operations import tasks
from recall_server.api.operations.operation import Json
from recall_server.domain.errors import Invalid
from recall_server.integrations.keys import Jwk, thumbprint

# OpenSSL writes the curve in another block beside the key, and people add certificates.
_PRIVATE = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)


@dataclass(frozen=True)
class CardKey:
    """`public` is the JSON Web Key that verifies what the private key signs."""

    public: dict[str, str]
    private: PyJWK = field(repr=False)

    @property
    def kid(self) -> str:
        return self.public["kid"]

    def sign(self, card: AgentCard, jku: str) -> None:
        """Add a JWS over the card's canonical form (RFC 7515, RFC 8785; A2A 8.4)."""
        sign = create_agent_card_signer(
            self.private, {"alg": self.public["alg"], "kid": self.kid, "typ": "JOSE", "jku": jku}
        )
        sign(card)


def card_keys(path: Path) -> tuple[CardKey, ...]:
    """Return all keys of the file, in its order. Raises `Invalid` if one of them cannot be used."""
    try:
        blocks = [match[0] for match in _PRIVATE.finditer(path.read_bytes())]
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error.strerror})") from None
    if not blocks:
        raise _unusable(path, "holds no private key in PEM")
    keys = [_key(path, block) for block in blocks]
    # A key that occurs twice signs once.
    return tuple({key.kid: key for key in keys}.values())


def _key(path: Path, block: bytes) -> CardKey:
    try:
        key = load_pem_private_key(block, None)
    except TypeError:
        raise _unusable(path, "is encrypted, and no password can be asked for") from None
    except (ValueError, UnsupportedAlgorithm):
        raise _unusable(path, "holds a private key that cannot be read") from None
    if isinstance(key, Ed25519PrivateKey):
        alg = "EdDSA"
        private, public = (OKPAlgorithm.to_jwk(k, True) for k in (key, key.public_key()))
    elif isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
        alg = "ES256"
        private, public = (ECAlgorithm.to_jwk(k, True) for k in (key, key.public_key()))
    else:
        raise _unusable(path, "holds a key of another kind than Ed25519 or EC P-256")
    shown: dict[str, str] = {**public}
    return CardKey(
        {**shown, "kid": thumbprint(shown), "alg": alg, "use": "sig"}, PyJWK(private, alg)
    )


def _unusable(path: Path, why: str) -> Invalid:
    return Invalid(
        f"RECALL_CARD_KEY_FILE: {path} {why}. "
        "Make one with 'openssl genpkey -algorithm ed25519 -out card.pem'."
    )


CARD_PATH = "/.well-known/agent-card.json"
JWKS_PATH = "/.well-known/jwks.json"
JSONRPC_PATH = "/a2a"
REST_PATH = "/a2a/v1"
SKILL = tasks.SKILL
REVIEW_SKILL = tasks.REVIEW_SKILL
CONTRADICTIONS = "https://recall-server.dev/a2a/extensions/contradictions/v1"

MAX_AGE_S = 300
_CACHED = f"public, max-age={MAX_AGE_S}"

# The address in the file: that of `recall serve` without settings.
_DEFAULT_BASE = "http://127.0.0.1:8000"
# The preferred one comes first.
_INTERFACES = [
    (_DEFAULT_BASE + JSONRPC_PATH, "JSONRPC", "1.0"),
    (_DEFAULT_BASE + REST_PATH, "HTTP+JSON", "1.0"),
    (_DEFAULT_BASE + JSONRPC_PATH, "JSONRPC", "0.3"),
]


class Card:
    """The card of the server, at each address by which it is reached."""

    def __init__(
        self,
        *,
        public_url: str | None,
        key_file: Path | None,
        skills: Collection[str],
        extensions: Mapping[str, Json],
        also: Sequence[Jwk] = (),
    ) -> None:
        """Load the shipped card, and check it against this server: the ids of its skills, and its
        extensions with the parameters to publish; `also` are keys to publish that sign other
        things. Raises `Invalid` if the card is not valid or not true, or if the key cannot be used.
        """
        if key_file is not None and public_url is None:
            raise Invalid(
                "RECALL_CARD_KEY_FILE needs RECALL_PUBLIC_URL: a signature covers the address. Set "
                "it to the address at which others reach this server."
            )
        self._keys = card_keys(key_file) if key_file is not None else ()
        self._also = also
        self._public_url = public_url
        self._card = card = _parsed(shipped("agent-card.json"))
        _check(card, skills=skills, extensions=extensions)
        for extension in card.capabilities.extensions:
            if params := extensions[extension.uri]:
                json_format.ParseDict(params, extension.params)
        _check_covered(card)
        # Sign once, not on each request: a signature costs time, and signatures of ES256 never
        # repeat.
        self._public = self._signed(public_url) if public_url else None

    def routes(self) -> list[Route]:
        """Return the routes of the card and, if there is a key, of the keys. They need no token."""
        found = [Route(CARD_PATH, self._serve_card)]
        if self._keys or self._also:
            found.append(Route(JWKS_PATH, self._serve_keys))
        return found

    def base(self, scope: Scope) -> str:
        """Return the address to name in the answer to a request: the public one, or else that of
        the request, whose host was checked.
        """
        return self._public_url or f"{scope['scheme']}://{Headers(scope=scope)['host']}"

    def for_address(self, base: str) -> AgentCard:
        if self._public is not None and base == self._public_url:
            return self._public
        return self._addressed(base)

    def _addressed(self, base: str) -> AgentCard:
        card = AgentCard()
        card.CopyFrom(self._card)
        for interface in card.supported_interfaces:
            interface.url = base + interface.url.removeprefix(_DEFAULT_BASE)
        return card

    def _signed(self, base: str) -> AgentCard:
        card = self._addressed(base)
        for key in self._keys:
            key.sign(card, base + JWKS_PATH)
        return card

    async def _serve_card(self, request: Request) -> Response:
        """Serve the card with an ETag of our own. That of the SDK ignores the signatures, so a
        client would keep those of a key that is no longer published.
        """
        # Includes the fields that clients of 0.3 look for.
        shown = agent_card_to_dict(self.for_address(self.base(request.scope)))
        etag = self._etag(shown)
        headers = {"ETag": etag, "Cache-Control": _CACHED}
        if _names(request.headers.getlist("if-none-match"), etag):
            return Response(status_code=304, headers=headers)
        return JSONResponse(shown, headers=headers)

    def _etag(self, shown: Json) -> str:
        """Return a weak tag, which is the same on every replica, though each signs for itself."""
        signed_by = [key.kid for key in self._keys]
        content = {**shown, "signatures": signed_by}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return f'W/"{digest[:32]}"'

    async def _serve_keys(self, _: Request) -> Response:
        return JSONResponse(
            {"keys": [*(key.public for key in self._keys), *({**one} for one in self._also)]},
            headers={"Cache-Control": _CACHED},
            media_type="application/jwk-set+json",
        )


def _parsed(path: Path) -> AgentCard:
    card = AgentCard()
    try:
        # The parser refuses fields that the type does not have.
        json_format.ParseDict(json.loads(path.read_text("utf-8")), card)
        validate_proto_required_fields(card)
    except (ValueError, json_format.ParseError) as error:
        raise _untrue(str(error)) from None
    except InvalidParamsError as error:
        faults = (error.data or {}).get("errors", [])
        raise _untrue("; ".join(f"{one['field']}: {one['message']}" for one in faults)) from None
    return card


def _check(card: AgentCard, *, skills: Collection[str], extensions: Collection[str]) -> None:
    """Raise `Invalid` if the card differs from what this server is."""
    claims = {
        "version": (card.version, __version__),
        "supportedInterfaces": (
            [
                (one.url, one.protocol_binding, one.protocol_version)
                for one in card.supported_interfaces
            ],
            _INTERFACES,
        ),
        "skills": (sorted(one.id for one in card.skills), sorted(skills)),
        "extensions": (sorted(one.uri for one in card.capabilities.extensions), sorted(extensions)),
        # The authentication of every request (`api/callers.py`).
        "securitySchemes": (
            {
                name: scheme.http_auth_security_scheme.scheme.lower()
                for name, scheme in card.security_schemes.items()
            },
            {"bearer": "bearer"},
        ),
        "securityRequirements": (
            [set(one.schemes) for one in card.security_requirements],
            [{"bearer"}],
        ),
    }
    for name, (said, true) in claims.items():
        if said != true:
            raise _untrue(f"{name} says {said}, but it is {true}")


def _check_covered(card: AgentCard) -> None:
    """Raise `Invalid` on values that a signature would not cover, so that any proxy could add or
    remove them: A2A signs the card without empty values (specification 8.4.1).
    """
    for path, value in _leaves(json_format.MessageToDict(card), ""):
        if value is None or value in ("", {}, []):
            raise _untrue(f"{path.lstrip('.')} is empty, and no signature covers what is empty")


def _leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        return [leaf for name, one in value.items() for leaf in _leaves(one, f"{path}.{name}")]
    if isinstance(value, list) and value:
        return [leaf for i, one in enumerate(value) for leaf in _leaves(one, f"{path}[{i}]")]
    return [(path, value)]


def _untrue(what: str) -> Invalid:
    return Invalid(f"agent-card.json cannot be served: {what}.")


def _names(headers: list[str], etag: str) -> bool:
    """Return True if If-None-Match names this tag, by the weak comparison (RFC 9110, 8.8.3.2)."""
    named = [one.strip().removeprefix("W/") for header in headers for one in header.split(",")]
    return "*" in named or etag.removeprefix("W/") in named
