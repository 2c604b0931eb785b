"""`/metrics` with a token shows the same as the port for probes. The token needs the scope of
metrics only.
"""

import pytest

from recall_server.domain.permissions import Rights, Scope
from recall_server.services.auth import TokenRequest
from tests.support.server import MAY_ALL, Running


async def scraped(running: Running, *scopes: Scope) -> tuple[int, str, str]:
    token = await running.token("alice", TokenRequest(Rights(frozenset(scopes))))
    async with running.http(token) as http:
        answer = await http.get("/metrics")
    return answer.status_code, answer.headers["content-type"], answer.text


async def test_a_token_with_the_scope_reads_the_metrics_without_a_tenant(running: Running) -> None:
    async with running.http(await running.token()) as http:
        await http.post("/v1/memories", json={"text": "User: I live in Porto."})
    status, kind, text = await scraped(running, Scope.METRICS)

    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert (
        'recall_requests_total{operation="store_memory",outcome="ok",protocol="http"} 1.0' in text
    )
    assert 'recall_jobs{kind="extract",state="queued"} 1.0' in text
    assert "alice" not in text


@pytest.mark.parametrize("scope", [Scope.ADMIN, Scope.READ])
async def test_no_other_scope_will_do_for_they_are_of_all_tenants(
    running: Running, scope: Scope
) -> None:
    status, _, text = await scraped(running, scope)

    assert (status, "recall_jobs" in text, "INSUFFICIENT_SCOPE" in text) == (403, False, True)


async def test_who_administers_a_namespace_cannot_issue_the_scope(running: Running) -> None:
    async with running.http(await running.token("alice", MAY_ALL)) as http:
        refused = await http.post("/v1/tokens", json={"scopes": ["metrics:read"]})
        issued = await http.post("/v1/tokens", json={"scopes": ["admin"]})

    assert (refused.status_code, issued.status_code) == (403, 201)
    assert refused.json()["code"] == "WOULD_WIDEN"


async def test_without_a_token_there_are_none(running: Running) -> None:
    async with running.http() as http:
        answer = await http.get("/metrics")

    assert answer.status_code == 401
