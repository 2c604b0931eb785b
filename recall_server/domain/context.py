"""The caller on whose behalf a service acts, and the process in which it acts."""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from recall_server.domain.audit import AuditEntry
from recall_server.domain.ids import Namespace, new_id
from recall_server.domain.permissions import FULL_ACCESS, AccessScope

T = TypeVar("T")


@dataclass(frozen=True)
class Context:
    """The audit record of an operation, and the caller's access scope. If the call asks for a part
    of it, `scope` is the part, and `whole_scope` all that the token may access.

    A service fills in the record; the transaction of the effect writes it.
    """

    entry: AuditEntry
    scope: AccessScope = FULL_ACCESS
    whole_scope: AccessScope | None = None

    @property
    def caller_scope(self) -> AccessScope:
        """All that the caller's token may access."""
        return self.scope if self.whole_scope is None else self.whole_scope

    def narrowed(self, scope: AccessScope) -> "Context":
        """Return the context of a call that asks for this part."""
        return replace(self, scope=scope, whole_scope=self.caller_scope)

    @property
    def namespace(self) -> Namespace:
        return self.entry.namespace


class Compute(Protocol):
    """Computes what would delay the event loop: a function of a module, which depends on nothing
    but its arguments. These and its result can be pickled.
    """

    async def __call__(
        self, function: Callable[..., T], /, *given: Any, owner: Hashable = None
    ) -> T:
        """Return `function(*given)`, or raise what it raises. What is computed for one owner waits
        for what came before of the same, and takes turns with that of others.
        """


async def in_thread(function: Callable[..., T], /, *given: Any, owner: Hashable = None) -> T:  # noqa: ARG001
    """See `Compute`: in one of the threads of this process."""
    return await asyncio.to_thread(function, *given)


@dataclass(frozen=True)
class Runtime:
    """The clock, the random source and the worker of a process. `wake` makes the worker look for
    jobs now, `wake_pushes` for pushes to deliver; `lease` is how long it holds a job. `compute`
    runs long functions.
    """

    now: Callable[[], datetime]
    random_bytes: Callable[[int], bytes]
    wake: Callable[[], None]
    lease: timedelta
    wake_pushes: Callable[[], None] = lambda: None
    compute: Compute = in_thread

    def new_id(self, prefix: str) -> str:
        return new_id(prefix, self.now(), self.random_bytes(10))
