"""The conformance suite: what a store must do on every engine."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from recall_server.domain.episode import Citation, Span
from recall_server.domain.errors import Stale
from recall_server.domain.memory import Fact, Memory, MemoryType, Status
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.domain.plan import Reinforce
from recall_server.domain.search.index_entry import Findable
from recall_server.domain.task import Job, JobState
from recall_server.storage.index.vector_cache import Floats
from recall_server.storage.index.words import postings
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.jobs import Fenced
from tests.support.rows import ALICE, BOB, a_memory, an_episode, enter
from tests.support.runtime import NOON

LEASE = NOON + timedelta(minutes=5)


async def claim(store: Store, after: str = "") -> Job | None:
    async with store.transaction(None) as tx:
        return await tx.jobs.claim(after, NOON, LEASE)


async def fail_after(store: Store, write: Callable[[Transaction], Awaitable[object]]) -> None:
    async with store.transaction(ALICE) as tx:
        await write(tx)
        raise RuntimeError


async def add_job(tx: Transaction, job_id: str) -> None:
    await tx.jobs.add(job_id, "extract", {"episode_id": "ep_1"}, NOON)


async def test_an_episode_comes_back_as_it_was_handed_in(store: Store) -> None:
    await enter(store, ALICE)
    async with store.transaction(ALICE) as tx:
        assert await tx.episodes.add(an_episode(), "key", "digest")
    async with store.transaction(ALICE, write=False) as tx:
        assert await tx.episodes.get("ep_1") == an_episode()


async def test_a_used_key_adds_nothing_and_tells_the_first_answer(store: Store) -> None:
    await enter(store, ALICE)
    async with store.transaction(ALICE) as tx:
        assert await tx.episodes.add(an_episode(), "key", "digest")
        assert not await tx.episodes.add(an_episode("ep_2"), "key", "other")
        receipt = await tx.episodes.receipt("key")

        assert receipt is not None
        assert (
            receipt.episode_id,
            receipt.job_id,
            receipt.request_digest,
        ) == ("ep_1", "job_1", "digest")
        assert await tx.episodes.get("ep_2") is None


async def test_a_document_comes_back_as_text(store: Store) -> None:
    """A large one must not be read on the event loop."""
    await enter(store, ALICE)
    async with store.transaction(ALICE) as tx:
        await tx.jobs.add("job_1", "extract", {"episode_id": "ep_1"}, NOON)
        rows = await tx.bound.connection.fetch("SELECT payload FROM operations", {})

    assert json.loads(rows[0]["payload"]) == {"episode_id": "ep_1"}


async def test_two_namespaces_may_use_the_same_ids_and_keys(store: Store) -> None:
    await enter(store, ALICE, BOB)
    for namespace in (ALICE, BOB):
        async with store.transaction(namespace) as tx:
            assert await tx.episodes.add(an_episode(text=f"I am {namespace}."), "key", "digest")
    async with store.transaction(BOB, write=False) as tx:
        episode = await tx.episodes.get("ep_1")

        assert episode is not None
        assert episode.text == "I am bob."


async def test_a_memory_comes_back_with_the_words_it_cites(store: Store) -> None:
    await enter(store, ALICE)
    async with store.transaction(ALICE) as tx:
        await tx.episodes.add(an_episode(), "key", "digest")
        await tx.memories.add(a_memory())
    async with store.transaction(ALICE, write=False) as tx:
        found = (await tx.memories.get(["mem_1"]))["mem_1"]

        assert found.citation.quote == "I live in Oslo."
        assert found.citation.speaker == "Alice"
        assert found.fact == Fact("Alice", "lives_in", "Oslo")


async def test_a_quote_counts_characters_not_bytes(store: Store) -> None:
    await enter(store, ALICE)
    text = "Zoë 😀 likes смех."
    async with store.transaction(ALICE) as tx:
        await tx.episodes.add(an_episode(text=text), "key", "digest")
        memory = a_memory()
        await tx.memories.add(
            Memory(**{**vars(memory), "citation": Citation("ep_1", Span(4, len(text)))})
        )
        found = (await tx.memories.get(["mem_1"]))["mem_1"]

        assert found.citation.quote == text[4:]


async def test_a_memory_is_retired_once_and_keeps_its_history(store: Store) -> None:
    await enter(store, ALICE)
    async with store.transaction(ALICE) as tx:
        await tx.episodes.add(an_episode(), "key", "digest")
        await tx.memories.add(a_memory())
        await tx.memories.add(a_memory("mem_2", "Alice lives in Rome."))
        await tx.memories.retire(
            ["mem_1"], Status.SUPERSEDED, NOON, superseded_by="mem_2", valid_until=NOON
        )
        about = await tx.memories.about("alice", "lives_in")
        chain = await tx.memories.lineage("mem_2")

    for again in (["mem_1"], ["mem_1", "mem_2"]):
        with pytest.raises(Stale):
            async with store.transaction(ALICE) as tx:
                await tx.memories.retire(again, Status.FORGOTTEN, NOON)

    assert [memory.id for memory in about] == ["mem_2"]
    assert [memory.id for memory in chain] == ["mem_1", "mem_2"]


async def test_memories_are_reinforced_together_as_one_after_the_other(store: Store) -> None:
    """A memory that is said twice counts twice, and lasts as long as any of the two says."""
    await enter(store, ALICE)
    day, spans = timedelta(days=1), [Span(start, start + 1) for start in range(5)]
    cites = [Citation("ep_1", one) for one in spans]
    expiring = replace(a_memory("mem_2", "Alice lives in Rome."), expires_at=NOON + day)
    also = replace(expiring, id="mem_3")
    changes = [
        Reinforce("mem_1", cites[0], until=NOON),
        Reinforce("mem_2", cites[1], until=NOON + 3 * day),
        Reinforce("mem_2", cites[2], counts=False, until=NOON + 2 * day),
        Reinforce("mem_3", cites[3], until=NOON),
        Reinforce("mem_3", cites[4], until=None),
    ]
    async with store.transaction(ALICE) as tx:
        await tx.episodes.add(an_episode(), "key", "digest")
        for one in (a_memory(), expiring, also):
            await tx.memories.add(one)
        await tx.memories.reinforce(changes, NOON)
        found = await tx.memories.get(["mem_1", "mem_2", "mem_3"])
        cited = {one: [c.span for c in await tx.memories.citations([one])][1:] for one in found}

    for stale in (Reinforce("mem_0", None), Reinforce("mem_1", None, superseded=True)):
        for some in ([stale], [changes[0], stale]):
            with pytest.raises(Stale):
                async with store.transaction(ALICE) as tx:
                    await tx.memories.reinforce(some, NOON)

    assert [one.reinforcements for one in found.values()] == [1, 1, 2]
    assert [one.expires_at for one in found.values()] == [None, NOON + 3 * day, None]
    assert cited == {"mem_1": spans[:1], "mem_2": spans[1:3], "mem_3": spans[3:]}


async def test_active_memories_are_counted_by_type_and_topic_whoever_may_see_them(
    store: Store,
) -> None:
    await enter(store, ALICE, BOB)
    async with store.transaction(ALICE) as tx:
        await tx.episodes.add(an_episode(), "key", "")
        for number, (kind, topic) in enumerate(
            [("fact", "life"), ("fact", "work"), ("fact", "work"), ("decision", "work")]
        ):
            await tx.memories.add(
                replace(a_memory(f"mem_{number}"), type=MemoryType(kind), topic=topic)
            )
        await tx.memories.retire(["mem_1"], Status.FORGOTTEN, NOON)

    async def counts(access_scope: AccessScope = FULL_ACCESS, **only: str) -> dict[str, int]:
        async with store.transaction(ALICE, write=False, access_scope=access_scope) as tx:
            return {str(kind): count for kind, count in (await tx.memories.counts(**only)).items()}

    assert await counts() == {"fact": 2, "decision": 1}
    assert await counts(topic="work") == {"fact": 1, "decision": 1}
    assert await counts(type_="fact") == {"fact": 2}
    assert await counts(AccessScope(topics=frozenset({"life"}))) == {"fact": 1}
    assert await counts(AccessScope(types=frozenset({MemoryType.DECISION}))) == {"decision": 1}
    assert await counts(AccessScope(agent_id="nobody")) == {}
    async with store.transaction(ALICE) as tx:
        await tx.memories.restore(replace(a_memory("mem_1"), topic="work"), NOON)
    assert await counts() == {"fact": 3, "decision": 1}
    async with store.transaction(BOB, write=False) as tx:
        assert await tx.memories.counts() == {}


async def test_a_word_is_found_until_its_item_is_taken_out(store: Store) -> None:
    await enter(store, ALICE)
    words = postings(
        {"mem_1": Findable("Alice lives in Oslo"), "mem_2": Findable("Alice likes tea")}
    )
    async with store.transaction(ALICE) as tx:
        await tx.words.add(words)
        before = await tx.words.statistics(["oslo", "alic", "rome"])
        found = await tx.words.similar({"oslo": 2.0, "alic": 1.0}, before.average_length, 10)
        await tx.words.hide(postings({"mem_1": Findable("Alice lives in Oslo")}))
        after = await tx.words.statistics(["oslo", "alic", "rome"])
        left = await tx.words.similar({"alic": 1.0}, after.average_length, 10)

    assert found == ["mem_1", "mem_2"]
    assert before.frequencies == {"oslo": 1, "alic": 2}
    assert left == ["mem_2"]
    assert (after.documents, after.frequencies) == (1, {"alic": 1})


async def test_one_tenants_words_do_not_move_anothers_scores(store: Store) -> None:
    await enter(store, ALICE, BOB)
    async with store.transaction(ALICE) as tx:
        await tx.words.add(postings({"mem_1": Findable("a secret heron")}))
        before = await tx.words.statistics(["heron"])
    async with store.transaction(BOB) as tx:
        await tx.words.add(postings({f"mem_{i}": Findable("heron " * 5) for i in range(20)}))
    async with store.transaction(ALICE, write=False) as tx:
        assert await tx.words.statistics(["heron"]) == before
        assert await tx.words.similar({"heron": 1.0}, before.average_length, 10) == ["mem_1"]


async def near(store: Store, query: Floats) -> dict[int, float]:
    async with store.transaction(ALICE, write=False) as tx:
        known = await tx.words.statistics()
        allowed = (await tx.words.documents(known)).findable
        vectors = await tx.vectors.of_search("model", 2, known)
        found = await vectors.nearest(query, allowed, 5)
        cosines = await vectors.cosines(query, found)
    return dict(zip(found.tolist(), cosines.tolist(), strict=True))


async def test_a_vector_is_found_by_its_neighbour_until_its_item_is_taken_out(store: Store) -> None:
    await enter(store, ALICE)
    east, north = np.eye(2, dtype=np.float32)
    words = {name: postings({name: Findable(name)}) for name in ("east", "north")}
    async with store.transaction(ALICE) as tx:
        for one in words.values():
            await tx.words.add(one)
        # An item that search does not find has no vector.
        await tx.vectors.put("model", {"east": east, "north": north, "nowhere": north})

    assert await near(store, east) == {1: 1.0, 2: 0.0}
    async with store.transaction(ALICE) as tx:
        await tx.words.hide(words["east"])
    assert await near(store, east) == {2: 0.0}


async def test_an_error_leaves_nothing_behind(store: Store) -> None:
    await enter(store, ALICE)
    with pytest.raises(RuntimeError):
        await fail_after(store, lambda tx: tx.episodes.add(an_episode(), "key", "digest"))
    async with store.transaction(ALICE, write=False) as tx:
        assert await tx.episodes.get("ep_1") is None


async def test_a_cancelled_caller_leaves_nothing_behind(store: Store) -> None:
    await enter(store, ALICE)
    written = asyncio.Event()

    async def hang_up() -> None:
        async with store.transaction(ALICE) as tx:
            await tx.episodes.add(an_episode(), "key", "digest")
            written.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang_up())
    await written.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with store.transaction(ALICE) as tx:
        assert await tx.episodes.get("ep_1") is None
        assert await tx.episodes.add(an_episode(), "key", "digest")


async def test_others_write_until_a_planned_change_needs_rows(store: Store) -> None:
    """On SQLite they waited for what a caller computed before its first statement that reads."""
    await enter(store, ALICE)
    await enter(store, BOB)
    async with asyncio.timeout(60), store.transaction(ALICE, erasing=True) as tx:
        await tx.lock()
        assert tx.bound.namespace == ALICE
        async with store.transaction(BOB) as other:
            assert await other.episodes.add(an_episode(), "key", "digest")
        assert await tx.episodes.add(an_episode(), "key", "digest")
    for name in (ALICE, BOB):
        assert await store.autocommit(name).episodes.get("ep_1") == an_episode()


async def test_a_reader_sees_one_state_however_often_it_reads(store: Store) -> None:
    """On Postgres each statement saw what was committed before it: an undo that was planned beside
    an erasure found items without events.
    """
    await enter(store, ALICE)
    async with store.transaction(ALICE, write=False) as reader:
        before = await reader.episodes.get("ep_1")
        async with store.transaction(ALICE) as tx:
            assert await tx.episodes.add(an_episode(), "key", "digest")
        assert await reader.episodes.get("ep_1") == before
    assert await store.autocommit(ALICE).episodes.get("ep_1") == an_episode()


async def test_a_reader_cannot_write(store: Store) -> None:
    await enter(store, ALICE)
    with pytest.raises(Exception, match="read"):
        async with store.transaction(ALICE, write=False) as tx:
            await tx.episodes.add(an_episode(), "key", "digest")


async def test_a_handle_without_a_namespace_refuses_a_tenants_query(store: Store) -> None:
    async with store.transaction(None, write=False) as tx:
        with pytest.raises(LookupError, match="needs a namespace"):
            await tx.episodes.get("ep_1")


async def test_a_handle_with_a_namespace_refuses_a_query_for_all(store: Store) -> None:
    await enter(store, ALICE)
    async with store.transaction(ALICE, write=False) as tx:
        with pytest.raises(LookupError, match="serves all"):
            await tx.access.usage()


async def test_three_workers_never_claim_the_same_job(store: Store) -> None:
    await enter(store, ALICE)
    async with store.transaction(ALICE) as tx:
        for number in range(30):
            await add_job(tx, f"job_{number}")
    claimed: list[str] = []

    async def work() -> None:
        while job := await claim(store):
            claimed.append(job.id)

    await asyncio.gather(work(), work(), work())

    assert sorted(claimed) == sorted(f"job_{number}" for number in range(30))


async def test_namespaces_take_turns(store: Store) -> None:
    await enter(store, ALICE, BOB)
    async with store.transaction(ALICE) as tx:
        await add_job(tx, "job_1")
        await add_job(tx, "job_2")
    async with store.transaction(BOB) as tx:
        await add_job(tx, "job_1")
    first = await claim(store)
    assert first is not None
    second = await claim(store, after=first.namespace)

    assert second is not None
    assert (first.namespace, second.namespace) == (ALICE, BOB)


async def test_only_the_newest_attempt_may_finish_a_job(store: Store) -> None:
    await enter(store, ALICE)
    async with store.transaction(ALICE) as tx:
        await add_job(tx, "job_1")
    slow = await claim(store)
    assert slow is not None
    async with store.transaction(None) as tx:
        quick = await tx.jobs.claim("", LEASE, LEASE + timedelta(minutes=5))
    assert quick is not None

    async def finish_late() -> None:
        async with store.transaction(ALICE) as tx:
            await add_job(tx, "job_of_the_slow_one")
            await tx.jobs.finish(slow, NOON)

    with pytest.raises(Fenced):
        await finish_late()
    async with store.transaction(ALICE) as tx:
        await tx.jobs.finish(quick, NOON)
        assert await tx.jobs.state("job_1") is JobState.COMPLETE
        assert await tx.jobs.state("job_of_the_slow_one") is None

    assert (slow.failures, quick.failures) == (0, 1)


async def test_a_job_is_not_due_while_its_lease_runs(store: Store) -> None:
    await enter(store, ALICE)
    async with store.transaction(ALICE) as tx:
        await add_job(tx, "job_1")
    assert await claim(store) is not None
    assert await claim(store) is None


async def test_a_promise_made_in_a_failed_transaction_is_not_made(store: Store) -> None:
    await enter(store, ALICE)
    with pytest.raises(RuntimeError):
        await fail_after(store, lambda tx: add_job(tx, "job_1"))
    assert await claim(store) is None


async def test_a_revoked_token_says_so(store: Store) -> None:
    await enter(store, ALICE)
    async with store.transaction(ALICE) as tx:
        assert await tx.access.revoke(["acc_alice"], NOON)
        assert not await tx.access.revoke(["acc_alice"], NOON)
    async with store.transaction(None, write=False) as tx:
        token = await tx.access.by_hash("hash of alice")

        assert token is not None
        assert token.revoked_at == NOON


async def test_an_episode_cannot_be_changed(store: Store) -> None:
    await enter(store, ALICE)
    async with store.transaction(ALICE) as tx:
        await tx.episodes.add(an_episode(), "key", "digest")
    with pytest.raises(Exception, match=r"never changed|may not do that"):
        async with store.transaction(ALICE) as tx:
            await tx.bound.connection.fetch("UPDATE episodes SET text = 'other'", {})


def test_the_file_is_its_owners_alone(store: Store, database: Path | str) -> None:
    if isinstance(database, Path):
        assert database.stat().st_mode & 0o777 == 0o600


async def test_two_searches_that_read_the_same_changes_take_them_in_once(store: Store) -> None:
    await enter(store, ALICE)
    east = np.eye(2, dtype=np.float32)[0]
    async with store.transaction(ALICE) as tx:
        await tx.words.add(postings({"east": Findable("east")}))
        await tx.vectors.put("model", {"east": east})

    found = await asyncio.gather(*(near(store, east) for _ in range(3)))
    assert list(found) == [{1: 1.0}] * 3
