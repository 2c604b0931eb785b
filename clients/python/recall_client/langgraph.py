"""LangGraph's `BaseStore` on recall-server: graphs share this memory, and it outlives them.

The tuple of a namespace is a container, so that a token can be limited to it. A put on an existing
key is a new version; `history` shows the others. A delete forgets all of them. The store has no
index settings and no time to live: the server finds everything by words and vectors.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from recall_client._documents import Documents, HeldBack, content
from recall_client._sync_client import RecallClient
from recall_client.models import Text

VIA = "langgraph"
Namespace = tuple[str, ...]
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
# The most hits of one search of the server.
_HITS_MAX = 50
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": lambda one, other: float(one) > float(other),
    "$gte": lambda one, other: float(one) >= float(other),
    "$lt": lambda one, other: float(one) < float(other),
    "$lte": lambda one, other: float(one) <= float(other),
    "$eq": lambda one, other: one == other,
    "$ne": lambda one, other: one != other,
}


class RecallStore(BaseStore):
    """The caller closes `client`."""

    def __init__(self, client: RecallClient) -> None:
        self._client = client
        self._documents = Documents(client, VIA)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations. Reads see the state before the batch; of several puts on a key the last
        one counts.
        """
        results: list[Result] = []
        puts: dict[tuple[Namespace, str], PutOp] = {}
        for op in ops:
            results.append(None if isinstance(op, PutOp) else self._read(op))
            if isinstance(op, PutOp):
                puts[op.namespace, op.key] = op
        for put in puts.values():
            self._put(put)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, list(ops))

    def history(self, namespace: Namespace, key: str) -> list[Item]:
        """Return all versions of an item, newest first."""
        versions = self._documents.history(container_of(namespace), key)
        return [_item(namespace, one) for one in versions]

    def _read(self, op: GetOp | SearchOp | ListNamespacesOp) -> Result:
        if isinstance(op, GetOp):
            found = self._documents.get(container_of(op.namespace), op.key)
            return _item(op.namespace, found) if found else None
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        items = self._found(op) if op.query else self._listed(op.namespace_prefix)
        wanted = (one for one in items if _matches(one.value, op.filter or {}))
        return [one for number, one in enumerate(_upto(wanted, op.offset + op.limit))
                if number >= op.offset]  # fmt: skip

    def _put(self, op: PutOp) -> None:
        container = container_of(op.namespace)
        if op.value is None:
            self._documents.delete(container, op.key)
            return
        before = self._documents.get(container, op.key)
        self._documents.put(
            container,
            op.key,
            json.dumps(op.value, ensure_ascii=False, indent=1),
            tags=[_tag(op.namespace[:depth]) for depth in range(len(op.namespace) + 1)],
            namespace=json.dumps(op.namespace, ensure_ascii=False),
            created=before.metadata["created"] if before else datetime.now(UTC).isoformat(),
            indexed=op.index is not False,
        )

    def _listed(self, prefix: Namespace) -> Iterator[SearchItem]:
        for one in self._documents.current(tags=[_tag(prefix)]):
            yield _search_item(one, None)

    def _found(self, op: SearchOp) -> Iterator[SearchItem]:
        """Return the hits of the server, best first, that are in the newest versions."""
        found = self._client.search_memories(
            op.query or "", tags=[_tag(op.namespace_prefix)], limit=_HITS_MAX, explain=True
        )
        seen = set()
        for hit in found.results:
            place = (hit.container or "", str(hit.metadata["key"]))
            if place in seen or not hit.metadata["indexed"]:
                continue
            seen.add(place)
            newest = self._documents.get(*place)
            if newest and hit.id.partition(".")[0] == newest.id:
                yield _search_item(newest, hit.score)

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        all_ = {_namespace(one) for one in self._documents.current(tags=[_tag(())])}
        matching = {
            one
            for one in all_
            if all(_in_place(condition, one) for condition in op.match_conditions or ())
        }
        cut = {one[: op.max_depth] for one in matching} if op.max_depth is not None else matching
        return sorted(cut)[op.offset : op.offset + op.limit]


def container_of(namespace: Namespace) -> str:
    """Return the container of a namespace: its parts between slashes, with `_` and two hexadecimal
    digits for each byte that is not a letter or digit.
    """
    parts = [
        "".join(sign if sign in _PLAIN else _bytes(sign) for sign in part) for part in namespace
    ]
    return "/".join([VIA, *parts])


def _bytes(sign: str) -> str:
    return "".join(f"_{byte:02x}" for byte in sign.encode())


def _tag(prefix: Namespace) -> str:
    """Return the tag of all items at and below a namespace."""
    named = json.dumps(prefix, ensure_ascii=False).encode()
    return f"{VIA}:{hashlib.sha256(named).hexdigest()[:32]}"


def _namespace(one: Text) -> Namespace:
    return tuple(json.loads(one.metadata["namespace"]))


def _value(one: Text) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(content(one))
    return value


def _item(namespace: Namespace, one: Text) -> Item:
    return Item(
        value=_value(one),
        key=one.metadata["key"],
        namespace=namespace,
        created_at=datetime.fromisoformat(one.metadata["created"]),
        updated_at=one.created_at or datetime.now(UTC),
    )


def _search_item(one: Text, score: float | None) -> SearchItem:
    try:
        value = _value(one)
    except HeldBack:  # one of many: it must not hide the others
        value = {}
    return SearchItem(
        namespace=_namespace(one),
        key=one.metadata["key"],
        value=value,
        created_at=datetime.fromisoformat(one.metadata["created"]),
        updated_at=one.created_at or datetime.now(UTC),
        score=score,
    )


def _upto(items: Iterator[SearchItem], count: int) -> Iterator[SearchItem]:
    """Return the first `count`, and ask for no further page."""
    for _, one in zip(range(count), items, strict=False):
        yield one


def _in_place(condition: MatchCondition, namespace: Namespace) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    of = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return not path or all(given in ("*", part) for given, part in zip(path, of, strict=True))


def _matches(value: Any, wanted: Any) -> bool:
    """Return True if a value matches a filter: values, or comparisons such as {"$gt": 3}."""
    if not isinstance(wanted, dict):
        return bool(value == wanted)
    if any(name.startswith("$") for name in wanted):
        return all(_COMPARED[name](value, other) for name, other in wanted.items())
    return isinstance(value, dict) and all(
        _matches(value.get(name), other) for name, other in wanted.items()
    )
