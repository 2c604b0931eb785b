"""Response times show nothing: the server sends the database the same statements, whatever the
secret.

The times themselves are measured by `python -m benchmarks timing`.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from benchmarks.measure import Measured
from benchmarks.timing import EXPIRED, FRESH, OTHERS, REVOKED, UNKNOWN, mann_whitney, report
from recall_server.application import Application
from recall_server.domain.errors import Unauthenticated
from recall_server.domain.ids import Namespace
from recall_server.services.auth import TokenRequest, new_token
from recall_server.services.memory.ingest import Submission
from recall_server.storage.driver import Connection, Statement
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter
from tests.support.runtime import Clock

BOB = Namespace("bob")


@dataclass
class Asked:
    """Record the texts of all statements from now on, in order."""

    statements: list[str] = field(default_factory=list)

    def of(self, application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
        driver = application.store.driver
        transaction, autocommit = driver.transaction, driver.autocommit

        async def noted_autocommit(statements: Sequence[Statement], **given: Any) -> Any:
            self.statements += [sql for sql, _ in statements]
            return await autocommit(statements, **given)

        @asynccontextmanager
        async def noted(**given: Any) -> AsyncIterator[Connection]:
            async with transaction(**given) as connection:
                for name in ("fetch", "send", "expect", "many"):
                    monkeypatch.setattr(connection, name, self._noting(getattr(connection, name)))
                yield connection

        monkeypatch.setattr(driver, "transaction", noted)
        monkeypatch.setattr(driver, "autocommit", noted_autocommit)

    def _noting(self, method: Any) -> Any:
        async def asked(sql: str, *given: Any) -> Any:
            self.statements.append(sql)
            return await method(sql, *given)

        return asked

    def taken(self) -> list[str]:
        found, self.statements = self.statements, []
        return found


async def test_a_refused_token_is_looked_up_once_whatever_is_wrong_with_it(
    open_app: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown, revoked and expired tokens cost one look-up, as a valid one does. A token of another
    form costs none.
    """
    async with open_app() as built:
        access = built.services.access
        good, revoked = await enter(built), await enter(built)
        expired, _ = await access.issue(
            context(built), wanted=TokenRequest(expires_in=timedelta(seconds=1))
        )
        await access.revoke(context(built), await access.verify(revoked), force=True)
        clock.pass_(timedelta(seconds=1))
        for token in (revoked, expired):  # The refusal is recorded once a minute.
            with pytest.raises(Unauthenticated):
                await access.verify(token)
        await access.verify(good)
        asked = Asked()
        asked.of(built, monkeypatch)
        found = []
        for token in (new_token(), revoked, expired):
            with pytest.raises(Unauthenticated):
                await access.verify(token)
            found.append(asked.taken())
        await access.verify(good)
        control = asked.taken()
        for token in ("hvs_" + good[4:], good + "0", good + " ", "", "\x00", "é"):
            with pytest.raises(Unauthenticated):
                await access.verify(token)

    assert found == [control] * 3
    assert len({one for one in control if "FROM api_tokens" in one}) == 1
    assert asked.taken() == []


async def test_a_token_is_looked_up_by_the_index_of_its_hash(open_app: Open) -> None:
    """The query never scans the tokens."""
    async with (
        open_app() as built,
        built.store.driver.transaction(namespace=None, write=False) as connection,
    ):
        plan = "EXPLAIN QUERY PLAN " if built.store.engine == "sqlite" else "EXPLAIN "
        if built.store.engine == "postgres":
            await connection.fetch("SET LOCAL enable_seqscan = off", {})
        query = built.store.autocommit(None).bound.queries["token_by_hash"].sql
        rows = await connection.fetch(plan + query, {"token_hash": "x"})
        scan = await connection.fetch(f"{plan}SELECT * FROM api_tokens WHERE label = 'x'", {})

    said = " ".join(str(dict(row)) for row in rows)
    assert "token_hash" in said, said
    assert "SCAN" not in said.upper().replace("INDEX SCAN", "").replace("BITMAP HEAP SCAN", ""), (
        said
    )
    assert "SCAN" in str([dict(row) for row in scan]).upper()  # The positive control.


async def test_to_store_what_another_has_is_to_store_what_nobody_has(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statements and the work are the same, to the last job. No look-up of a text, a vector or
    an answer goes beyond the namespace. A text that the own namespace has costs other statements.
    """
    async with open_app() as built:
        await enter(built)
        await enter(built, BOB)
        asked = Asked()
        asked.of(built, monkeypatch)
        embedded: list[Sequence[str]] = []
        assert built.embedder is not None
        model = built.embedder._embedder
        embed = model.embed

        async def noted(texts: Sequence[str]) -> Any:
            embedded.append(texts)
            return await embed(texts)

        monkeypatch.setattr(model, "embed", noted)

        async def stored(owner: Namespace, text: str, key: str | None = None) -> tuple[Any, int]:
            """Return the statements to the database, and the number of calls of the embedder."""
            asked.taken()
            embedded.clear()
            await built.services.ingest.remember(
                context(built, owner), Submission(text, "life", key)
            )
            await drained(built)
            return asked.taken(), len(embedded)

        await stored(BOB, "User: I live in Porto.")
        await stored(ALICE, "User: I keep a quokka.", "key")
        foreign = await stored(BOB, "User: I keep a quokka.", "key")
        fresh = await stored(BOB, "User: I keep a wombat.", "other")
        again = await stored(BOB, "User: I keep a wombat.", "other")

    assert foreign == fresh
    assert fresh[1] > 0
    assert again != fresh  # The positive control: a key shows what was stored before.


def _missed(p_of: tuple[list[float], list[float]], revoked: float) -> list[str]:
    times = {UNKNOWN: 1.0, REVOKED: revoked, EXPIRED: 1.0}
    tokens = [Measured(kind, 1.0, [took]) for kind, took in times.items()]
    stores = [Measured(OTHERS, 1.0, p_of[0]), Measured(FRESH, 1.0, p_of[1])]
    return report("sqlite", tokens, stores).missed


def test_the_benchmark_misses_where_times_tell_a_secret() -> None:
    same = [float(number) for number in range(40)]
    later = [number + 15.0 for number in same]

    assert mann_whitney(same, same) == 1.0
    assert mann_whitney([1.0] * 20, [1.0] * 20) == 1.0
    # These are the values of scipy 1's mannwhitneyu(..., method="asymptotic").
    assert mann_whitney(same, later) == pytest.approx(2.774470447699586e-06)
    assert mann_whitney(same, [one + 4 for one in same]) == pytest.approx(0.14480827378712163)
    assert _missed((same, same), 1.05) == []
    assert _missed((same, same), 1.15) == ["revoked token: p50 apart from unknown"]
    assert _missed((same, later), 1.0) == ["another's text or fresh text: p of no difference"]
