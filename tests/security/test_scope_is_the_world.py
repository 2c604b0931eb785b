"""The world of a limited token is its access scope: what lies beyond it changes no answer."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from recall_server.domain.permissions import AccessScope, Rights, Scope
from recall_server.services.auth.access import TokenRequest
from tests.support.limited_tokens import Json, code, data, limited
from tests.support.server import Running

SECRET = "secret/merger"
PUBLIC = "public"
IN_PUBLIC = AccessScope(containers=frozenset({PUBLIC}))
READER = limited(containers=frozenset({PUBLIC}))


def manages(access_scope: AccessScope, *scopes: Scope) -> TokenRequest:
    return TokenRequest(Rights(frozenset({Scope.TOKENS, Scope.READ, *scopes}), access_scope))


async def test_a_limited_token_sees_and_ends_only_the_tokens_that_it_could_issue(
    running: Running,
) -> None:
    hidden = (await running.issued("alice", limited(containers=frozenset({SECRET}))))[1]
    wider = (await running.issued("alice", READER))[1]
    own = (await running.issued("alice", manages(IN_PUBLIC)))[1]
    beyond = (hidden.accessor, wider.accessor)
    async with (
        running.http(await running.token("alice", manages(IN_PUBLIC))) as http,
        running.http(await running.token("alice")) as owner,
    ):
        listed = (await http.get("/v1/tokens")).json()["tokens"]
        assert own.accessor in {one["accessor"] for one in listed}
        assert not set(beyond) & {one["accessor"] for one in listed}
        assert (await http.get(f"/v1/tokens/{own.accessor}")).status_code == 200
        for accessor in (*beyond, "acc_never"):
            for method, path in (
                ("GET", f"/v1/tokens/{accessor}"),
                ("DELETE", f"/v1/tokens/{accessor}"),
                ("DELETE", f"/v1/tokens/{accessor}?children_only=true"),
                ("DELETE", f"/v1/tokens/{accessor}/children/somebody"),
                ("POST", f"/v1/tokens/{accessor}/rotate"),
            ):
                answer = await http.request(method, path, json={} if method == "POST" else None)
                assert (answer.status_code, answer.json()["code"]) == (404, "TOKEN_NOT_FOUND")
        assert (await http.delete(f"/v1/tokens/{own.accessor}")).json()["revoked"] == [own.accessor]

        # The positive control: a token without a limit sees and ends them.
        listed = (await owner.get("/v1/tokens")).json()["tokens"]
        assert set(beyond) <= {one["accessor"] for one in listed}
        assert all(one["revoked_at"] is None for one in listed if one["accessor"] in beyond)
        for accessor in beyond:
            assert (await owner.delete(f"/v1/tokens/{accessor}")).status_code == 200
