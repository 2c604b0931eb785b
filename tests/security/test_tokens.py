"""Tokens, from their creation to their end."""

import asyncio
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from recall_server.domain.context import Context
from recall_server.domain.errors import LastAdmin
from recall_server.domain.ids import Namespace, namespace
from recall_server.domain.permissions import AccessScope, Rights, Scope, TokenInfo
from recall_server.services.auth import TokenRequest, new_token
from tests.support.engines import on_sqlite
from tests.support.runtime import NOON, Clock
from tests.support.server import Running, unnamed

ALICE = namespace("alice")
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)

Json = dict[str, Any]


def wanted(*scopes: Scope, access_scope: AccessScope | None = None, **given: Any) -> TokenRequest:
    return TokenRequest(Rights(frozenset(scopes), access_scope or AccessScope()), **given)


MANAGER = wanted(Scope.TOKENS, Scope.READ, Scope.WRITE)


async def _asks(running: Running, token: str) -> httpx2.Response:
    async with running.http(token) as http:
        return await http.get("/v1/whoami")


async def _status(running: Running, token: str) -> int:
    return (await _asks(running, token)).status_code


async def _done(running: Running, token: str, method: str, path: str, body: Any = None) -> Json:
    async with running.http(token) as http:
        answer = await http.request(method, f"/v1/tokens{path}", json=body)
    assert answer.is_success, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    found: Json = answer.json()
    return found


async def _refused(running: Running, token: str, method: str, path: str, body: Any = None) -> str:
    async with running.http(token) as http:
        answer = await http.request(method, f"/v1/tokens{path}", json=body)
    assert answer.is_client_error, answer.text
    return f"{answer.status_code} {answer.json()['code']}"


async def _not_before(running: Running, of: Namespace | None, at: datetime) -> None:
    await running.application.services.access.not_before(of, at, entry=None)


async def _lines(running: Running, operation: str) -> list[Json]:
    lines = await running.application.services.audit.newest(ALICE, 1_000)
    return [line.counts for line in lines if line.operation == operation]


async def test_whatever_the_reason_a_refusal_reads_the_same(running: Running, clock: Clock) -> None:
    """The caller learns nothing. The log and the audit log have the reason."""
    revoked, info = await running.issued("alice")
    expired = await running.token("alice", TokenRequest(expires_in=SECOND))
    used_up = await running.token("alice", TokenRequest(uses=1))
    assert await _status(running, used_up) == 200
    await running.revoke(info)
    clock.pass_(HOUR)
    good = await running.token("alice")
    with capture_logs() as logs:
        answers = [
            await _asks(running, token)
            for token in (revoked, expired, used_up, new_token(), "hvs_x", "x", "rcl_" + "0" * 38)
        ]

    assert {answer.status_code for answer in answers} == {401}
    assert len({(answer.text, answer.headers["WWW-Authenticate"]) for answer in answers}) == 1
    assert 'error="invalid_token"' in answers[0].headers["WWW-Authenticate"]
    reasons = [line["reason"] for line in logs if line["event"] == "token_refused"]
    assert reasons == ["revoked", "expired", "used_up", "unknown", *["malformed"] * 3]
    told = [reason for line in await _lines(running, "authenticate") for reason in line]
    assert sorted(told) == ["expired", "revoked", "used_up"]
    assert await _status(running, good) == 200


async def test_a_token_ends_at_its_end_and_a_clock_set_back_does_not_revive_it(
    running: Running, clock: Clock
) -> None:
    token = await running.token("alice", TokenRequest(expires_in=HOUR))
    unseen = await running.token("alice", TokenRequest(expires_in=HOUR))
    clock.pass_(HOUR - SECOND)
    assert await _status(running, token) == 200
    clock.pass_(SECOND)
    assert await _status(running, token) == 401
    clock.pass_(-HOUR)

    assert await _status(running, token) == 401
    assert await _status(running, unseen) == 200  # The control: only the clock ends this one.


async def test_a_counted_token_is_used_so_often_and_no_more_however_many_ask_at_once(
    running: Running,
) -> None:
    token = await running.token("alice", TokenRequest(uses=5))

    async with running.http(token) as http:
        answers = await asyncio.gather(*(http.get("/v1/whoami") for _ in range(20)))

    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [401] * 15


async def test_who_shows_a_dead_token_again_and_again_does_not_fill_the_audit_log(
    running: Running, clock: Clock
) -> None:
    token, info = await running.issued("alice")
    await running.revoke(info)

    for _ in range(20):
        assert await _status(running, token) == 401
    assert len(await _lines(running, "authenticate")) == 1
    clock.pass_(2 * timedelta(minutes=1))
    assert await _status(running, token) == 401
    assert len(await _lines(running, "authenticate")) == 2


@pytest.mark.parametrize("of", ["namespace", "server"])
async def test_no_token_made_before_the_line_is_let_in(
    running: Running, clock: Clock, of: str
) -> None:
    """Opaque tokens have two not-before lines."""
    old, bobs = await running.token("alice"), await running.token("bob")
    clock.pass_(HOUR)
    await _not_before(running, ALICE if of == "namespace" else None, clock())
    new = await running.token("alice")

    assert await _status(running, old) == 401
    assert await _status(running, bobs) == (200 if of == "namespace" else 401)
    assert await _status(running, new) == 200


async def test_of_both_lines_the_later_holds(running: Running, clock: Clock) -> None:
    made = [NOON, NOON + HOUR, NOON + 2 * HOUR]
    tokens = []
    for _ in made:
        tokens.append(await running.token("alice"))
        clock.pass_(HOUR)
    for server, own in product(made, made):
        await _not_before(running, None, server)
        await _not_before(running, ALICE, own)
        statuses = [await _status(running, token) for token in tokens]
        assert statuses == [200 if at >= max(server, own) else 401 for at in made]


async def test_revoking_a_token_revokes_all_that_came_of_it(running: Running) -> None:
    token, info = await running.issued("alice", MANAGER)
    stranger = await running.token("alice", MANAGER)
    child = await _done(running, token, "POST", "", {"scopes": ["tokens:manage", "memory:read"]})
    grandchild = await _done(running, child["token"], "POST", "", {"scopes": ["memory:read"]})
    family = [token, child["token"], grandchild["token"]]
    assert [await _status(running, one) for one in (*family, stranger)] == [200] * 4
    entry = running.application.services.audit.begin(ALICE, "revoke_token", "cli", None)
    await running.application.services.access.revoke(Context(entry), info, children_only=True)
    assert [await _status(running, one) for one in family] == [200, 401, 401]
    await running.revoke(info)

    assert [await _status(running, one) for one in (*family, stranger)] == [401, 401, 401, 200]


async def test_the_last_admin_goes_by_force_only(running: Running) -> None:
    services = running.application.services
    _, first = await running.issued("alice", wanted(Scope.ADMIN))
    token, last = await running.issued("alice", wanted(Scope.ADMIN))

    async def revoke(info: TokenInfo, *, force: bool = False) -> list[str]:
        entry = services.audit.begin(ALICE, "revoke_token", "cli", None)
        return await services.access.revoke(Context(entry), info, force=force)

    assert await revoke(first) == [first.accessor]
    with pytest.raises(LastAdmin):
        await revoke(last)
    assert await _refused(running, token, "DELETE", f"/{last.accessor}") == "400 LAST_ADMIN"
    assert await _status(running, token) == 200
    assert await revoke(last, force=True) == [last.accessor]
    assert await _status(running, token) == 401


WIDER: list[Json] = [
    {"scopes": ["memory:erase"]},
    {"scopes": ["admin"]},
    {"scopes": ["memory:read", "consolidate"]},
    {"topics": ["home"]},
    {"topics": ["work", "home"]},
    {"types": ["fact"], "topics": ["home"]},
    {"agent_id": "painter"},
    {"expires_in_s": 3_601},
]


async def test_a_token_never_widens_itself(running: Running, clock: Clock) -> None:
    access_scope = AccessScope(frozenset({"work"}), agent_id="planner")
    narrow = wanted(Scope.TOKENS, Scope.READ, access_scope=access_scope, expires_in=HOUR)
    token, info = await running.issued("alice", narrow)
    _, admin = await running.issued("alice", wanted(Scope.ADMIN))
    counted = await running.token("alice", wanted(Scope.TOKENS, uses=5))

    for body in WIDER:
        assert await _refused(running, token, "POST", "", body) == "403 WOULD_WIDEN", body
    path = f"/{admin.accessor}/rotate"
    assert await _refused(running, token, "POST", path) == "404 TOKEN_NOT_FOUND"
    whole = await running.token("alice", wanted(Scope.TOKENS, Scope.READ))
    assert await _refused(running, whole, "POST", path) == "403 WOULD_WIDEN"
    many = await _refused(running, counted, "POST", "", {"scopes": ["tokens:manage"]})
    assert many == "403 WOULD_WIDEN"
    child = await _done(running, token, "POST", "", {})
    assert (child["scopes"], child["topics"], child["agent_id"], child["expires_at"]) == (
        ["memory:read"],
        ["work"],
        "planner",
        "2026-03-01T13:00:00Z",
    )
    clock.pass_(HOUR / 2)
    again = await _done(running, token, "POST", f"/{info.accessor}/rotate")
    assert (again["scopes"], again["expires_at"]) == (
        ["memory:read", "tokens:manage"],
        "2026-03-01T13:00:00Z",
    )


async def test_an_admin_issues_what_it_likes_but_no_further_than_it_reaches(
    running: Running,
) -> None:
    access_scope = AccessScope(frozenset({"work"}))
    limited = wanted(Scope.ADMIN, access_scope=access_scope, expires_in=HOUR)
    token = await running.token("alice", limited)
    body = {"scopes": ["memory:erase"], "expires_in_s": 7_200, "uses": 3}

    child = await _done(running, token, "POST", "", body)

    assert (child["topics"], child["uses_left"]) == (["work"], 3)
    assert child["expires_at"] == "2026-03-01T14:00:00Z"
    assert await _refused(running, token, "POST", "", {"topics": ["home"]}) == "403 WOULD_WIDEN"


async def test_a_rotated_token_is_good_until_the_overlap_ends(
    running: Running, clock: Clock
) -> None:
    services = running.application.services
    life = wanted(Scope.TOKENS, Scope.READ, expires_in=3 * HOUR)
    token, info = await running.issued("alice", life)
    child = await _done(running, token, "POST", "", {"scopes": ["memory:read"]})
    clock.pass_(HOUR)
    entry = services.audit.begin(ALICE, "rotate_token", "cli", None)
    new, successor = await services.access.rotate(Context(entry), info, HOUR)

    assert successor.rights == info.rights
    assert successor.expires_at == clock() + 3 * HOUR
    assert [await _status(running, one) for one in (token, new)] == [200, 200]
    clock.pass_(HOUR)
    assert [await _status(running, one) for one in (token, new)] == [401, 200]
    await running.revoke(successor)
    assert [await _status(running, one) for one in (new, child["token"])] == [401, 401]


async def test_another_tenants_token_is_as_one_that_never_was(running: Running) -> None:
    manager, info = await running.issued("alice", MANAGER)
    mallory = await running.token("mallory", wanted(Scope.ADMIN))
    never = "acc_" + "0" * 26

    async with running.http(mallory) as http:
        for method, rest in (("GET", ""), ("DELETE", ""), ("POST", "/rotate")):
            foreign, unknown = [
                await http.request(method, f"/v1/tokens/{accessor}{rest}")
                for accessor in (info.accessor, never)
            ]
            assert (foreign.status_code, unnamed(foreign)) == (404, unnamed(unknown))
        listed = (await http.get("/v1/tokens")).json()["tokens"]
    assert {one["namespace"] for one in listed} == {"mallory"}
    assert await _status(running, manager) == 200
    shown = await _done(running, manager, "GET", f"/{info.accessor}")
    assert (shown["accessor"], shown["namespace"]) == (info.accessor, "alice")
    assert "token" not in shown


async def test_when_a_token_was_last_used_is_known_to_the_minute(
    running: Running, clock: Clock
) -> None:
    token, info = await running.issued("alice")

    async def last() -> datetime | None:
        return (await running.application.services.access.find(info.accessor)).last_used_at

    assert await last() is None
    await _asks(running, token)
    assert await last() == NOON
    clock.pass_(59 * SECOND)
    await _asks(running, token)
    assert await last() == NOON
    clock.pass_(SECOND)
    await _asks(running, token)
    assert await last() == NOON + timedelta(minutes=1)


@on_sqlite
async def test_whoami_tells_a_token_what_it_may_do(running: Running) -> None:
    access_scope = AccessScope(frozenset({"work"}), agent_id="planner")
    token, info = await running.issued(
        "alice", wanted(Scope.READ, access_scope=access_scope, expires_in=HOUR)
    )

    assert (await _asks(running, token)).json() == {
        "namespace": "alice",
        "accessor": info.accessor,
        "scopes": ["memory:read"],
        "topics": ["work"],
        "types": None,
        "agent_id": "planner",
        "containers": None,
        "expires_at": "2026-03-01T13:00:00Z",
    }
