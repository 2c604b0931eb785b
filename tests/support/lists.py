"""The postings of a namespace, read from its lists."""

from typing import Any

from recall_server.domain.ids import Namespace
from recall_server.storage.index.documents import numbers_of
from recall_server.storage.store import Store
from tests.support.conversation import ALICE
from tests.support.erasure import select

LISTS = "SELECT term, found FROM {0} WHERE namespace = '{1}'"
CLOSING = (
    "INSERT INTO postings (namespace, term, slot, found) SELECT namespace, term, last_slot, found"
    " FROM terms WHERE namespace = '{}' AND found <> ''"
)
ENTRIES = "SELECT slot, item_id, findable, added_at FROM documents WHERE namespace = '{}'"


async def listed(store: Store, namespace: Namespace = ALICE) -> list[dict[str, Any]]:
    """Return each posting with its entry: `item_id` is None if it has none."""
    rows = await select(store, ENTRIES.format(namespace), namespace)
    entries = {row["slot"]: row for row in rows}
    none = {"item_id": None, "findable": False, "added_at": None}
    found = []
    for table in ("postings", "terms"):
        for row in await select(store, LISTS.format(table, namespace), namespace):
            for slot, occurrences, length in numbers_of(row["found"]).tolist():
                entry = {**none, **entries.get(slot, {}), "slot": slot}
                said = {"term": row["term"], "occurrences": occurrences, "length": length}
                found.append({**entry, **said})
    return found


async def closed(store: Store, namespace: Namespace = ALICE) -> None:
    """Close all lists, as if they were long."""
    async with store.driver.transaction(namespace=namespace, write=True) as raw:
        for sql in (
            CLOSING,
            "UPDATE terms SET found = '' WHERE namespace = '{}'",
        ):
            await raw.fetch(sql.format(namespace), {})
