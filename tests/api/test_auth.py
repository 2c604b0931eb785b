"""Only a token of this server gives access, and no output shows a token."""

import json
import re
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from recall_server.api.app import create_app
from recall_server.domain.errors import Invalid
from recall_server.domain.ids import namespace
from recall_server.domain.permissions import ALPHABET, checksum
from recall_server.server import bound, listening
from recall_server.services.auth import new_token
from recall_server.storage.driver import Connection, Statement
from tests.support.application import Open
from tests.support.engines import on_sqlite
from tests.support.logs import real_logs
from tests.support.mcp_clients import request
from tests.support.server import Running
from tests.support.sockets import answered, statuses

HEADERS, BODY = request("tools/call", {"name": "get_memory_stats", "arguments": {}}, modern=False)


async def _ask(running: Running, *headers: tuple[str, str], path: str = "/mcp") -> httpx2.Response:
    sent = [(name.encode(), value.encode()) for name, value in (*HEADERS.items(), *headers)]
    async with running.http() as http:
        return await http.post(path, headers=sent, json=BODY)


async def _status(running: Running, authorization: str) -> int:
    return (await _ask(running, ("Authorization", authorization))).status_code


def _damaged(token: str) -> dict[str, str]:
    """Return tokens that the server cannot have issued. They need no look-up in the database."""
    other = "A" if token[10] != "A" else "B"
    return {
        "one character changed": token[:10] + other + token[11:],
        "the checksum changed": token[:-1] + ("A" if token[-1] != "A" else "B"),
        "another prefix": "hvs_" + token[4:],
        "a prefix in capitals": "RCL_" + token[4:],
        "cut off": token[:-1],
        "one character more": token + "0",
        "two joined by a comma": f"{token},{token}",
        "two joined by a blank": f"{token} {token}",
        "a zero-width space behind it": f"{token}\u200b",
        "a no-break space behind it": f"{token}\xa0",
        "empty": "",
        "text": "let-me-in",
        "the accessor's form": "acc_" + "0" * 26,
        "full-width": token[:-1] + "\uff11",
        "accents": "é" * 42,
        "very long": "rcl_" + "A" * 30_000,
        "quotes": "' OR '1'='1",
        "the hash of one": "0" * 64,
    }


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch, running: Running) -> list[str]:
    """Record the statements from now on."""
    asked: list[str] = []
    open_, ask_ = (
        running.application.store.driver.transaction,
        running.application.store.driver.autocommit,
    )

    async def autocommit(given: Sequence[Statement], **more: Any) -> Any:
        asked.extend(sql for sql, _ in given)
        return await ask_(given, **more)

    @asynccontextmanager
    async def counted(**given: Any) -> AsyncIterator[Connection]:
        async with open_(**given) as connection:
            fetch = connection.fetch

            async def noted(sql: str, params: Any) -> Any:
                asked.append(sql)
                return await fetch(sql, params)

            monkeypatch.setattr(connection, "fetch", noted)
            yield connection

    monkeypatch.setattr(running.application.store.driver, "transaction", counted)
    monkeypatch.setattr(running.application.store.driver, "autocommit", autocommit)
    return asked


async def test_a_damaged_token_is_refused_without_asking_the_database(
    running: Running, statements: list[str]
) -> None:
    token = await running.token()
    statements.clear()
    bodies = set()

    for name, damaged in _damaged(token).items():
        answer = await _ask(running, ("Authorization", f"Bearer {damaged}".strip(" ")))
        assert answer.status_code == 401, name
        assert answer.json()["code"] == "UNAUTHENTICATED", name
        bodies.add(answer.text)
    assert statements == []
    # One body for a token in another place, one for a header without a token.
    assert len(bodies) <= 2

    assert await _status(running, f"Bearer {token}") == 200
    assert statements != []


async def test_what_stands_behind_or_in_a_token_is_part_of_it(
    running: Running, statements: list[str]
) -> None:
    """The middleware gets the header unchanged, whatever an HTTP server would let through. Each
    gets the answer of a damaged token, without a look-up in the database.
    """
    token = await running.token()
    transport = httpx2.ASGITransport(create_app(running.application))
    async with httpx2.AsyncClient(transport=transport, base_url=running.address) as http:

        async def ask(shown: bytes) -> tuple[int, str]:
            sent = [(b"Authorization", b"Bearer " + shown)]
            answer = await http.get("/v1/whoami", headers=sent)
            return answer.status_code, answer.text

        good = token.encode()
        tails = (
            b" ",
            b"\t",
            b"\n",
            b"\r\n",
            b"\x00",
            b"\xa0",
            b"\xc3\xa9",
            b" " + good,
            b"," + good,
        )
        statements.clear()
        refused = {await ask(b"x")}
        refused |= {await ask(good + tail) for tail in tails}
        refused |= {await ask(good[:20] + one + good[20:]) for one in (b"\x00", b" ", b"\xff")}
        refused |= {await ask(one) for one in (b"", b" ", b"\x00", b"\xff" * 42, b"A" * 9_000)}
        assert statements == []
        assert [status for status, _ in refused] == [401]
        assert (await ask(good))[0] == (await ask(b" " + good))[0] == 200
        assert statements != []


@pytest.mark.parametrize(
    ("behind", "status"),
    [(b" ", 200), (b"\t", 200), (b"\x00", 400), (b"\r", 400), (b"\xc3\xa9", 401)],
)
async def test_blanks_behind_a_header_are_none_of_it(
    running: Running, behind: bytes, status: int
) -> None:
    """HTTP itself removes spaces behind a value (RFC 9110, 5.5) before the middleware reads it. A
    character that no header may hold makes the request invalid.
    """
    sent = b"GET /v1/whoami HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    sent += b"Authorization: Bearer " + (await running.token()).encode() + behind + b"\r\n\r\n"

    assert statuses(await answered(running, sent)) == [status]


async def test_a_well_formed_token_that_is_unknown_is_refused(running: Running) -> None:
    unknown = await _ask(running, ("Authorization", f"Bearer {new_token()}"))
    again = await _ask(running, ("Authorization", f"Bearer {new_token()}"))

    assert (401, unknown.text) == (again.status_code, again.text)
    assert unknown.json()["code"] == "UNAUTHENTICATED"
    assert await _status(running, f"Bearer {await running.token()}") == 200


async def test_a_revoked_token_is_refused_from_the_next_call_on(running: Running) -> None:
    token, info = await running.issued("alice")
    other = await running.token("alice")
    headers = {"Authorization": f"Bearer {token}", **HEADERS}

    async with running.http() as http:  # One connection stays open.
        before = await http.post("/mcp", headers=headers, json=BODY)
        await running.revoke(info)
        after = await http.post("/mcp", headers=headers, json=BODY)

    assert (before.status_code, after.status_code) == (200, 401)
    assert "revoked" not in after.text
    assert await _status(running, f"Bearer {other}") == 200


@on_sqlite
async def test_a_token_counts_in_the_authorization_header_only(running: Running) -> None:
    token = await running.token()
    basic = httpx2.BasicAuth("alice", token)

    async with running.http() as http:
        answers = [
            await http.post(f"/mcp?token={token}&access_token={token}", headers=HEADERS, json=BODY),
            await http.post("/mcp", headers={**HEADERS, "Cookie": f"token={token}"}, json=BODY),
            await http.post("/mcp", headers=HEADERS, json={**BODY, "access_token": token}),
            await http.post("/mcp", headers=HEADERS, json=BODY, auth=basic),
            await http.post("/mcp", headers={**HEADERS, "X-Api-Key": token}, json=BODY),
            await http.post("/mcp", headers={**HEADERS, "Authorization": token}, json=BODY),
            await http.post("/mcp", headers={**HEADERS, "Authorization": "Bearer"}, json=BODY),
            await http.post(
                "/mcp", headers={**HEADERS, "Proxy-Authorization": f"Bearer {token}"}, json=BODY
            ),
        ]

    assert [401] * len(answers) == [answer.status_code for answer in answers]
    assert not [answer for answer in answers if token in answer.text + str(answer.headers)]
    assert await _status(running, f"Bearer {token}") == 200


@on_sqlite
async def test_two_authorization_headers_are_refused_whichever_is_good(running: Running) -> None:
    good, bad = f"Bearer {await running.token()}", f"Bearer {new_token()}"

    for pair in ((good, bad), (bad, good), (good, good)):
        answer = await _ask(running, *(("Authorization", value) for value in pair))
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_ARGUMENT")

    assert await _status(running, good) == 200


@on_sqlite
async def test_the_scheme_may_be_written_in_any_case_but_must_be_bearer(running: Running) -> None:
    token = await running.token()

    for scheme in ("Bearer", "bearer", "BEARER", "bEaReR"):
        assert await _status(running, f"{scheme} {token}") == 200
    for scheme in ("Token", "Basic", "Bearer:", "Bearer\t", "JWT", "Bearer Bearer"):
        assert await _status(running, f"{scheme} {token}") == 401, scheme


@on_sqlite
async def test_a_refusal_says_how_to_get_in(running: Running) -> None:
    nothing = await _ask(running)
    wrong = await _ask(running, ("Authorization", f"Bearer {new_token()}"))

    for answer in (nothing, wrong):
        assert {"type", "title", "status", "detail", "code"} == set(answer.json())
        assert answer.headers["WWW-Authenticate"].startswith('Bearer realm="recall"')
        assert answer.headers["Cache-Control"] == "no-store"
    assert "recall create-token NAMESPACE" in nothing.json()["detail"]
    assert "error=" not in nothing.headers["WWW-Authenticate"]
    assert 'error="invalid_token"' in wrong.headers["WWW-Authenticate"]


@on_sqlite
async def test_every_path_but_the_probes_and_the_card_wants_a_token(running: Running) -> None:
    async with running.http() as http:
        for path in ("/", "/mcp", "/mcp/", "/docs/", "/metrics", "/health/", "/health/x",
                     "//health", "/HEALTH", "/health%2f..%2fmcp", "/a2a", "/a2a/v1/tasks",
                     "/a2a/x", "/v1/conflicts", "/.well-known/agent-card.json/"):  # fmt: skip
            assert (await http.get(path)).status_code == 401, path
        for path in ("/health", "/ready", "/%68ealth", "/.well-known/agent-card.json", "/docs",
                     "/openapi.json"):  # fmt: skip
            assert (await http.get(path)).status_code == 200, path


async def test_an_accessor_never_authenticates(running: Running) -> None:
    token, info = await running.issued("alice")

    assert await _status(running, f"Bearer {info.accessor}") == 401
    assert await _status(running, f"Bearer {token}") == 200


def test_a_token_is_rcl_then_32_random_characters_then_their_crc32() -> None:
    """A secret scanner looks for `rcl_[0-9A-Za-z]{38}`. The last six characters are the CRC32 of
    the 32 before (ASCII), as a base62 number of the digits 0-9A-Za-z, most significant first.
    """
    token = new_token()

    assert re.fullmatch(r"rcl_[0-9A-Za-z]{38}", token)
    number = 0
    for digit in token[-6:]:
        number = number * 62 + ALPHABET.index(digit)
    assert number == zlib.crc32(token[4:36].encode("ascii"))
    assert len({new_token() for _ in range(1_000)}) == 1_000
    assert checksum("0" * 32) == "2wjyrI"


async def test_a_token_stands_in_no_log_no_reply_and_no_file(
    open_app: Open, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with real_logs():
        async with (
            open_app(port=0, log_level="debug") as built,
            listening(create_app(built), built.settings, bound(built.settings)) as address,
        ):
            running = Running(built, address)
            token, info = await running.issued("alice")
            bearer = ("Authorization", f"Bearer {token}")
            answers = [
                await _ask(running, bearer),
                await _ask(running, bearer, path=f"/mcp?token={token}"),
                await _ask(running, bearer, bearer),
                await _ask(running, ("Authorization", f"Bearer {token}x")),
                await _ask(running, bearer, path=f"/{token}"),
                await _ask(running, path=f"/{token}"),
            ]
            await running.revoke(info)
            answers.append(await _ask(running, bearer))
            async with built.store.transaction(None, write=False) as tx:
                rows = repr([dict(row) for row in await tx.bound.fetch("all_tokens")])
                rows += repr(await tx.audit.newest(100))

    assert [answer.status_code for answer in answers] == [200, 200, 400, 401, 404, 401, 401]
    output = "".join(capfd.readouterr())
    assert info.accessor in output  # The positive control: logs were written, and name the caller.
    assert info.accessor in rows
    kept = b"".join(path.read_bytes() for path in _files(tmp_path))
    replies = "".join(answer.text + str(answer.headers) for answer in answers)
    for piece in (token, token[4:], token[4:20], token[20:36]):
        assert piece not in output
        assert piece not in rows
        assert piece not in replies
        assert piece.encode() not in kept


async def test_refusals_are_logged_once_each_and_without_what_was_sent(running: Running) -> None:
    with capture_logs() as lines:
        for sent in ("canary", "\x1b[2Jcanary", "canary\u2028"):
            await _ask(running, ("Authorization", f"Bearer {sent}"))

    refused = [line for line in lines if line["event"] == "refused"]
    assert len(refused) == 3
    assert "canary" not in json.dumps(refused)


BAD_NAMES = [
    "", " ", "a b", "acme ", " acme", "acme.", "acme\n", "acme\r", "acme\x00", "..", ".", "a/b",
    "a\\b", "a%2fb", "CON", "Acme", "ACME", "-acme", "_acme", "\u0430cme", "\uff41cme", "acm\u00e9",
    "acme\u200b", "ac\u00adme", "\u212aelvin", "acme\u0661", "a" * 65, "a" * 300, "a:", "a'b",
]  # fmt: skip
GOOD_NAMES = ["a", "acme", "0", "a-b_c", "9lives", "org:team.agent", "a" * 64]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_a_namespace_is_lower_case_ascii(name: str) -> None:
    with pytest.raises(Invalid) as raised:
        namespace(name)

    assert raised.value.message.endswith(".")
    assert not name.strip(". *") or name not in raised.value.message


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_a_good_namespace_is_taken(name: str) -> None:
    assert namespace(name) == name


@on_sqlite
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Host": "localhost."}, 421),
        ({"Host": "127.0.0.1.nip.io"}, 421),
        ({"Host": "2130706433"}, 421),
        ({"Host": "[::1"}, 421),
        ({"Host": "evil.example@127.0.0.1"}, 421),
        ({"Host": "127.0.0.1/evil"}, 421),
        ({"Host": "memory.example:1"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "http://[evil"}, 403),
        ({"Origin": "http://127.0.0.1:9"}, 403),
        ({"Origin": "http://localhost:9"}, 403),
        ({"Origin": "http://localhost.evil"}, 403),
        ({"Origin": "http://127.0.0.1"}, 403),
        ({"Origin": "https://app.example.evil"}, 403),
        ({"Origin": "http://app.example"}, 403),
        ({"Origin": "https://app.example"}, 200),
        ({"Origin": "SELF"}, 200),
        ({}, 200),
    ],
    ids=str,
)
async def test_host_and_origin_must_be_known(
    open_app: Open, headers: dict[str, str], status: int
) -> None:
    allowed = {"allowed_hosts": "memory.example", "allowed_origins": "https://app.example"}
    async with (
        open_app(port=0, **allowed) as built,
        listening(create_app(built), built.settings, bound(built.settings)) as address,
    ):
        running = Running(built, address)
        token = await running.token()
        sent = {key: address if value == "SELF" else value for key, value in headers.items()}
        answer = await _ask(running, ("Authorization", f"Bearer {token}"), *sent.items())
        unauthorized = await _ask(running, *sent.items())

    codes = {421: "HOST_NOT_ALLOWED", 403: "ORIGIN_NOT_ALLOWED", 200: None}
    assert (status, codes[status]) == (answer.status_code, answer.json().get("code"))
    assert unauthorized.status_code == (401 if status == 200 else status)
    # A page of the server itself needs no permission.
    page = answer.headers.get("Access-Control-Allow-Origin")
    assert page == (headers["Origin"] if status == 200 and "https" in str(headers) else None)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
