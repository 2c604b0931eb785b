"""Tables run their named queries through a bound connection: one with an open transaction, or one
that runs each query in a transaction of its own.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeVar

from recall_server.domain.ids import Namespace
from recall_server.domain.memory_event import EventKind
from recall_server.domain.moments import PRESENT, Past, utc_now
from recall_server.domain.permissions import (
    AFTER,
    BEFORE,
    EARLIEST,
    EXPIRY,
    FULL_ACCESS,
    LATEST,
    AccessScope,
)
from recall_server.domain.record import Recorded
from recall_server.domain.webhook import WebhookKind
from recall_server.storage.driver import (
    Connection,
    Document,
    Driver,
    Engine,
    Failure,
    Params,
    Row,
    Statement,
    apart,
)
from recall_server.storage.index.documents import Cache
from recall_server.storage.tables import registry

_ENGINES: tuple[Engine, ...] = ("sqlite", "postgres")
_ACROSS = "-- across namespaces:"
_ANY_SCOPE = re.compile(r"^-- any scope: \S", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")
_SCOPED_READ = re.compile(rf"(?<!DELETE )(?:FROM|JOIN)\s+(?:{'|'.join(registry.SCOPED)})\b")
_FRAGMENT = re.compile(r"\{\{(\w+)(?::(\w+))?\}\}")
# A part that several queries of one file share, and which may use the fragments below.
_SHARED = re.compile(
    r"^-- fragment: (\w+)\n(.*?)(?=^-- (?:query|fragment): |\Z)", re.MULTILINE | re.DOTALL
)
# `@` stands for the alias of the table. Texts and tasks have no type, so they are outside every
# scope limited to types. What is in a container that is being erased is outside every scope.
_CLOSED = "@container NOT IN (SELECT container FROM closed_containers WHERE namespace = :namespace)"
_TYPED = "(:any_type OR @type IN (:types...))"
_LABELS = f"""(:any_topic OR @topic IN (:topics...)) AND (:any_agent OR @agent_id = :agent)
  AND (:any_container OR @container IN (:containers...)) AND {_CLOSED}"""


def _between(said: str, recorded: str, valid: str, expires: str) -> str:
    """Return the condition that these columns are within the time limits of the access scope."""
    columns = {"said": said, "recorded": recorded, "valid": valid}
    within = (f"{at} >= :{one}_after AND {at} < :{one}_before" for one, at in columns.items())
    # An item that does not expire is outside any limit of expiry.
    expiry = f"COALESCE({expires} >= :expires_after AND {expires} < :expires_before, FALSE)"
    return f"(:any_time OR ({' AND '.join(within)} AND (:any_expiry OR {expiry})))"


_FILTERED = """(:any_tags OR @tags HAS ALL (:tags...))
  AND (:any_metadata OR @metadata HOLDS (:metadata))"""
# The stored counts of memories cannot be used with these limits.
_UNCOUNTED = (
    ":any_agent AND :any_container AND :any_tags AND :any_metadata AND :any_time AND :any_layer"
    " AND :any_source"
)
_FROM_SOURCE = """((:from_app = '' OR @source_app = :from_app)
  AND (:from_group = '' OR @group_id = :from_group))"""
# That of the text which a memory cites first: later citations come and go without a new entry in
# the index.
_CITES_SOURCE = f"""EXISTS (
  SELECT 1 FROM citations cs JOIN episodes es ON es.namespace = :namespace AND es.id = cs.episode_id
  WHERE cs.namespace = :namespace AND cs.memory_id = @id AND cs.position = 0
    AND {_FROM_SOURCE.replace("@", "es.")})"""
# A text and its turns belong to the episodic layer.
_UNTYPED = f""":any_type AND (:any_layer OR 'episodic' IN (:layers...))
  AND {_LABELS} AND {_FILTERED} AND (:any_source OR {_FROM_SOURCE})"""
_SAID, _SAID_IN_TURN = "@occurred_at", "COALESCE(t.said_at, @occurred_at)"
_ENDS = "@expired_at"
_LAYERED = "(:any_layer OR @layer IN (:layers...))"
_FRAGMENTS = {
    "scope": f"""{_TYPED} AND {_LAYERED} AND {_LABELS} AND {_FILTERED}
  AND {_between("@said_at", "@recorded_at", "@valid_from", "@expires_at")}
  AND (:any_source OR {_CITES_SOURCE})""",
    # For a text as a whole, and for one of its turns, `t`: they count as true since they were said.
    "untyped_scope": f"{_UNTYPED} AND {_between(_SAID, '@recorded_at', _SAID, _ENDS)}",
    "turn_scope": (
        f"{_UNTYPED} AND {_between(_SAID_IN_TURN, '@recorded_at', _SAID_IN_TURN, _ENDS)}"
    ),
    "task_scope": f":any_type AND {_LABELS}",
    "counted_scope": f"({_UNCOUNTED})",
    "no_limit": f"(:any_topic AND :any_type AND {_UNCOUNTED})",
    # For a memory joined with its text `e`: whether rules made it in place of a model whose key was
    # rejected, and the model has not read the text since. Postgres would hash all jobs for EXISTS.
    "unreconciled": """(substr(@extractor, 1, 6) = 'rules/' AND COALESCE((
    SELECT o.error_code = 'MODEL_KEY_REJECTED' FROM operations o
    WHERE o.namespace = :namespace AND o.id = e.job_id), FALSE))""",
    # Joined with the namespace `n`: the token :accessor, or its JWT :jti, which is revoked under
    # :name and was made at :made_at at the latest.
    "token": """LEFT JOIN api_tokens t ON t.namespace = n.namespace AND t.accessor = :accessor
LEFT JOIN revoked_children c
  ON c.namespace = n.namespace AND c.parent = :accessor AND c.jti IN (:jti, :name)""",
    # Whether the token was revoked. Expiry alone does not count.
    "revoked": """(t.revoked_at IS NOT NULL OR c.jti IS NOT NULL
  OR t.created_at < n.tokens_not_before OR n.tokens_not_before > :made_at
  OR (:jti <> '' AND t.children_not_before > :made_at))""",
}
# The same for a caller without limits: most calls are of such, and reading a row costs them less.
_UNLIMITED = _FRAGMENTS | {
    **dict.fromkeys(("scope", "untyped_scope", "turn_scope", "task_scope"), _CLOSED),
    **dict.fromkeys(("counted_scope", "no_limit"), "(TRUE)"),
}
# Parameters, and what may hold a colon without being one: strings, comments, casts. An index is
# named for SQLite alone, and rows are locked by Postgres alone.
_TOKEN = re.compile(
    r"'(?:[^']|'')*'|--[^\n]*|::\w+|(?P<has>[a-z_.]+) HAS ALL \(:(?P<all>[a-z_]+)\.\.\.\)"
    r"|(?P<holds>[a-z_.]+) HOLDS \(:(?P<pairs>[a-z_]+)\)"
    r"|IN \(:(?P<list>[a-z_]+)\.\.\.\)|:(?P<name>[a-z_][a-z0-9_]*)|%"
    r"|(?P<index>\sINDEXED BY \w+)|(?P<lock>\sFOR (?:NO KEY )?UPDATE(?: SKIP LOCKED)?)"
)
# The groups that name a parameter; each is the last of its alternative.
_NAMING = frozenset({"name", "list", "all", "pairs"})
# The condition that a JSON array has all values of a list.
_ALL: Mapping[Engine, str] = {
    "sqlite": (
        "NOT EXISTS (SELECT value FROM json_each(:{name})"
        " EXCEPT SELECT value FROM json_each({column}))"
    ),
    "postgres": "{column} ?& CAST(%({name})s AS text[])",
}


# The condition that a JSON object has all names and values of another, whose values are neither
# objects nor lists.
_PAIRS = """SELECT key, CASE WHEN type IN ('integer', 'real') THEN 'number' ELSE type END, value
 FROM json_each({})"""
_HOLDS: Mapping[Engine, str] = {
    "sqlite": f"NOT EXISTS ({_PAIRS.format(':{name}')} EXCEPT {_PAIRS.format('{column}')})",
    "postgres": "{column} @> %({name})s",
}


ALL_ROWS = "all_rows"


@dataclass(frozen=True)
class Query:
    """One named query: its text for one engine, its parameters, and whether it serves all tenants
    (`across`). `unlimited` is the text for a caller whose access scope has no limits, and takes
    none of the parameters of one; None if there is no such text. `takes_all`: run for many rows, it
    takes them all as `:all_rows`.
    """

    name: str
    sql: str
    unlimited: str | None
    parameters: frozenset[str]
    across: bool
    takes_all: bool


@cache
def load(engine: Engine) -> Mapping[str, Query]:
    """Return all queries by name, in the syntax of `engine`. They are read once. Raises
    `ValueError` on a name that is used twice, a text that one engine lacks, texts with different
    parameters, or a missing access scope.
    """
    files_ = sorted(files(__package__).joinpath("sql").iterdir(), key=lambda path: path.name)
    texts = [file.read_text(encoding="utf-8") for file in files_ if file.name.endswith(".sql")]
    found: dict[str, Query] = {}
    for text in (*texts, registry.queries()):
        for query in parse(text, engine):
            if query.name in found:
                raise ValueError(f"query {query.name} is defined twice; rename one of them")
            found[query.name] = query
    return MappingProxyType(found)


def parse(text: str, engine: Engine) -> list[Query]:
    shared, text = dict(_SHARED.findall(text)), _SHARED.sub("", text)
    for name, part in shared.items():
        text = text.replace(f"{{{{{name}}}}}", part.strip())
    head, *blocks = re.split(r"^-- query: (\w+)\n", text, flags=re.MULTILINE)
    any_scope = bool(_ANY_SCOPE.search(head))
    return [
        _query(name, body, engine, any_scope=any_scope)
        for name, body in zip(blocks[::2], blocks[1::2], strict=True)
    ]


def _query(name: str, body: str, engine: Engine, *, any_scope: bool) -> Query:
    _check_scope(name, body, any_scope=any_scope)
    shared, *native = re.split(r"^-- in: (\w+)\n", body, flags=re.MULTILINE)
    texts = dict(zip(native[::2], native[1::2], strict=True)) or dict.fromkeys(_ENGINES, shared)
    if set(texts) != set(_ENGINES):
        raise ValueError(f"query {name} needs a text for each of {', '.join(_ENGINES)}")
    limited = {text: _expanded(text, _FRAGMENTS) for text in {*texts.values()}}
    parameters = {_parameters(text) for text in limited.values()}
    by_row = {one for one in parameters if ALL_ROWS not in one}
    takes_all = ALL_ROWS in _parameters(limited[texts[engine]])
    if len(by_row) != 1:
        raise ValueError(f"query {name}: the two texts take different parameters")
    across = _ACROSS in body
    (names,) = by_row
    if ("namespace" in names) == across:
        raise ValueError(f"query {name} must take :namespace, or say '{_ACROSS} <why>'")
    unlimited = _expanded(texts[engine], _UNLIMITED) if "any_topic" in names else ""
    limits = (one for one in _parameters(unlimited) if one.startswith("any_"))
    is_scoped = unlimited and not any(limits)
    return Query(
        name,
        _spelled(limited[texts[engine]], engine),
        _spelled(unlimited, engine) if is_scoped else None,
        names,
        across,
        takes_all,
    )


def _check_scope(name: str, body: str, *, any_scope: bool) -> None:
    if any_scope or _ANY_SCOPE.search(body) or _ACROSS in body or _FRAGMENT.search(body):
        return
    if _SCOPED_READ.search(_COMMENT.sub("", body)):
        raise ValueError(
            f"query {name} reads a table with access scopes: add {{{{scope}}}}, or say "
            "'-- any scope: <why>'"
        )


def _expanded(body: str, fragments: Mapping[str, str]) -> str:
    def expand(match: re.Match[str]) -> str:
        name, alias = match.groups()
        if name not in fragments:
            raise ValueError(f"there is no {{{{{name}}}}}; there are {', '.join(fragments)}")
        return fragments[name].replace("@", f"{alias}." if alias else "")

    return _FRAGMENT.sub(expand, body)


def _parameters(sql: str) -> frozenset[str]:
    found = _TOKEN.finditer(sql)
    return frozenset(match[match.lastgroup] for match in found if match.lastgroup in _NAMING)


def _spelled(sql: str, engine: Engine) -> str:
    def spell(match: re.Match[str]) -> str:
        if match["all"]:
            return _ALL[engine].format(column=match["has"], name=match["all"])
        if match["pairs"]:
            return _HOLDS[engine].format(column=match["holds"], name=match["pairs"])
        if match["lock" if engine == "sqlite" else "index"]:
            return ""
        if engine == "sqlite":
            taken = match["list"]
            return f"IN (SELECT value FROM json_each(:{taken}))" if taken else match[0]
        if match["list"]:
            return f"= ANY(%({match['list']})s)"
        if match["name"]:
            return f"%({match['name']})s"
        return match[0].replace("%", "%%")

    return _TOKEN.sub(spell, sql).strip()


T = TypeVar("T")
ANY = 2**62
# Serializing more rows than this delays other callers noticeably.
INLINE_MAX = 50


class Noted(NamedTuple):
    """The rest of an event besides its item, kind and reason. `dropped`: citations that were
    removed, as rows of position, episode, start and end. `hides`: True if an undo hides words,
    False if it shows them, None if it does neither.
    """

    at: datetime
    episode_id: str | None
    dropped: Sequence[tuple[int, str, int, int]] | None
    hides: bool | None = None


class Announced(NamedTuple):
    """An event of a task, a conflict, a text or an erasure, for webhooks."""

    kind: WebhookKind
    item_id: str
    at: datetime


NotedKey = tuple[str, EventKind, str]


@dataclass(eq=False)
class BoundConnection:
    """One open transaction. Fills in `:namespace`, the caller's access scope and `:as_of`, so that
    no query can omit or change them.
    """

    connection: Connection
    queries: Mapping[str, Query]
    namespace: Namespace | None
    access_scope: AccessScope = FULL_ACCESS
    # How many bytes of texts the namespace may keep.
    quota_bytes_max: int = ANY
    # The clock. It fills in `:as_of`, the moment whose state is read, unless `past` has one.
    now: Callable[[], datetime] = utc_now
    past: Past = PRESENT
    # The indexes in memory.
    cache: Cache = field(default_factory=lambda: Cache(0))
    # The key by which records of the audit log are written; None: none can be.
    mac_key: bytes | None = field(default=None, repr=False)
    # The events of this transaction, by item, kind and reason.
    noted: dict[NotedKey, Noted] = field(default_factory=dict)
    # The memories whose counts this transaction has updated ahead of their events.
    counted: set[str] = field(default_factory=set)
    # The fields and citations that this transaction records, by the ids of memories.
    recorded: dict[str, Recorded] = field(default_factory=dict)
    # Further events for webhooks.
    announced: dict[Announced, None] = field(default_factory=dict)
    # When the first job is due that this transaction queues, for pushes (True) and others (False).
    due: dict[bool, datetime] = field(default_factory=dict)
    # Whether it has asked for the lock of its namespace, and may not hold it yet.
    waits: bool = False
    # The date of its change; None until it is asked for.
    _date: datetime | None = None

    @property
    def owner(self) -> Namespace:
        """The namespace. Only for connections that have one."""
        assert self.namespace is not None
        return self.namespace

    async def moment(self) -> datetime:
        """Return the date of what this transaction changes: one for all of it. It is read when the
        namespace is locked, so that changes become visible in the order of their dates.
        """
        if self.waits:
            await self.fetch("lock_namespace")
        if self._date is None:
            self._date = self.now()
        return self._date

    def note(
        self,
        item_id: str,
        kind: EventKind,
        at: datetime,
        *,
        episode_id: str | None = None,
        reason: str = "",
        dropped: Sequence[tuple[int, str, int, int]] | None = None,
        hides: bool | None = None,
    ) -> None:
        """Have an event written with this transaction, once, however often it is noted."""
        self.noted[item_id, kind, reason] = Noted(at, episode_id, dropped, hides)

    def note_each(
        self, item_ids: Iterable[str], kind: EventKind, at: datetime, *, reason: str = ""
    ) -> None:
        """`note` the same of several memories."""
        for one in item_ids:
            self.note(one, kind, at, reason=reason)

    def record(self, memory_id: str) -> Recorded:
        """Return what this transaction has recorded of a memory so far, to add to it."""
        return self.recorded.setdefault(memory_id, Recorded())

    def note_due(self, at: datetime, *, pushes: bool) -> None:
        """Have workers look for a job of this namespace at a moment, after the commit."""
        self.due[pushes] = min(at, self.due.get(pushes, at))

    def tell(self, kind: WebhookKind, item_id: str, at: datetime) -> None:
        """Notify the webhooks if this transaction commits. It must hold the lock of the
        namespace.
        """
        self.announced[Announced(kind, item_id, at)] = None

    async def fetch(self, query: str, **params: Any) -> Sequence[Row]:
        rows = await self.connection.fetch(*self.statement(query, params))
        self.waits = False
        return rows

    async def fetch_each(
        self, queries: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Sequence[Row]]:
        """Run queries with their parameters in one round trip. Return the rows of each."""
        statements = [self.statement(*one) for one in queries.items()]
        found = await self.connection.fetch_each(statements)
        self.waits = False
        return dict(zip(queries, found, strict=True))

    async def touched(self, query: str, **params: Any) -> bool:
        """Run a query. Return whether it returned any row."""
        return bool(await self.fetch(query, **params))

    async def send(self, query: str, **params: Any) -> None:
        """Run a query without waiting for it or its rows: see `Connection.send`."""
        await self.connection.send(*self.statement(query, params))

    async def expect(self, query: str, otherwise: Failure, **params: Any) -> None:
        """`send` a query that must touch a row: see `Connection.expect`."""
        await self.connection.expect(*self.statement(query, params), otherwise)

    async def many(self, query: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """`send` a query once for each of `rows`, or once for all of them, if it takes them all."""
        if not rows:
            return
        if self.queries[query].takes_all:
            document = await apart(len(rows) > INLINE_MAX, Document.of_rows, rows)
            await self.send(query, **{ALL_ROWS: document})
            return
        statements = [self.statement(query, row) for row in rows]
        await self.connection.many(statements[0][0], [params for _, params in statements])

    def statement(self, name: str, params: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the text of a query for this caller, and its parameters."""
        query = self.queries[name]
        if query.across:
            if self.namespace is not None:
                raise LookupError(f"{name} serves all namespaces; this connection has one")
            return query.sql, params
        if self.namespace is None:
            raise LookupError(f"{name} needs a namespace; this connection has none")
        bound = {**params, "namespace": self.namespace}
        if "as_of" in query.parameters:
            bound["as_of"] = self.past.known_at or self.now()
        if "past" in query.parameters:
            bound["past"] = self.past.known_at is not None
        if query.unlimited is not None and self._is_unlimited:
            return query.unlimited, bound
        if "any_topic" in query.parameters:
            bound |= self._scope_params
        return query.sql, bound

    @cached_property
    def _is_unlimited(self) -> bool:
        return self.access_scope.everything

    @cached_property
    def _scope_params(self) -> Mapping[str, Any]:
        return _scope_params(self.access_scope)


def _scope_params(access_scope: AccessScope) -> dict[str, Any]:
    """Return an access scope as query parameters: each part, and whether it is unlimited."""
    return {
        "any_topic": access_scope.topics is None,
        "topics": sorted(access_scope.topics or ()),
        "any_type": access_scope.types is None,
        "types": sorted(access_scope.types or ()),
        "any_agent": access_scope.agent_id is None,
        "agent": access_scope.agent_id or "",
        "any_container": access_scope.containers is None,
        "containers": sorted(access_scope.containers or ()),
        "any_tags": not access_scope.tags,
        "tags": sorted(access_scope.tags),
        "any_metadata": not access_scope.metadata,
        "metadata": Document({name: json.loads(value) for name, value in access_scope.metadata}),
        "any_time": all(getattr(access_scope, one) is None for one in (*AFTER, *BEFORE)),
        **{one: getattr(access_scope, one) or EARLIEST for one in AFTER},
        **{one: getattr(access_scope, one) or LATEST for one in BEFORE},
        "any_expiry": all(getattr(access_scope, one) is None for one in EXPIRY),
        "any_source": access_scope.app is None and access_scope.group_id is None,
        "from_app": access_scope.app or "",
        "from_group": access_scope.group_id or "",
        "any_layer": access_scope.layers is None,
        "layers": sorted(access_scope.layers or ()),
    }


BY_ID = MappingProxyType({"after": "id"})


class BoundTable:
    """The queries of one table, over one connection."""

    def __init__(self, bound: BoundConnection) -> None:
        self._bound = bound

    async def _first(self, read: Callable[[Row], T], query: str, **params: Any) -> T | None:
        """Return what `read` makes of the first row of a query; None if there is no row."""
        rows = await self._bound.fetch(query, **params)
        return read(rows[0]) if rows else None

    async def _all(self, read: Callable[[Row], T], query: str, **params: Any) -> list[T]:
        """Return what `read` makes of each row of a query."""
        return [read(row) for row in await self._bound.fetch(query, **params)]

    async def _column(self, column: str, query: str, **params: Any) -> list[Any]:
        """Return a column of the rows of a query."""
        return [row[column] for row in await self._bound.fetch(query, **params)]

    async def _int(self, column: str, query: str, **params: Any) -> int:
        """Return a number that a query returns in its only row; 0 stands for NULL."""
        (row,) = await self._bound.fetch(query, **params)
        return int(row[column] or 0)

    async def _by_ids(self, query: str, ids: Iterable[str], **params: Any) -> Sequence[Row]:
        """Return the rows of these ids, without a statement if there are none."""
        wanted = sorted(set(ids))
        return await self._bound.fetch(query, ids=wanted, **params) if wanted else []

    async def _pages(
        self, query: str, limit: int, keys: Mapping[str, str] = BY_ID, **params: Any
    ) -> AsyncIterator[Sequence[Row]]:
        """Yield the rows of a query page by page, in the order of `keys`: the parameters for the
        end of the last page, each with its column.
        """
        place: dict[str, Any] = dict.fromkeys(keys, "") | params
        while rows := await self._bound.fetch(query, limit=limit, **place):
            yield rows
            if len(rows) < limit:
                return
            place |= {name: rows[-1][column] for name, column in keys.items()}


@dataclass(frozen=True)
class Autocommit:
    """A `Connection` that runs each `fetch` or `fetch_each` in a read transaction of its own.
    Everything that needs a shared transaction raises `LookupError`.
    """

    driver: Driver
    namespace: str | None

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        (rows,) = await self.driver.autocommit([(sql, params)], namespace=self.namespace)
        return rows

    async def fetch_each(self, statements: Sequence[Statement]) -> list[Sequence[Row]]:
        return await self.driver.autocommit(statements, namespace=self.namespace)

    async def send(self, sql: str, params: Params) -> NoReturn:
        raise LookupError(_why(sql, params))

    async def expect(self, sql: str, params: Params, otherwise: Failure) -> NoReturn:
        raise LookupError(_why(sql, params)) from otherwise

    async def many(self, sql: str, rows: Sequence[Params]) -> NoReturn:
        raise LookupError(_why(sql, *rows))

    async def script(self, sql: str) -> NoReturn:
        raise LookupError(_why(sql))


def _why(sql: str, *given: Params) -> str:
    return f"it takes a transaction to send this, with {len(given)} sets of parameters: {sql}"
