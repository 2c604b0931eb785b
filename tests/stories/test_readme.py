"""The example of the README runs as it is written."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.support.processes import Server, new_token

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.slow
async def test_the_example_in_the_readme_prints_what_it_says(tmp_path: Path) -> None:
    text = README.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (said,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    program = tmp_path / "client.py"
    program.write_text(code, encoding="utf-8")
    database = tmp_path / "recall.db"
    token = (await new_token(database, "alice"))["token"]
    lines: list[str] = []

    async with Server(database) as server:

        async def printed() -> str:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(program),
                env={"RECALL_URL": server.address, "RECALL_TOKEN": token},
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await process.communicate()
            return output.decode()

        async with asyncio.timeout(120):
            while lines[-1:] != said.splitlines()[-1:]:
                lines += (await printed()).splitlines()

    assert list(dict.fromkeys(lines)) in (said.splitlines(), said.splitlines()[1:])
