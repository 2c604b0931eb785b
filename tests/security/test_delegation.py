"""A child token has no more rights than its parent, and the parent can revoke it."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx2
import jwt
import pytest
from jwt.utils import base64url_decode

from recall_server.domain.context import Context
from recall_server.domain.ids import namespace
from recall_server.domain.memory import MemoryType
from recall_server.domain.permissions import AccessScope, Rights, Scope, TokenInfo
from recall_server.services.auth import TokenRequest
from recall_server.services.auth.signed_tokens import TYP
from recall_server.storage.driver import Connection, Statement
from tests.support.application import Open
from tests.support.engines import on_sqlite
from tests.support.identity_provider import compact, private
from tests.support.mcp_clients import request
from tests.support.runtime import NOON, Clock
from tests.support.server import Running

ALICE = namespace("alice")
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
READ, WRITE = Scope.READ, Scope.WRITE

Json = dict[str, Any]


def wanted(*scopes: Scope, **given: Any) -> TokenRequest:
    access_scope = AccessScope(
        **{
            key: given.pop(key)
            for key in ("topics", "types", "agent_id", "containers")
            if key in given
        }
    )
    return TokenRequest(Rights(frozenset(scopes), access_scope), **given)


async def asks(running: Running, token: str) -> httpx2.Response:
    async with running.http(token) as http:
        return await http.get("/v1/whoami")


async def status(running: Running, token: str) -> int:
    return (await asks(running, token)).status_code


async def child(running: Running, parent: str, **asked: Any) -> Json:
    """Return the answer to issuing a child."""
    async with running.http(parent) as http:
        answer = await http.post("/v1/tokens/children", json=asked)
    assert answer.status_code == 201, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    found: Json = answer.json()
    return found


async def refused(running: Running, parent: str, **asked: Any) -> str:
    async with running.http(parent) as http:
        answer = await http.post("/v1/tokens/children", json=asked)
    return f"{answer.status_code} {answer.json()['code']}"


async def calls(running: Running, token: str, tool: str, **given: Any) -> Json:
    headers, body = request("tools/call", {"name": tool, "arguments": given}, modern=False)
    async with running.http(token) as http:
        answer = await http.post("/mcp", headers=headers, json=body)
    found: Json = answer.json()
    told: Json = found["result"]["structuredContent"] if "result" in found else found["error"]
    return told


async def revoked(running: Running, info: TokenInfo, **given: Any) -> list[str]:
    services = running.application.services
    entry = services.audit.begin(info.namespace, "revoke_token", "cli", None)
    return await services.access.revoke(Context(entry), info, force=True, **given)


async def test_a_child_may_do_what_it_was_given_and_the_audit_log_names_it(
    running: Running,
) -> None:
    parent, info = await running.issued("alice", wanted(READ, WRITE, Scope.FORGET))
    made = await child(running, parent, scopes=["memory:write"], topics=["sport"], agent_id="scout")
    stored = await calls(running, made["token"], "store_memory", text="Ann: I ski.", topic="sport")
    elsewhere = await calls(running, made["token"], "store_memory", text="Ann: hi", topic="home")
    reads = await calls(running, made["token"], "search_memories", query="ski")
    whoami = (await asks(running, made["token"])).json()
    lines = await running.application.services.audit.newest(ALICE, 20)

    assert stored["status"] == "ok"
    assert elsewhere["code"] == "OUT_OF_REACH"
    assert "INSUFFICIENT_SCOPE" in json.dumps(reads)
    assert made["accessor"].startswith(f"{info.accessor}/child_")
    assert whoami == {
        "namespace": "alice",
        "accessor": made["accessor"],
        "scopes": ["memory:write"],
        "topics": ["sport"],
        "types": None,
        "agent_id": "scout",
        "containers": None,
        "expires_at": made["expires_at"],
    }
    told = {(line.operation, line.accessor): list(line.ids) for line in lines}
    assert told["delegate_token", info.accessor] == [made["accessor"]]
    assert ("store_memory", made["accessor"]) in told


async def test_a_child_is_never_wider_than_its_parent(running: Running) -> None:
    """It gets no wider scopes, topics, types, agent, containers or lifetime."""
    parent = await running.token(
        "alice",
        wanted(
            READ,
            WRITE,
            topics=frozenset({"sport", "home"}),
            types=frozenset({MemoryType.FACT}),
            agent_id="scout",
            containers=frozenset({"red", "blue"}),
            expires_in=HOUR,
        ),
    )
    wider: list[Json] = [
        {"scopes": ["memory:forget"]},
        {"scopes": ["memory:read", "consolidate"]},
        {"scopes": ["admin"]},
        {"scopes": ["tokens:manage"]},
        {"topics": ["work"]},
        {"topics": ["sport", "work"]},
        {"types": ["fact", "decision"]},
        {"agent_id": "other"},
        {"containers": ["red", "green"]},
        {"containers": [""]},
        {"expires_in_s": 3_601},
    ]
    for asked in wider:
        assert await refused(running, parent, **asked) == "403 WOULD_WIDEN", asked
    for asked in ({"scopes": ["root"]}, {"expires_in_s": -1}, {"namespace": "bob"}, {"uses": 2}):
        assert await refused(running, parent, **asked) == "400 INVALID_ARGUMENT", asked
    whole = await child(running, parent)
    part = await child(running, parent, scopes=["memory:read"], topics=["home"], expires_in_s=60)

    assert whole["scopes"] == ["memory:read", "memory:write"]
    assert (whole["topics"], whole["types"], whole["agent_id"]) == (
        ["home", "sport"],
        ["fact"],
        "scout",
    )
    assert whole["expires_at"] == "2026-03-01T13:00:00Z"
    assert (part["scopes"], part["topics"]) == (["memory:read"], ["home"])
    assert part["expires_at"] == "2026-03-01T12:01:00Z"


async def test_a_child_has_no_children_and_looks_after_no_tokens(running: Running) -> None:
    admin = await running.token("alice", wanted(Scope.ADMIN))
    assert await refused(running, admin, scopes=["admin"]) == "403 WOULD_WIDEN"
    made = await child(running, admin, scopes=["memory:read", "audit:read"])
    assert await status(running, made["token"]) == 200
    assert await refused(running, made["token"]) == "403 WOULD_WIDEN"
    async with running.http(made["token"]) as http:
        answers = [
            await http.get("/v1/tokens"),
            await http.post("/v1/tokens", json={}),
            await http.delete(f"/v1/tokens/{made['parent']}"),
            await http.delete(f"/v1/tokens/{made['parent']}/children/x"),
            await http.delete("/v1/tokens/children/x"),
        ]
    assert [one.status_code for one in answers] == [403, 403, 403, 403, 404]


async def test_a_counted_token_has_no_children(running: Running) -> None:
    counted = await running.token("alice", wanted(READ, uses=5))
    assert await refused(running, counted) == "403 WOULD_WIDEN"


async def test_a_child_lasts_an_hour_a_day_at_most_and_never_longer_than_its_parent(
    running: Running, clock: Clock
) -> None:
    forever = await running.token("alice")
    brief = await running.token("alice", wanted(READ, expires_in=10 * MINUTE))
    assert await refused(running, forever, expires_in_s=86_401) == "400 INVALID_ARGUMENT"
    usual, long = await child(running, forever), await child(running, forever, expires_in_s=86_400)
    cut = await child(running, brief)
    assert cut["expires_at"] == "2026-03-01T12:10:00Z"

    clock.pass_(10 * MINUTE)
    assert await status(running, cut["token"]) == 401  # Its parent has ended, so it ends at once.
    clock.pass_(50 * MINUTE + 29 * SECOND)
    assert await status(running, usual["token"]) == 200  # Clocks may differ.
    clock.pass_(SECOND)
    assert await status(running, usual["token"]) == 401
    assert await status(running, long["token"]) == 200


async def test_a_parent_takes_its_children_with_it(running: Running, clock: Clock) -> None:
    parent, info = await running.issued("alice")
    other = await child(running, await running.token("alice"))
    made = await child(running, parent)
    assert await status(running, made["token"]) == 200

    clock.pass_(SECOND)
    await revoked(running, info, children_only=True)
    assert await status(running, made["token"]) == 401
    assert await status(running, parent) == 200
    clock.pass_(SECOND)
    again = await child(running, parent)
    assert await status(running, again["token"]) == 200

    await revoked(running, info)
    assert await status(running, again["token"]) == 401
    assert await status(running, other["token"]) == 200


async def test_a_child_ends_with_the_overlap_of_its_parent(running: Running, clock: Clock) -> None:
    """A rotated parent is not revoked, and its children end all the same."""
    parent, info = await running.issued("alice")
    made = await child(running, parent, expires_in_s=3_600)
    services = running.application.services
    entry = services.audit.begin(info.namespace, "rotate_token", "cli", None)
    await services.access.rotate(Context(entry), info, MINUTE)
    clock.pass_(MINUTE - SECOND)
    assert await status(running, made["token"]) == 200

    clock.pass_(SECOND)
    assert await status(running, made["token"]) == 401
    assert await status(running, parent) == 401


async def test_a_grandparent_takes_them_too(running: Running) -> None:
    """Tokens at all levels of the tree end."""
    top, info = await running.issued("alice", wanted(Scope.TOKENS, READ))
    async with running.http(top) as http:
        issued = (await http.post("/v1/tokens", json={"scopes": ["memory:read"]})).json()
    made = await child(running, issued["token"])
    assert await status(running, made["token"]) == 200
    await revoked(running, info)
    assert await status(running, made["token"]) == 401


async def test_one_child_is_taken_back_by_its_name(running: Running) -> None:
    """Its parent can revoke it, or a token that manages tokens; nobody else can."""
    parent = await running.token("alice", wanted(READ))
    manager = await running.token("alice", wanted(Scope.TOKENS))
    stranger = await running.token("bob", wanted(Scope.TOKENS, READ))
    sibling = await running.token("alice", wanted(READ))
    one, two, three = [await child(running, parent) for _ in range(3)]
    jti = [each["accessor"].partition("/")[2] for each in (one, two, three)]

    async def ends(token: str, path: str) -> tuple[int, Any]:
        async with running.http(token) as http:
            answer = await http.delete(f"/v1/tokens/{path}")
        return answer.status_code, answer.json().get("revoked")

    by_name = f"{one['parent']}/children/{jti[2]}"
    assert (await ends(sibling, f"children/{jti[2]}"))[0] == 200  # It has no child of that name.
    assert (await ends(stranger, by_name))[0] == 200  # Neither has Bob's namespace.
    assert (await ends(sibling, by_name))[0] == 403
    assert await ends(parent, f"children/{jti[0]}") == (200, [one["accessor"]])
    assert await ends(parent, f"children/{jti[0]}") == (200, [])
    assert await ends(manager, f"{two['parent']}/children/{jti[1]}") == (200, [two["accessor"]])

    found = [await status(running, each["token"]) for each in (one, two, three)]
    assert found == [401, 401, 200]
    assert await status(running, one["token"] + "==") == 401


async def test_what_was_revoked_is_forgotten_once_it_has_ended(
    running: Running, clock: Clock
) -> None:
    parent = await running.token("alice")
    store = running.application.store

    async def end_one() -> int:
        async with running.http(parent) as http:
            jti = (await child(running, parent))["accessor"].partition("/")[2]
            await http.delete(f"/v1/tokens/children/{jti}")
        async with store.transaction(ALICE, write=False) as tx:
            rows = await tx.bound.connection.fetch("SELECT jti FROM revoked_children", {})
        return len(rows)

    assert [await end_one(), await end_one()] == [1, 2]
    clock.pass_(25 * HOUR)
    assert await end_one() == 1


async def test_what_is_older_than_the_operator_lets_in_is_out(
    running: Running, clock: Clock
) -> None:
    """The server and each namespace can have a not-before line."""
    for of in (None, ALICE):
        made = await child(running, await running.token("alice"))
        assert await status(running, made["token"]) == 200
        clock.pass_(MINUTE)
        await running.application.services.access.not_before(of, None, entry=None)
        assert await status(running, made["token"]) == 401
        clock.pass_(SECOND)


async def test_what_is_open_ends_with_the_child(running: Running, clock: Clock) -> None:
    """An open stream checks its token every second in this way."""
    access = running.application.services.access
    parent, info = await running.issued("alice")
    tokens = [(await child(running, parent, expires_in_s=s))["token"] for s in (60, 3_600, 3_600)]
    short, named, long = [await access.verify(token) for token in tokens]
    own = await access.verify(parent)
    assert all([await access.still_valid(one) for one in (short, named, long, own)])

    clock.pass_(2 * MINUTE)
    jti = named.accessor.partition("/")[2]
    async with running.http(parent) as http:
        await http.delete(f"/v1/tokens/children/{jti}")
    assert [await access.still_valid(one) for one in (short, named, long, own)] == [
        False, False, True, True,
    ]  # fmt: skip
    await revoked(running, info)
    assert [await access.still_valid(one) for one in (long, own)] == [False, False]


async def test_a_child_is_verified_by_one_reading_and_no_writing(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await child(running, await running.token("alice"))
    asked: list[str] = []
    open_ = running.application.store.driver.transaction

    @asynccontextmanager
    async def counted(**given: Any) -> AsyncIterator[Connection]:
        asked.append("write" if given["write"] else "read")
        async with open_(**given) as connection:
            fetch = connection.fetch

            async def noted(sql: str, params: Any) -> Any:
                if sql != "COMMIT":
                    asked.append(sql)
                return await fetch(sql, params)

            monkeypatch.setattr(connection, "fetch", noted)
            yield connection

    alone = running.application.store.driver.autocommit

    async def counted_alone(statements: Sequence[Statement], *, namespace: str | None) -> Any:
        asked.extend(("read", *(sql for sql, _ in statements)))
        return await alone(statements, namespace=namespace)

    monkeypatch.setattr(running.application.store.driver, "transaction", counted)
    monkeypatch.setattr(running.application.store.driver, "autocommit", counted_alone)
    await running.application.services.access.verify(made["token"])
    kinds = [one if one in ("write", "read") else "statement" for one in asked]

    assert kinds == ["read", "statement"]


async def test_what_this_server_did_not_sign_as_a_child_is_none(
    running: Running, open_app: Open
) -> None:
    """The server checks its own tokens as strictly."""
    key = running.application.key
    parent, info = await running.issued("alice", wanted(READ))
    made = (await child(running, parent, scopes=["memory:read"]))["token"]
    head, body, proof = made.split(".")
    claims = json.loads(base64url_decode(body))
    header = {"alg": "EdDSA", "kid": key.kid, "typ": TYP}
    eve = private("eve", "EdDSA")
    good = key.sign({**claims, "jti": "another"}, TYP)
    _, bob = await running.issued("bob", wanted(READ))
    bare = {name: value for name, value in claims.items() if name != "jti"}

    forged = {
        "no signature": f"{head}.{body}.",
        "none": compact({**header, "alg": "none"}, claims, None, "none"),
        "another key": compact(header, claims, eve, "EdDSA"),
        "its own key": jwt.encode(claims, eve, "EdDSA", {**header, "jwk": dict(key.public)}),
        "public key as secret": compact(
            {**header, "alg": "HS256"}, claims, key.public["x"].encode(), "HS256"
        ),
        "another kid": compact({**header, "kid": "k1"}, claims, key.private, "EdDSA"),
        "a receipt": key.sign(claims, "recall-receipt+jwt"),
        "an access token": key.sign(claims, "at+jwt"),
        "for others": key.sign({**claims, "aud": "https://other.example.com/mcp"}, TYP),
        "of others": key.sign({**claims, "iss": "https://other.example.com"}, TYP),
        "another namespace": key.sign({**claims, "namespace": "bob"}, TYP),
        "another's parent": key.sign({**claims, "sub": bob.accessor}, TYP),
        "no parent": key.sign({**claims, "sub": "acc_x"}, TYP),
        "its own parent": key.sign({**claims, "sub": f"{info.accessor}/{claims['jti']}"}, TYP),
        "wider": key.sign({**claims, "scopes": ["memory:read", "memory:write"]}, TYP),
        "admin": key.sign({**claims, "scopes": ["admin"]}, TYP),
        "no such scope": key.sign({**claims, "scopes": ["root"]}, TYP),
        "scopes as text": key.sign({**claims, "scopes": "memory:read"}, TYP),
        "no scopes": key.sign({k: v for k, v in claims.items() if k != "scopes"}, TYP),
        "two days": key.sign({**claims, "exp": claims["iat"] + 2 * 86_400}, TYP),
        "no name": key.sign(bare, TYP),
        "a namespace that is none": key.sign({**claims, "namespace": "a\x00b"}, TYP),
        "padded": made + "==",
        "the parent as JWT": f"{parent}.{parent}.{parent}",
    }
    told = set()
    for name, token in forged.items():
        answer = await asks(running, token)
        assert answer.status_code == 401, name
        told.add(answer.text)
    assert len(told) == 1
    assert [await status(running, one) for one in (made, good)] == [200, 200]
    assert NOON.timestamp() == claims["iat"]
    assert len(proof) == 86


@on_sqlite
async def test_a_token_of_many_topics_is_not_made_too_long_to_show(running: Running) -> None:
    parent = await running.token("alice")
    few = await child(running, parent, topics=["t" * 100 + str(i) for i in range(10, 50)])
    assert await status(running, few["token"]) == 200
    many = ["t" * 120 + str(i) for i in range(10, 100)]
    assert await refused(running, parent, topics=many) == "400 INVALID_ARGUMENT"
