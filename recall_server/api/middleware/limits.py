"""Limits of one caller: calls a minute, and calls that are worked on at once. Pure ASGI,
behind authentication, the same for all protocols.
"""

import asyncio
import math
from collections.abc import Callable

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recall_server.api.caller import admitted
from recall_server.domain.errors import Busy, RateLimited, RecallError
from recall_server.domain.fair_semaphore import FairSemaphore
from recall_server.domain.namespace import Namespace
from recall_server.services.limits.rates import Rates

log = structlog.get_logger()

Refusal = Callable[[Scope, RecallError], Response]

BUSY_AGAIN_S = 1
WAITING_MAX = 512
_TURN = "recall.turn"


class Turn:
    """The place of a call among those that are worked on. It ends as the answer begins, or before,
    where the call only waits for something to happen.
    """

    def __init__(self, turns: FairSemaphore, namespace: Namespace) -> None:
        self._turns = turns
        self._namespace = namespace
        self._over = False

    def end(self) -> None:
        if not self._over:
            self._over = True
            self._turns.release(self._namespace)


def turn_of(scope: Scope) -> Turn:
    """The turn of the request at hand."""
    turn: Turn = scope[_TURN]
    return turn


class Limits:
    """Refuses with 429 the calls that are too many in a minute, lets wait those that are too many
    at once, and refuses with 503 those that have waited too long.
    """

    def __init__(
        self,
        app: ASGIApp,
        rates: Rates,
        *,
        turns: FairSemaphore,
        wait_s: float,
        refusal: Refusal,
    ) -> None:
        self._app = app
        self._rates = rates
        self._turns = turns
        self._wait_s = wait_s
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = admitted(scope)
        if caller is None:
            await self._app(scope, receive, send)
            return
        try:
            # A token does not get more calls by delegating itself.
            await self._rates.call(caller.namespace, caller.accessor.partition("/")[0])
            if self._turns.waiting(caller.namespace) >= WAITING_MAX:
                raise Busy
            async with asyncio.timeout(self._wait_s):
                await self._turns.acquire(caller.namespace)
        except (RecallError, TimeoutError) as raised:
            error = raised if isinstance(raised, RecallError) else Busy()
            log.info("refused", code=error.code, accessor=caller.accessor)
            response = self._refusal(scope, error)
            response.headers.update(again(error))
            await response(scope, receive, send)
            return
        turn = scope[_TURN] = Turn(self._turns, caller.namespace)

        async def ending(message: Message) -> None:
            turn.end()
            await send(message)

        try:
            await self._turns.yield_to_others(caller.namespace)
            await self._app(scope, receive, ending)
        finally:
            turn.end()


class FailedAuthThrottle:
    """Answers 429 instead of 401 to an address that has shown too many bad tokens. A good one is
    let in from there as ever: no client can lock out another.
    """

    def __init__(self, rates: Rates, refusal: Refusal) -> None:
        self._rates = rates
        self._refusal = refusal

    async def count(self, scope: Scope) -> Response | None:
        """Count one bad token. The answer to give instead of 401, where it was one too many."""
        try:
            await self._rates.bad_token(_address(scope))
        except RateLimited as error:
            response = self._refusal(scope, error)
            response.headers.update(again(error))
            return response
        return None


def again(error: RecallError) -> dict[str, str]:
    """The headers that say when to come again."""
    if isinstance(error, RateLimited):
        seconds = str(math.ceil(error.retry_after_s))
        return {
            "Retry-After": seconds,
            "RateLimit-Limit": str(error.limit),
            "RateLimit-Remaining": "0",
            "RateLimit-Reset": seconds,
        }
    return {"Retry-After": str(BUSY_AGAIN_S)}


def _address(scope: Scope) -> str:
    """Of the connection. What a header says of it could be anything."""
    client = scope.get("client")
    return client[0] if client else ""
