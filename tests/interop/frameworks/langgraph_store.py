"""LangGraph's own store in memory and ours get the same calls and give the same answers."""

import asyncio
import os
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import get_runtime
from langgraph.store.base import BaseStore, GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from recall_client import RecallClient
from recall_client.langgraph import RecallStore

USERS = [("users", "ana@example"), ("users", "bo"), ("users", "bo", "notes"), ("teams", "Ü x_")]


def shown(item: Any) -> Any:
    return item and (item.namespace, item.key, item.value)


def found(items: Any) -> list[Any]:
    return sorted(map(shown, items), key=repr)


def both_agree(theirs: BaseStore, ours: BaseStore) -> None:
    for store in (theirs, ours):
        for number, namespace in enumerate(USERS):
            store.put(namespace, "prefs", {"colour": "teal", "n": number, "deep": {"a": [1, "ü"]}})
            store.put(namespace, "other key/ü", {"colour": "red", "n": number, "none": None})
        store.put(USERS[0], "prefs", {"colour": "blue", "n": 9})
        store.delete(USERS[1], "prefs")
        store.delete(USERS[1], "never there")
        store.put(USERS[2], "same", {"n": 1})
        store.put(USERS[2], "same too", {"n": 1})
        store.put(USERS[2], "counter", {"n": 1})
        store.put(USERS[2], "counter", {"n": 2})
    # Theirs lists each namespace that was asked for, so the test keeps only existing ones.
    for namespace in USERS:
        for key in ("prefs", "other key/ü", "same too", "counter", "never"):
            assert shown(ours.get(namespace, key)) == shown(theirs.get(namespace, key))
    for prefix in [(), ("users",), ("users", "bo"), ("user",), ("teams", "Ü x_")]:
        for given in (None, {"colour": "red"}, {"n": {"$gt": 1}}, {"n": {"$gte": 1, "$lt": 3}},
                      {"n": {"$ne": 1}}, {"deep": {"a": [1, "ü"]}}, {"none": None}):  # fmt: skip
            one, other = (
                found(store.search(prefix, filter=given, limit=50)) for store in (ours, theirs)
            )
            assert one == other, (prefix, given, one, other)
        pages = [ours.search(prefix, limit=3, offset=offset) for offset in (0, 3, 6, 9)]
        assert found([one for page in pages for one in page]) == found(
            theirs.search(prefix, limit=50)
        ), prefix
    for asked in ({}, {"prefix": ("users",)}, {"suffix": ("notes",)}, {"max_depth": 1},
                  {"prefix": ("*", "bo")}, {"limit": 2, "offset": 1}):  # fmt: skip
        assert ours.list_namespaces(**asked) == theirs.list_namespaces(**asked), asked
    ops = [
        PutOp(USERS[0], "batch", {"a": 1}),
        GetOp(USERS[0], "batch"),
        PutOp(USERS[0], "batch", {"a": 2}),
        SearchOp(("users",), {"colour": "blue"}, 10, 0),
        ListNamespacesOp((MatchCondition("prefix", ("teams",)),), None, 10, 0),
    ]
    answers = [store.batch(ops) for store in (ours, theirs)]
    assert [shown(answers[0][1]), found(answers[0][3]), answers[0][4]] == [
        shown(answers[1][1]),
        found(answers[1][3]),
        answers[1][4],
    ]
    assert ours.get(USERS[0], "batch").value == {"a": 2}


def versions_and_words(store: RecallStore) -> None:
    namespace = ("search", "ana")
    store.put(namespace, "home", {"text": "Ana lives in Porto."})
    first = store.get(namespace, "home")
    store.put(namespace, "home", {"text": "Ana lives in Lisbon."})
    store.put(namespace, "job", {"text": "Ana works as a baker."})
    store.put(namespace, "hidden", {"text": "Ana lives in Narnia."}, index=False)
    second = store.get(namespace, "home")
    assert first is not None
    assert second is not None
    assert first.created_at == second.created_at
    assert first.updated_at <= second.updated_at
    assert [one.value["text"][-7:] for one in store.history(namespace, "home")] == [
        "Lisbon.",
        " Porto.",
    ]
    hits = store.search(("search",), query="Where does Ana live?")
    assert hits[0].value == {"text": "Ana lives in Lisbon."}
    assert hits[0].score is not None
    assert {hit.key for hit in hits} <= {"home", "job"}


class State(TypedDict):
    said: str


async def a_graph_remembers(store: BaseStore) -> None:
    async def remember(state: State) -> State:
        kept = get_runtime().store
        assert kept is not None
        before = await kept.aget(("graph",), "said")
        await kept.aput(("graph",), "said", {"text": state["said"]})
        return {"said": before.value["text"] if before else "nothing"}

    graph = StateGraph(State)
    graph.add_node("remember", remember)
    graph.add_edge(START, "remember")
    graph.add_edge("remember", END)
    compiled = graph.compile(store=store)
    assert (await compiled.ainvoke({"said": "one"}))["said"] == "nothing"
    assert (await compiled.ainvoke({"said": "two"}))["said"] == "one"


def main() -> None:
    with RecallClient.from_env() as client:
        store = RecallStore(client)
        both_agree(InMemoryStore(), store)
        print("ok langgraph: every operation as the store in memory")
        versions_and_words(store)
        print("ok langgraph: versions, and search by words")
        asyncio.run(a_graph_remembers(store))
        print("ok langgraph: a graph remembers")


if __name__ == "__main__":
    assert os.environ["RECALL_TOKEN"]
    main()
