"""Queries that need no transaction around them: one journey to the engine instead of two."""

from collections.abc import Sequence
from typing import NoReturn

from recall_server.storage.driver import Driver, Params, Row


class Autocommit:
    """A `Connection` each of whose statements is a transaction by itself, and gives its rows. What
    is sent to be seen with something else cannot be sent here.
    """

    def __init__(
        self, driver: Driver, namespace: str | None, *, write: bool, lasting: bool
    ) -> None:
        self._driver = driver
        self._namespace = namespace
        self._write = write
        self._lasting = lasting

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        return await self._driver.autocommit(
            sql,
            params,
            namespace=self._namespace,
            write=self._write,
            lasting=self._lasting,
        )

    async def send(self, sql: str, params: Params) -> NoReturn:
        raise LookupError(_why(sql, params))

    async def ask(self, sql: str, params: Params) -> NoReturn:
        raise LookupError(_why(sql, params))

    async def expect(self, sql: str, params: Params, otherwise: Exception) -> NoReturn:
        raise LookupError(_why(sql, params)) from otherwise

    async def many(self, sql: str, rows: Sequence[Params]) -> NoReturn:
        raise LookupError(_why(sql, *rows))

    async def script(self, sql: str) -> NoReturn:
        raise LookupError(_why(sql))


def _why(sql: str, *given: Params) -> str:
    return f"it takes a transaction to send this, with {len(given)} sets of parameters: {sql}"
