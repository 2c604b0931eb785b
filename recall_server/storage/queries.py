"""Reads the named queries of `sql/*.sql`.

`-- query: name` begins one; comments above the text say why. Where the engines differ,
`-- in: sqlite` and `-- in: postgres` head the two texts. Parameters are `:name` everywhere, and
`IN (:names...)` takes a list. The queries that the table registry makes are added to them.

`{{scope}}` stands for the access scope of the caller, with the alias of a table as `{{scope:m}}`;
`{{untyped_scope}}` is for rows without a type, and `{{no_limit}}` for a scope without limits. A
query that reads a table with access scopes needs one of them, or `-- any scope: <why>` in its own
comments or at the head of its file.
"""

import re
from dataclasses import dataclass
from importlib.resources import files

from recall_server.storage.driver import Engine
from recall_server.storage.tables import registry

_ENGINES: tuple[Engine, ...] = ("sqlite", "postgres")
_ACROSS = "-- across namespaces:"
_ANY_SCOPE = re.compile(r"^-- any scope: \S", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")
_SCOPED_READ = re.compile(rf"(?<!DELETE )(?:FROM|JOIN)\s+(?:{'|'.join(registry.SCOPED)})\b")
_FRAGMENT = re.compile(r"\{\{(\w+)(?::(\w+))?\}\}")
# `@` is the alias of the table. Rows without a type are outside of every scope limited to types;
# those in a container that is being erased are outside of all.
_CLOSED = "@container NOT IN (SELECT container FROM closed_containers WHERE namespace = :namespace)"
_FRAGMENTS = {
    "scope": f"""(:any_topic OR @topic IN (:topics...)) AND (:any_type OR @type IN (:types...))
  AND (:any_agent OR @agent_id = :agent)
  AND (:any_container OR @container IN (:containers...)) AND {_CLOSED}""",
    "untyped_scope": f"""(:any_topic OR @topic IN (:topics...)) AND :any_type
  AND (:any_agent OR @agent_id = :agent)
  AND (:any_container OR @container IN (:containers...)) AND {_CLOSED}""",
    "no_limit": "(:any_topic AND :any_type AND :any_agent AND :any_container)",
}
# Parameters, and what is skipped between them: strings, comments, casts.
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
    """All queries by name, spelled for `engine`. Raises `ValueError` on a name that is used twice,
    a text that one engine lacks, texts with different parameters, or a missing access scope.
    """
    files_ = sorted(files(__package__).joinpath("sql").iterdir(), key=lambda path: path.name)
    texts = [file.read_text(encoding="utf-8") for file in files_ if file.name.endswith(".sql")]
    found: dict[str, Query] = {}
    for text in (*texts, registry.queries()):
        for query in parse(text, engine):
            if query.name in found:
                raise ValueError(f"query {query.name} is defined twice; rename one of them")
            found[query.name] = query
    return found


def parse(text: str, engine: Engine) -> list[Query]:
    """The queries of one file."""
    head, *blocks = re.split(r"^-- query: (\w+)\n", text, flags=re.MULTILINE)
    any_scope = bool(_ANY_SCOPE.search(head))
    return [
        _query(name, body, engine, any_scope=any_scope)
        for name, body in zip(blocks[::2], blocks[1::2], strict=True)
    ]


def _query(name: str, body: str, engine: Engine, *, any_scope: bool) -> Query:
    _check_scope(name, body, any_scope=any_scope)
    body = _FRAGMENT.sub(_expanded, body)
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


def _check_scope(name: str, body: str, *, any_scope: bool) -> None:
    if any_scope or _ANY_SCOPE.search(body) or _ACROSS in body or _FRAGMENT.search(body):
        return
    if _SCOPED_READ.search(_COMMENT.sub("", body)):
        raise ValueError(
            f"query {name} reads a table with access scopes: add {{{{scope}}}}, or say "
            "'-- any scope: <why>'"
        )


def _expanded(match: re.Match[str]) -> str:
    name, alias = match.groups()
    if name not in _FRAGMENTS:
        raise ValueError(f"there is no {{{{{name}}}}}; there are {', '.join(_FRAGMENTS)}")
    return _FRAGMENTS[name].replace("@", f"{alias}." if alias else "")


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
