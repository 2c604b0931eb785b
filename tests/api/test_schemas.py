"""schemathesis sends every route what the OpenAPI document allows and forbids. No answer is a 5xx
or differs from the document. The cases are the same in every run.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.support.length import at_full_length, has_full_length
from tests.support.processes import Server, new_token

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
# These end the token of the test.
LEFT_OUT = r"/v1/erasure|/reset|/mem0/(v1/)?memories/?$"
# The number of cases for each route.
EXAMPLES = at_full_length(5, otherwise=2)
WITHIN_S = 300


@has_full_length
@pytest.mark.slow
async def test_no_route_answers_otherwise_than_the_document_says(tmp_path: Path) -> None:
    database = tmp_path / "recall.db"
    token = (await new_token(database, "alice", "--scope", "admin"))["token"]
    unlimited = {"token_calls_per_minute": 0, "namespace_calls_per_minute": 0}
    async with Server(database, mem0=True, **unlimited) as server:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "schemathesis"),
            "run",
            f"{server.address}/openapi.json",
            *("--header", f"Authorization: Bearer {token}"),
            *("--checks", ",".join(CHECKS)),
            *("--exclude-path-regex", LEFT_OUT),
            *("--phases", "fuzzing", "--max-examples", str(EXAMPLES)),
            *("--generation-deterministic", "--continue-on-failure", "--no-color"),
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "100"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(process.communicate(), WITHIN_S)
    lines = [line for line in said.decode().splitlines() if line.strip()]

    assert process.returncode == 0, "\n".join(lines)[:6_000]
    assert "generated" in said.decode()
