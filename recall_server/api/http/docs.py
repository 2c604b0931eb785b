"""A page about the HTTP routes, the MCP tools and the error codes, derived from the registry.

One file without scripts or foreign parts; its style is the only thing that a browser may run.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from recall_server import __version__
from recall_server.api.arguments import Arguments
from recall_server.api.http.endpoint import Endpoint
from recall_server.api.http.openapi import OPENAPI_PATH, document
from recall_server.api.operations.operation import Operation
from recall_server.api.problems import DOCS_PATH, status_of
from recall_server.domain.errors import RecallError

MAX_AGE_S = 300

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { border-bottom: 1px solid #ccc; padding: .3rem .6rem; text-align: left }
td { vertical-align: top }
code { font-size: .9em; overflow-wrap: anywhere }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": f"public, max-age={MAX_AGE_S}",
}


def routes(
    endpoints: Sequence[Endpoint], operations: Iterable[Operation], public_url: str | None
) -> list[Route]:
    """The document and the page; both are made once, and need no token."""
    described = JSONResponse(
        document(endpoints, public_url), headers={"Cache-Control": f"public, max-age={MAX_AGE_S}"}
    )
    page = HTMLResponse(_page(endpoints, operations), headers=_HEADERS)

    async def openapi(_: Request) -> Response:
        return described

    async def docs(_: Request) -> Response:
        return page

    return [Route(OPENAPI_PATH, openapi), Route(DOCS_PATH, docs)]


def _page(endpoints: Sequence[Endpoint], operations: Iterable[Operation]) -> str:
    intro = (
        f'<p>The same as a machine reads it: <a href="{OPENAPI_PATH}">{OPENAPI_PATH}</a>. Send a '
        "token as <code>Authorization: Bearer TOKEN</code>. Errors are "
        "<code>application/problem+json</code> with one of the codes below.</p>"
    )
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width"><title>recall-server</title>',
            f"<style>{_STYLE}</style></head><body><h1>recall-server {escape(__version__)}</h1>",
            intro,
            "<h2>HTTP</h2>",
            _table(("Route", "Scope", "What it does", "Arguments"), _routes(endpoints)),
            "<h2>MCP</h2>",
            _table(("Tool", "Scope", "What it does", "Arguments"), _tools(operations)),
            "<h2>Errors</h2>",
            _errors(),
            "</body></html>",
        ]
    )


def _routes(endpoints: Sequence[Endpoint]) -> Iterator[tuple[str, str, str, str]]:
    for one in endpoints:
        where = f"{one.route.method} {one.route.path}"
        yield where, one.operation.scope or "", one.operation.summary, _names(one.arguments)


def _tools(operations: Iterable[Operation]) -> Iterator[tuple[str, str, str, str]]:
    for one in operations:
        if one.mcp is not None:
            arguments = one.mcp.arguments or one.arguments
            yield one.name, one.scope or "", one.mcp.description, _names(arguments)


def _names(model: type[Arguments]) -> str:
    return ", ".join(model.model_fields)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    first = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    rest = "".join(
        f"<tr><td><code>{escape(row[0])}</code></td>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{first}</tr></thead><tbody>{rest}</tbody></table>"


def _errors() -> str:
    kinds = {kind.code: kind for kind in reversed([*_kinds(RecallError)])}
    rows = "".join(
        f'<tr id="{escape(code)}"><td><code>{escape(code)}</code></td><td>{status_of(kind).value}'
        f"</td><td>{escape(' '.join((kind.__doc__ or '').split()))}</td></tr>"
        for code, kind in sorted(kinds.items())
    )
    return (
        "<table><thead><tr><th>Code</th><th>Status</th><th>What it says</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _kinds(kind: type[RecallError]) -> Iterator[type[RecallError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _kinds(narrower)
