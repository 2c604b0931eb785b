"""The description of the HTTP routes is valid and complete, and describes what the routes do."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from recall_server.api.http import Endpoint, about_routes
from recall_server.api.operations import OPERATIONS, tasks
from recall_server.api.operations.operation import Calls, Http, Operation
from tests.support.operations import operations
from tests.support.server import Running

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)

Json = dict[str, Any]


async def described(running: Running) -> Json:
    """Return the document, which needs no token."""
    async with running.http() as http:
        answer = await http.get("/openapi.json")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    found: Json = answer.json()
    return found


async def test_the_document_is_valid_openapi_3_1(running: Running) -> None:
    document = await described(running)

    assert document["openapi"] == "3.1.0"
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


async def test_every_route_of_the_registry_is_described_with_its_scope(running: Running) -> None:
    document = await described(running)
    expected = {
        (route.path, route.method.lower()): operation.scope
        for operation in OPERATIONS
        for route in operation.http
        if route.holder is None
    }

    for (path, method), scope in expected.items():
        [security] = document["paths"][path][method]["security"]
        assert security == {"bearer": [scope] if scope else []}, path
    ids = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(ids) == len(set(ids)) == len(expected) + 1
    assert document["paths"]["/v1/receipts/{receipt_id}"]["get"]["security"] == []


async def test_arguments_stand_where_the_document_says(running: Running) -> None:
    document = await described(running)
    audit = document["paths"]["/v1/audit"]["get"]
    delete = document["paths"]["/v1/memories/{memory_id}"]["delete"]
    search = document["paths"]["/v1/search"]["post"]

    assert {one["in"] for one in audit["parameters"]} == {"query"}
    assert {(one["name"], one["in"]) for one in delete["parameters"]} == {
        ("memory_id", "path"),
        ("erase", "query"),
    }
    body = search["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["query"]
    assert "containers" in body["properties"]


async def test_what_is_answered_has_what_the_document_says_it_has(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test calls every route that succeeds without an id."""
    monkeypatch.setattr(tasks, "WAIT_S", 0.0)  # No worker runs, so nothing is waited for.
    document = await described(running)
    checked = set()
    async with running.http(await running.token()) as http:
        for one in operations(running):
            method, _, path = one.name.partition(" ")
            if path not in document["paths"] or "{" in path or path == "/v1/erasure":
                continue
            answer = await one.ask(http)
            responses = document["paths"][path][method.lower()]["responses"]
            kind = answer.headers["Content-Type"]
            where = (one.name, answer.status_code, answer.text)
            if answer.status_code < 400:
                [(media, content)] = responses[str(answer.status_code)]["content"].items()
                assert kind == media, where
                if media == "application/json":
                    assert set(content["schema"]["required"]) <= set(answer.json()), where
                checked.add(path)
            else:
                assert kind in responses["default"]["content"], where

    assert checked >= {"/v1/memories", "/v1/search", "/v1/stats", "/v1/process", "/v1/tokens"}
    assert len(checked) > 10


class _Page(HTMLParser):
    """A page: its tags, the targets of its attributes, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.leads: set[str] = set()
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            if name in {"href", "src"}:
                self.leads.add(value or "")
            if name == "id":
                self.anchors.add(value or "")


async def test_the_page_is_whole_by_itself_and_runs_nothing(running: Running) -> None:
    async with running.http() as http:
        answer = await http.get("/docs")
    page = _Page()
    page.feed(answer.text)

    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script" not in page.tags
    assert page.leads == {"/openapi.json"}
    for operation in OPERATIONS:
        for route in operation.http:
            assert f"<code>{route.method} {route.path}</code>" in answer.text
        if operation.mcp:
            assert f"<code>{operation.name}</code>" in answer.text


async def test_an_error_leads_to_its_code_on_the_page(running: Running) -> None:
    async with running.http() as http:
        refused = await http.get("/v1/whoami")
        page = _Page()
        page.feed((await http.get("/docs")).text)
    problem = refused.json()

    assert refused.headers["Content-Type"] == "application/problem+json"
    assert problem["type"] == "/docs#UNAUTHENTICATED"
    assert {"UNAUTHENTICATED", "MEMORY_NOT_FOUND", "NOT_ACCEPTABLE"} <= page.anchors


async def test_what_an_operation_says_of_itself_is_escaped(running: Running) -> None:
    rude = Operation("rude", None, "<script>alert(1)</script>&", http=(Http("GET", "/v1/rude"),))
    endpoint = Endpoint(Calls(running.application.services, 1.0), rude, rude.http[0])
    [_, page] = about_routes([endpoint], [rude], None)
    response = await page.endpoint(None)

    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in response.body.decode()
    assert not re.search("<script", response.body.decode())
