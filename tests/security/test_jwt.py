"""Which tokens of an identity provider are accepted, and which are refused."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.utils import base64url_encode
from structlog.testing import capture_logs

from recall_server.api.app import create_app
from recall_server.domain.context import Context
from recall_server.domain.ids import namespace
from recall_server.integrations import issuers
from recall_server.integrations.issuers import NotValid, read
from recall_server.server import bound, listening
from tests.support.application import Open
from tests.support.engines import on_sqlite
from tests.support.identity_provider import (
    PUBLIC_URL,
    Provider,
    compact,
    issuers_file,
    jwk,
    private,
    provider,
)
from tests.support.mcp_clients import request
from tests.support.models import Manner, Reply
from tests.support.receivers import Receiver
from tests.support.runtime import NOON, Clock
from tests.support.server import Running

ALICE = namespace("alice")
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
# A name of a key that would select a key of the attacker if the database looked it up.
ROOT_KEY = "k1' UNION SELECT public_key FROM server --"

Json = dict[str, Any]
Trusting = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
async def corp() -> AsyncIterator[Provider]:
    async with provider(NOON) as one:
        yield one


@pytest.fixture
def trusting(open_app: Open, tmp_path: Path) -> Trusting:
    """Return a function that opens a server with these entries in its issuers file."""

    @asynccontextmanager
    async def opened(*entries: Json) -> AsyncIterator[Running]:
        file = issuers_file(tmp_path, *entries)
        async with (
            open_app(port=0, issuers_file=file, public_url=PUBLIC_URL) as built,
            listening(create_app(built), built.settings, bound(built.settings)) as address,
        ):
            running = Running(built, address)
            for name in ("alice", "bob"):
                await running.token(name)
            yield running

    return opened


async def asks(running: Running, token: str) -> httpx2.Response:
    async with running.http(token) as http:
        return await http.get("/v1/whoami")


async def status(running: Running, token: str) -> int:
    return (await asks(running, token)).status_code


async def all_refused(running: Running, corp: Provider, forged: dict[str, str]) -> None:
    """Check that each token gets 401 with the same words, and that a good token is accepted before
    and after.
    """
    assert await status(running, corp.token()) == 200
    told = set()
    for name, token in forged.items():
        answer = await asks(running, token)
        assert answer.status_code == 401, name
        told.add(answer.text)
    assert len(told) == 1
    assert await status(running, corp.token()) == 200


async def test_a_token_of_the_issuer_opens_what_the_operator_said(
    corp: Provider, trusting: Trusting
) -> None:
    """The positive control of all other tests, over MCP and HTTP, on both engines."""
    headers, body = request(
        "tools/call", {"name": "store_memory", "arguments": {"text": "Ann: I ski."}}, modern=False
    )
    async with trusting(corp.entry()) as running:
        async with running.http(corp.token(scope="read write")) as http:
            whoami = (await http.get("/v1/whoami")).json()
            stored = await http.post("/mcp", headers=headers, json=body)
            forgets = await http.get("/v1/conflicts")
        async with running.http(corp.token(tenant="ACME-2")) as http:
            other = (await http.get("/v1/whoami")).json()
        lines = await running.application.services.audit.newest(ALICE, 10)

    accessor = whoami["accessor"]
    assert whoami["namespace"] == "alice"
    assert whoami["scopes"] == ["memory:read", "memory:write"]
    assert accessor.startswith("corp:")
    assert "ann" not in accessor
    assert stored.status_code == 200
    assert forgets.status_code == 403
    assert (other["namespace"], other["accessor"]) == ("bob", accessor)
    assert ("store_memory", accessor) in {(line.operation, line.accessor) for line in lines}
    assert corp.fetches == 1


@on_sqlite
async def test_no_signature_no_entry(corp: Provider, trusting: Trusting) -> None:
    async with trusting(corp.entry()) as running:
        forged = {
            alg: compact(corp.header(alg=alg), corp.claims(), None, "none")
            for alg in ("none", "None", "NONE", "nOnE", "RS256", "")
        }
        good = corp.token()
        forged["cut"] = good[: good.rindex(".") + 1]
        forged["of other words"] = ".".join(
            [good.split(".")[0], corp.token(sub="eve").split(".")[1], good.split(".")[2]]
        )
        forged["of another key"] = corp.token(key=private("eve"))
        await all_refused(running, corp, forged)


@on_sqlite
async def test_a_public_key_is_no_shared_secret(corp: Provider, trusting: Trusting) -> None:
    """The server refuses HS256 with a public key as its secret, and any family of algorithms but
    that of the operator.
    """
    public = corp.key.public_key()
    shapes = {
        "pem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "pkcs1": public.public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        "der": public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    }
    corp.show([jwk(corp.key, "k1"), jwk(private("ec", "ES256"), "k2", "ES256")])
    async with trusting(corp.entry()) as running:
        forged = {
            name: compact(corp.header(alg="HS256"), corp.claims(), secret, "HS256")
            for name, secret in shapes.items()
        }
        forged["another family"] = compact(
            corp.header(alg="ES256", kid="k2"), corp.claims(), private("ec", "ES256"), "ES256"
        )
        forged["another padding"] = compact(
            corp.header(alg="PS256"), corp.claims(), corp.key, "PS256"
        )
        await all_refused(running, corp, forged)


@on_sqlite
@pytest.mark.parametrize("alg", ["RS256", "PS256", "ES256", "EdDSA"])
async def test_each_algorithm_that_may_be_named_works(
    alg: str, corp: Provider, trusting: Trusting
) -> None:
    key = private("corp", alg)
    corp.show([jwk(key, "k1", alg)])

    async with trusting(corp.entry(algorithms=[alg])) as running:
        good = compact(corp.header(alg=alg), corp.claims(), key, alg)
        assert await status(running, good) == 200
        assert await status(running, corp.token(key=private("eve"))) == 401


@on_sqlite
async def test_a_key_name_is_a_name_and_nothing_else(corp: Provider, trusting: Trusting) -> None:
    async with trusting(corp.entry()) as running:
        kids: dict[str, Any] = {
            "path": "../../dev/null",
            "sql": ROOT_KEY,
            "long": "k" * 10_000,
            "number": 1,
            "list": ["k1"],
            "missing": None,
            "unknown": "k2",
            "empty": "",
            "case": "K1",
            "line": "k1\nroot logged in",
        }
        await all_refused(
            running, corp, {name: corp.token({"kid": kid}) for name, kid in kids.items()}
        )
        empty = compact(b'{"alg":"none","kid":"../../dev/null"}', corp.claims(), None, "none")
        assert await status(running, empty) == 401


@on_sqlite
async def test_strangers_do_not_make_the_server_fetch(
    corp: Provider, trusting: Trusting, clock: Clock
) -> None:
    """The server fetches once, however many tokens name unknown keys. A new key is accepted after
    the pause.
    """
    async with trusting(corp.entry()) as running:
        assert await status(running, corp.token()) == 200
        for _ in range(2):
            found = await asyncio.gather(
                *(status(running, corp.token({"kid": f"x{number}"})) for number in range(50))
            )
            assert set(found) == {401}
        assert corp.fetches == 1

        fresh = private("fresh")
        corp.show([jwk(corp.key, "k1"), jwk(fresh, "k2")])
        rotated = corp.token({"kid": "k2"}, key=fresh)
        assert await status(running, rotated) == 401
        clock.pass_(timedelta(seconds=31))
        found = await asyncio.gather(
            *(status(running, corp.token({"kid": f"x{number}"})) for number in range(50))
        )
        assert set(found) == {401}
        assert await status(running, rotated) == 200
        assert await status(running, corp.token()) == 200
    assert corp.fetches == 2


@on_sqlite
async def test_a_token_brings_no_key_along(corp: Provider, trusting: Trusting) -> None:
    """Nothing is fetched from an address in the token, and a token with `crit` is refused."""
    eve = private("eve")
    async with Receiver() as evil, trusting(corp.entry()) as running:
        evil.otherwise = Reply(json.dumps({"keys": [jwk(eve, "k1")]}).encode())
        headers: dict[str, Json] = {
            "jku": {"jku": evil.url},
            "x5u": {"x5u": evil.url},
            "jwk": {"jwk": jwk(eve, "k1")},
            "x5c": {"x5c": ["MIIB"]},
            "crit": {"crit": ["exp"]},
            "crit unknown": {"crit": ["x"], "x": 1},
            "b64": {"b64": False, "crit": ["b64"]},
            "zip": {"zip": "DEF"},
            "anything else": {"role": "admin"},
        }
        forged = {name: corp.token(one, key=eve) for name, one in headers.items()}
        forged |= {f"signed {name}": corp.token(one) for name, one in headers.items()}
        await all_refused(running, corp, forged)

    assert (evil.connections, corp.fetches) == (0, 1)


@on_sqlite
async def test_a_token_must_be_made_for_this_server_alone(
    corp: Provider, trusting: Trusting
) -> None:
    here = f"{PUBLIC_URL}/mcp"
    async with trusting(corp.entry()) as running:
        audiences: list[Any] = [
            None, "https://other.example.com/mcp", f"{here}/evil", f"{here}/", PUBLIC_URL,
            here.upper(), [here, "https://other.example.com"], [], [here, here], [[here]], "", 1,
            {"aud": here},
        ]  # fmt: skip
        issuers: list[Any] = [
            None, "https://evil.example.com", [corp.issuer], f"{corp.issuer}/", "", 7,
            corp.issuer.upper(), "recall",
        ]  # fmt: skip
        forged = {f"aud {one}": corp.token(aud=one) for one in audiences}
        forged |= {f"iss {one}": corp.token(iss=one) for one in issuers}
        forged |= {f"sub {one}": corp.token(sub=one) for one in (None, "", 7, ["ann"], "a\0b")}
        await all_refused(running, corp, forged)
        assert await status(running, corp.token(aud=[here])) == 200


@on_sqlite
async def test_two_issuers_with_a_key_of_one_name_do_not_cross(
    corp: Provider, trusting: Trusting
) -> None:
    async with (
        provider(NOON, "other") as other,
        trusting(corp.entry(), other.entry(namespaces={"acme": "bob"})) as running,
    ):
        forged = {
            "theirs as ours": corp.token(key=other.key),
            "ours as theirs": other.token(key=corp.key),
        }
        await all_refused(running, corp, forged)
        theirs = (await asks(running, other.token())).json()

    assert theirs["namespace"] == "bob"
    assert theirs["accessor"].startswith("other:")


@on_sqlite
async def test_times_are_whole_numbers_within_bounds(corp: Provider, trusting: Trusting) -> None:
    """The library accepts more than that."""
    ends = corp.now + 3_600
    async with trusting(corp.entry()) as running:
        values: dict[str, Any] = {
            "text": str(ends),
            "fraction": ends + 0.5,
            "whole fraction": float(ends),
            "10^30": 10**30,
            "true": True,
            "list": [ends],
            "negative": -1,
            "missing": None,
            "a day and a second": corp.now + 86_401,
            "not after it was issued": corp.now,
        }
        forged = {name: corp.token(exp=value) for name, value in values.items()}
        raw = json.dumps(corp.claims(exp=None))[:-1].encode()
        for text in (b"null", b"NaN", b"1e400", b"Infinity", b"-Infinity"):
            payload = raw + b', "exp": ' + text + b"}"
            forged[text.decode()] = compact(corp.header(), payload, corp.key, "RS256")
        for name in ("iat", "nbf"):
            for value in ("1", 1.5, True, [1], -1, 10**30):
                forged[f"{name} {value}"] = corp.token(**{name: value})
        forged["no iat"] = corp.token(iat=None)
        await all_refused(running, corp, forged)
        assert await status(running, corp.token(exp=corp.now + 86_400)) == 200


@on_sqlite
async def test_clocks_may_differ_by_thirty_seconds(corp: Provider, trusting: Trusting) -> None:
    now = corp.now
    async with trusting(corp.entry()) as running:
        for expected, claims in (
            (200, {"iat": now - 60, "exp": now - 29}),
            (401, {"iat": now - 60, "exp": now - 31}),
            (200, {"nbf": now + 29}),
            (401, {"nbf": now + 31}),
            (401, {"iat": now + 3_600, "exp": now + 7_200}),
            (200, {"iat": now + 29}),
        ):
            assert await status(running, corp.token(**claims)) == expected, claims


@on_sqlite
async def test_another_kind_of_token_of_the_issuer_is_none_of_these(
    corp: Provider, trusting: Trusting
) -> None:
    async with trusting(corp.entry()) as running:
        kinds = ("logout+jwt", "JWT", "dpop+jwt", "recall-child+jwt", "at+jwt ", "", None, 1)
        await all_refused(running, corp, {str(one): corp.token({"typ": one}) for one in kinds})
        assert await status(running, corp.token({"typ": "application/AT+JWT"})) == 200
    theirs = corp.entry(typ="JWT", required_claims={"typ": "Bearer"})
    async with trusting(theirs) as running:
        assert await status(running, corp.token({"typ": "JWT"}, typ="Bearer")) == 200
        assert await status(running, corp.token({"typ": "JWT"}, typ="ID")) == 401
        assert await status(running, corp.token({"typ": "JWT"})) == 401
        assert await status(running, corp.token(typ="Bearer")) == 401


@on_sqlite
async def test_a_token_has_one_reading(corp: Provider, trusting: Trusting) -> None:
    """Tokens with a repeated claim, another spelling or another shape are refused."""
    good = corp.token()
    head, body, proof = good.split(".")
    twice = json.dumps(corp.claims())[:-1] + ', "sub": "admin"}'
    typed = b'{"alg":"RS256","kid":"k1","kid":"k1","typ":"at+jwt"}'
    last = proof[-1]
    spelled = chr(ord(last) + 1) if last not in "Zz9" else chr(ord(last) - 1)
    forged = {
        "a claim twice": compact(corp.header(), twice.encode(), corp.key, "RS256"),
        "a header twice": compact(typed, corp.claims(), corp.key, "RS256"),
        "padding": good + "==",
        "padding within": f"{head}=.{body}.{proof}",
        "bits left over": good[:-1] + spelled,
        "other letters": good.replace("-", "+").replace("_", "/") + "+",
        "a line": f"{good[:40]} {good[40:]}",
        "four parts": f"{good}.{proof}",
        "two parts": f"{head}.{body}",
        "JSON": "{}",
        "payload a list": compact(corp.header(), [corp.claims()], corp.key, "RS256"),
        "payload a number": compact(corp.header(), b"7", corp.key, "RS256"),
        "header a list": compact(b"[]", corp.claims(), corp.key, "RS256"),
        "not UTF-8": compact(corp.header(), b'{"sub":"\xff"}', corp.key, "RS256"),
        "a byte order mark": compact(
            corp.header(), b"\xef\xbb\xbf" + json.dumps(corp.claims()).encode(), corp.key, "RS256"
        ),
        "deep payload": compact(corp.header(), b"[" * 2_000, corp.key, "RS256"),
        "deep claim": compact(
            corp.header(),
            json.dumps(corp.claims())[:-1].encode() + b',"x":' + b"[" * 600 + b"]" * 600 + b"}",
            corp.key,
            "RS256",
        ),
        "deep header": compact(b'{"alg":' + b"[" * 2_000, corp.claims(), corp.key, "RS256"),
        "long": corp.token(name="n" * 9_000),
    }  # fmt: skip
    async with trusting(corp.entry()) as running:
        await all_refused(running, corp, forged)


def test_a_token_of_any_size_is_refused_in_no_time() -> None:
    """No part of it is decoded."""
    big = base64url_encode(b"x" * 5_000_000).decode()
    deep = base64url_encode(b"[" * 100_000).decode()
    for token in (f"{big}.{big}.{big}", f"{deep}.{deep}.eA", "." * 5_000_000):
        begun = time.thread_time()
        with pytest.raises(NotValid):
            read(token)
        assert time.thread_time() - begun < 0.25


async def test_a_token_can_be_revoked_by_its_name(corp: Provider, trusting: Trusting) -> None:
    """An issuer, a user and a `jti` name it, however the token is spelled."""
    async with trusting(corp.entry()) as running:
        accessor = (await asks(running, corp.token())).json()["accessor"]
        services = running.application.services
        entry = services.audit.begin(ALICE, "revoke_child", "cli", None)
        assert await services.delegation.revoke(Context(entry), accessor, "token-1")

        assert await status(running, corp.token()) == 401
        assert await status(running, corp.token() + "==") == 401
        assert await status(running, corp.token(sub="bob@example.com")) == 200
        assert await status(running, corp.token(jti="token-2")) == 200
        assert await status(running, corp.token(jti=None)) == 200


HALF = json.dumps({"keys": [jwk(private("corp"), "k1")]}).encode()
OUTAGES = {
    "500": Reply(HALF, status=500),
    "redirect": Reply(HALF, status=302, headers={"Location": "/jwks"}),
    "html": Reply(b"<html>Please log in</html>"),
    "fifty megabytes": Reply(HALF[:-1] + b" " * 50_000_000 + b"}"),
    "nothing": Reply(b""),
    "no set": Reply(b'{"keys": {}}'),
    "an empty set": Reply(b'{"keys": []}'),
    "cut off": Reply(HALF, manner=Manner.CUT),
    "a shared secret": Reply(
        json.dumps({"keys": [jwk(private("corp"), "k1"), {"kty": "oct", "k": "x"}]}).encode()
    ),
    "a name twice": Reply(
        json.dumps({"keys": [jwk(private("corp"), "k1"), jwk(private("eve"), "k1")]}).encode()
    ),
    "a member twice": Reply(HALF[:-1] + b', "keys": []}'),
}


@on_sqlite
@pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES)
async def test_keys_are_used_until_they_are_too_old_and_then_nobody_is_let_in(
    outage: Reply, corp: Provider, trusting: Trusting, clock: Clock
) -> None:
    """Known keys work during an outage. After that the answer is 503, and no token is accepted."""
    async with trusting(corp.entry()) as running:
        good = corp.token(exp=corp.now + 80_000)
        forged = corp.token(exp=corp.now + 80_000, key=private("eve"))
        assert await status(running, good) == 200
        shown = corp.receiver.otherwise
        corp.answer(outage)
        clock.pass_(30 * MINUTE)
        assert await status(running, good) == 200
        assert await status(running, forged) == 401
        clock.pass_(31 * MINUTE)
        refused = await asks(running, good)
        assert (refused.status_code, refused.json()["code"]) == (503, "AUTH_UNAVAILABLE")
        assert refused.headers["Retry-After"] == "30"
        assert "WWW-Authenticate" not in refused.headers
        assert await status(running, forged) == 503
        assert corp.fetches == 3
        corp.answer(shown)
        assert await status(running, good) == 503  # No fetch is made within the pause.
        clock.pass_(31 * SECOND)
        assert await status(running, good) == 200


@on_sqlite
async def test_a_provider_that_is_down_from_the_start_lets_nobody_in(
    corp: Provider, trusting: Trusting, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider refuses connections, or never answers. The server's own tokens work."""
    monkeypatch.setattr(issuers, "FETCH_S", 3.0)
    good = corp.receiver.otherwise
    async with trusting(corp.entry(jwks_url="http://127.0.0.1:9/jwks")) as running:
        assert await status(running, corp.token()) == 503
        assert await status(running, await running.token()) == 200
    corp.answer(Reply(manner=Manner.HANG))
    async with trusting(corp.entry()) as running:
        slow = await asyncio.gather(*(status(running, corp.token()) for _ in range(10)))
        assert set(slow) == {503}
        # On a busy machine the one of all ten may end before the provider has heard of it.
        assert corp.fetches <= 1
        assert await status(running, await running.token()) == 200
        corp.answer(good)
        clock.pass_(31 * SECOND)
        assert await status(running, corp.token()) == 200


@on_sqlite
async def test_keys_are_not_fetched_from_inside_unless_the_operator_says_so(
    corp: Provider, trusting: Trusting
) -> None:
    """A public name may resolve to a private address."""
    hidden = corp.entry(jwks_url=f"https://{corp.receiver.authority}/jwks", allow_private=False)
    async with trusting(hidden) as running:
        assert await status(running, corp.token()) == 503
    assert corp.receiver.connections == 0
    async with trusting(corp.entry()) as running:
        assert await status(running, corp.token()) == 200


@on_sqlite
async def test_an_identity_opens_one_namespace_by_its_exact_name(
    corp: Provider, trusting: Trusting
) -> None:
    """The answer is 403, since the token is valid."""
    claims: list[Any] = [
        None, ["acme"], "*", "ACME", "acme ", "\u0430cme", "acme2", "a" * 900, "", 1, True,
        {"acme": 1}, "alice", "nowhere",
    ]  # fmt: skip
    async with trusting(corp.entry()) as running:
        for claim in claims:
            answer = await asks(running, corp.token(tenant=claim))
            assert (answer.status_code, answer.json()["code"]) == (
                403,
                "NAMESPACE_NOT_ALLOWED",
            ), claim
        assert await status(running, corp.token(namespace="bob", ns="bob")) == 200
        named = (await asks(running, corp.token(namespace="bob"))).json()
        assert named["namespace"] == "alice"


@on_sqlite
async def test_a_scope_counts_by_its_exact_name(corp: Provider, trusting: Trusting) -> None:
    nothing: list[Any] = [
        None, "", "ALL", "read\u0000", "read\twrite", "admin", "memory:read", "*",
        ["read write"], [["read"]], 7, {"read": True}, "read,write", "read\u00a0write",
    ]  # fmt: skip
    async with trusting(corp.entry()) as running:
        for scope in nothing:
            answer = await asks(running, corp.token(scope=scope))
            assert answer.status_code == 403, scope
            assert answer.json()["code"] == "INSUFFICIENT_SCOPE", scope
            assert 'error="insufficient_scope"' in answer.headers["WWW-Authenticate"]
        for scope in ("read", "read admin", ["read"], ["read", "admin", 7]):
            found = (await asks(running, corp.token(scope=scope))).json()
            assert found["scopes"] == ["memory:read"], scope


async def test_what_is_open_ends_with_the_key_that_opened_it(
    corp: Provider, trusting: Trusting, clock: Clock
) -> None:
    """An open stream checks its token every second in this way."""
    async with trusting(corp.entry()) as running:
        access = running.application.services.access
        good = await access.verify(corp.token())
        short = await access.verify(corp.token(exp=corp.now + 60))
        assert await access.still_valid(good)
        assert await access.still_valid(short)
        clock.pass_(2 * MINUTE)
        assert not await access.still_valid(short)
        assert await access.still_valid(good)
        corp.show([jwk(private("fresh"), "k2")])
        clock.pass_(9 * MINUTE)  # The keys are fetched again in the background.
        async with asyncio.timeout(5):
            while await access.still_valid(good):
                await running.application.check()
        assert await status(running, corp.token()) == 401
        assert await status(running, corp.token({"kid": "k2"}, key=private("fresh"))) == 200
    assert corp.fetches == 2


async def test_a_token_is_too_old_for_server_namespace_issuer_or_by_itself(
    corp: Provider, trusting: Trusting
) -> None:
    """The test tries all sixteen combinations."""
    strict = corp.entry(
        name="strict", issuer="https://strict.example.com", not_before="2026-03-01T12:00:01Z"
    )
    async with trusting(corp.entry(), strict) as running:
        access = running.application.services.access
        for server, tenant, issuer, token in product((False, True), repeat=4):
            for of, late in ((None, server), (ALICE, tenant)):
                at = NOON + SECOND if late else NOON
                await access.not_before(of, at, entry=None)
            claims: Json = {"nbf": corp.now + 60} if token else {}
            if issuer:
                claims["iss"] = strict["issuer"]
            expected = 401 if server or tenant or issuer or token else 200
            found = await status(running, corp.token(**claims))
            assert found == expected, (server, tenant, issuer, token)


@on_sqlite
async def test_nothing_that_a_caller_shows_is_passed_on(corp: Provider, trusting: Trusting) -> None:
    """The provider is asked for its keys, and gets nothing of the caller's token."""
    async with trusting(corp.entry()) as running:
        with capture_logs() as logs:
            tokens = [corp.token(), corp.token({"kid": "x"}), corp.token() + "=="]
            for token in tokens:
                await status(running, token)

    told = repr([(one.path, one.headers, one.body) for one in corp.receiver.requests])
    assert [one.method for one in corp.receiver.requests] == ["GET"]
    assert "authorization" not in told.lower()
    for token in tokens:
        for part in token.split("."):
            assert part not in told + repr(logs)
    assert "ann@example.com" not in told + repr(logs)


@on_sqlite
async def test_a_client_learns_where_to_get_a_token(corp: Provider, trusting: Trusting) -> None:
    """RFC 9728 defines the metadata, and RFC 6750 the challenges."""
    where = f'resource_metadata="{PUBLIC_URL}/.well-known/oauth-protected-resource/mcp"'
    headers, body = request(
        "tools/call", {"name": "store_memory", "arguments": {"text": "x"}}, modern=False
    )
    async with trusting(corp.entry()) as running:
        async with running.http() as http:
            found = [
                await http.get("/.well-known/oauth-protected-resource" + path)
                for path in ("/mcp", "")
            ]
            nothing = await http.post("/mcp", json={})
        wrong = await asks(running, corp.token(sub=None))
        async with running.http(corp.token(scope="read")) as http:
            small = await http.post("/mcp", headers=headers, json=body)

    for one in found:
        assert one.json() == {
            "resource": f"{PUBLIC_URL}/mcp",
            "authorization_servers": [corp.issuer],
            "scopes_supported": ["all", "read", "write"],
            "bearer_methods_supported": ["header"],
        }
    assert nothing.status_code == 401
    assert nothing.headers["WWW-Authenticate"] == (
        f'Bearer realm="recall", scope="all read write", {where}'
    )
    challenge = wrong.headers["WWW-Authenticate"]
    assert wrong.status_code == 401
    assert challenge.startswith('Bearer realm="recall", error="invalid_token", error_description=')
    assert challenge.endswith(where)
    assert small.status_code == 403
    assert small.headers["WWW-Authenticate"] == (
        f'Bearer realm="recall", error="insufficient_scope", scope="write", {where}'
    )


@on_sqlite
async def test_without_an_identity_provider_nobody_is_sent_to_one(running: Running) -> None:
    async with running.http() as http:
        for path in ("/mcp", ""):
            assert (
                await http.get("/.well-known/oauth-protected-resource" + path)
            ).status_code == 404
        nothing = await http.post("/mcp", json={})

    assert nothing.headers["WWW-Authenticate"] == 'Bearer realm="recall"'
