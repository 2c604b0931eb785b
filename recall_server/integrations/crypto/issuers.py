"""Trusted identity providers: a file of the operator, read and checked at the start.

An issuer authenticates its users; the file maps claim values to namespaces and scopes one by one.
Nothing is taken from a token unchecked.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from recall_server.domain.errors import Invalid
from recall_server.domain.namespace import Namespace, namespace
from recall_server.domain.permissions import Scope
from recall_server.domain.text.cleaning import validator_message
from recall_server.integrations.crypto.jwt import Expected
from recall_server.integrations.llm.strict_json import strict

Algorithm = Literal["EdDSA", "ES256", "PS256", "RS256"]
Text = Annotated[str, Field(min_length=1, max_length=1_024)]

OURS = "recall"
ACCESS_TOKEN = "at+jwt"  # noqa: S105  # RFC 9068
FILE_BYTES_MAX = 1_048_576


class Issuer(BaseModel):
    """One identity provider. `name` is the prefix of its users' accessors in the audit log and the
    logs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$")]
    issuer: Text
    jwks_url: Text | None = None
    jwks_file: Path | None = None
    allow_private: bool = False
    """Whether `jwks_url` may have a private address and use plain HTTP."""
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)]
    audience: Text | None = None
    """The audience of its tokens; by default this server's canonical MCP address."""
    typ: Text = ACCESS_TOKEN
    required_claims: dict[Text, Text] = Field(default_factory=dict)
    """Required claim values, which tell an access token from other tokens of the same issuer."""
    namespace_claim: Text
    namespaces: Annotated[dict[Text, str], Field(min_length=1)]
    """The namespace of each value of that claim; any other value opens none."""
    scope_claim: Text = "scope"
    scopes: Annotated[dict[Text, tuple[Scope, ...]], Field(min_length=1)]
    """Our scopes for each of its scopes; any other scope counts for none."""
    not_before: AwareDatetime | None = None
    """Tokens issued earlier are refused."""

    @field_validator("namespaces")
    @classmethod
    def _are_namespaces(cls, value: dict[str, str]) -> dict[str, str]:
        for one in value.values():
            try:
                namespace(one)
            except Invalid as error:
                raise ValueError(error.message) from None
        return value

    @field_validator("scopes")
    @classmethod
    def _are_single_scopes(cls, value: dict[str, Any]) -> dict[str, Any]:
        if any(
            not one.isascii() or not one.isprintable() or set(' "\\') & set(one) for one in value
        ):
            raise ValueError("a scope has no blanks, quotes or letters beyond ASCII (RFC 6749)")
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.jwks_url is None) == (self.jwks_file is None):
            raise ValueError("give jwks_url or jwks_file, one of them")
        if self.issuer == OURS:
            raise ValueError("issuer: 'recall' is this server")
        if self.typ.lower().removeprefix("application/") != ACCESS_TOKEN and (
            not self.required_claims
        ):
            raise ValueError(
                f"typ: other kinds than {ACCESS_TOKEN} need required_claims that tell an access "
                "token from an ID token"
            )
        return self

    def expected(self) -> Expected:
        return Expected(self.issuer, self.audience or "", self.typ, self.algorithms)

    def namespace_of(self, claims: Mapping[str, Any]) -> Namespace | None:
        """Return the namespace that these claims open, by exact match; None if there is none."""
        value = claims.get(self.namespace_claim)
        found = self.namespaces.get(value) if isinstance(value, str) else None
        return None if found is None else Namespace(found)

    def scopes_of(self, claims: Mapping[str, Any]) -> frozenset[Scope]:
        """Return our scopes for its own: blank-separated text (RFC 8693 4.2), or a list."""
        value = claims.get(self.scope_claim)
        names = value.split(" ") if isinstance(value, str) else value
        if not isinstance(names, list):
            return frozenset()
        granted = [self.scopes.get(one, ()) for one in names if isinstance(one, str)]
        return frozenset(scope for scopes in granted for scope in scopes)

    def too_old(self, issued_at: int) -> bool:
        return self.not_before is not None and issued_at < self.not_before.timestamp()

    def name_for(self, scope: Scope) -> str | None:
        """Return the issuer's scope that gives this scope of ours with the fewest others."""
        names = [one for one, ours in self.scopes.items() if scope in ours]
        return min(names, key=lambda one: (len(self.scopes[one]), one), default=None)


_FILE = TypeAdapter(list[Issuer])


def load(path: Path, canonical: str | None) -> tuple[Issuer, ...]:
    """Load the issuers of a file. `canonical` is the default audience. Raises `Invalid`, which
    names the fault and its place.
    """
    try:
        data = path.read_bytes()
        found = _FILE.validate_python(strict(data[:FILE_BYTES_MAX]))
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error.strerror})") from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise _unusable(path, f"{where}: {validator_message(fault['msg'])}") from None
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"is not JSON ({error})") from None
    for what in ("name", "issuer"):
        if len({getattr(one, what) for one in found}) != len(found):
            raise _unusable(path, f"has two issuers with the same {what}")
    if not found:
        raise _unusable(path, "names no issuer")
    for number, one in enumerate(found):
        if one.audience is None and canonical is None:
            raise _unusable(
                path,
                f"{number}.audience: missing, and there is no RECALL_PUBLIC_URL to take its place. "
                "A token without an audience of ours is anybody's",
            )
    return tuple(
        one if one.audience else one.model_copy(update={"audience": canonical}) for one in found
    )


def _unusable(path: Path, why: str) -> Invalid:
    return Invalid(f"RECALL_ISSUERS_FILE: {path}: {why}.")
