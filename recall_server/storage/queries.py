"""Reads the named queries of `sql/*.sql`.

`-- query: name` begins one; comments above the text say why. Where the engines differ,
`-- in: sqlite` and `-- in: postgres` head the two texts. Parameters are `:name` everywhere, and
`IN (:names...)` takes a list.
"""

import re
from dataclasses import dataclass
from importlib.resources import files

from recall_server.storage.driver import Engine

_ENGINES: tuple[Engine, ...] = ("sqlite", "postgres")
_ACROSS = "-- across namespaces:"
# What must be stepped over when looking for parameters: strings, comments, casts.
_TOKEN = re.compile(
    r"'(?:[^']|'')*'|--[^\n]*|::\w+|IN \(:(?P<list>[a-z_]+)\.\.\.\)|:(?P<name>[a-z_][a-z0-9_]*)|%"
)


@dataclass(frozen=True)
class Query:
    """One named query: its text for the engine at hand, and whether it serves all tenants."""

    name: str
    sql: str
    parameters: frozenset[str]
    across: bool


def load(engine: Engine) -> dict[str, Query]:
    """All queries of the house by name, spelled for `engine`. Raises `ValueError` on a name that
    stands twice, a text that one engine lacks, or texts with different parameters.
    """
    found: dict[str, Query] = {}
    for file in sorted(files(__package__).joinpath("sql").iterdir(), key=lambda path: path.name):
        if not file.name.endswith(".sql"):
            continue
        for query in parse(file.read_text(encoding="utf-8"), engine):
            if query.name in found:
                raise ValueError(f"query {query.name} stands twice")
            found[query.name] = query
    return found


def parse(text: str, engine: Engine) -> list[Query]:
    """The queries of one file."""
    blocks = re.split(r"^-- query: (\w+)\n", text, flags=re.MULTILINE)[1:]
    return [
        _query(name, body, engine) for name, body in zip(blocks[::2], blocks[1::2], strict=True)
    ]


def _query(name: str, body: str, engine: Engine) -> Query:
    shared, *native = re.split(r"^-- in: (\w+)\n", body, flags=re.MULTILINE)
    texts = dict(zip(native[::2], native[1::2], strict=True))
    if texts and set(texts) != set(_ENGINES):
        raise ValueError(f"query {name} needs a text for each of {', '.join(_ENGINES)}")
    parameters = {frozenset(_parameters(text)) for text in texts.values() or [body]}
    if len(parameters) != 1:
        raise ValueError(f"query {name}: the two texts take different parameters")
    across = _ACROSS in body
    names = next(iter(parameters))
    if ("namespace" in names) == across:
        raise ValueError(f"query {name} must take :namespace, or say '{_ACROSS} <why>'")
    return Query(name, _spelled(texts.get(engine, shared), engine), names, across)


def _parameters(sql: str) -> set[str]:
    found = (match["name"] or match["list"] for match in _TOKEN.finditer(sql))
    return {name for name in found if name}


def _spelled(sql: str, engine: Engine) -> str:
    def spell(match: re.Match[str]) -> str:
        if engine == "sqlite":
            taken = match["list"]
            return f"IN (SELECT value FROM json_each(:{taken}))" if taken else match[0]
        if match["list"]:
            return f"= ANY(%({match['list']})s)"
        if match["name"]:
            return f"%({match['name']})s"
        return match[0].replace("%", "%%")

    return _TOKEN.sub(spell, sql).strip()
