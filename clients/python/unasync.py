"""Makes the client without an event loop from the one with it: `python clients/python/unasync.py`.

`tests/clients/test_python.py` checks that the two are equal.
"""

import re
from pathlib import Path

PACKAGE = Path(__file__).parent / "recall_client"
SOURCE, TARGET = PACKAGE / "_async_client.py", PACKAGE / "_sync_client.py"
_FIRST = (
    '"""The client for programs without an event loop; made of `_async_client.py` by unasync.py."""'
)
_REPLACED = {
    r"\A\"\"\".*\"\"\"\n": f"{_FIRST}\n",
    r"^import asyncio\nfrom collections": "import time\nfrom collections",
    r"asyncio\.sleep": "time.sleep",
    r"from time import monotonic\n": "",
    r"\bmonotonic\(": "time.monotonic(",
    r"\basync (def|with|for)": r"\1",
    r"\bawait ": "",
    r"AsyncIterator": "Iterator",
    r"asynccontextmanager": "contextmanager",
    r"AsyncRecallClient": "RecallClient",
    r"AsyncClient": "Client",
    r"__aenter__": "__enter__",
    r"__aexit__": "__exit__",
    r"\.aclose\(": ".close(",
    r"\.aread\(": ".read(",
    r"\.aiter_lines\(": ".iter_lines(",
}


def unasync(source: str) -> str:
    for pattern, by in _REPLACED.items():
        source = re.sub(pattern, by, source, flags=re.MULTILINE)
    return source


if __name__ == "__main__":
    TARGET.write_text(unasync(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
