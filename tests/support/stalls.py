"""Watches the event loop, and shows the stack of its longest step.

It counts the processor time of the loop's thread between two waits for events: if the machine does
other work, that thread waits longer and hardly works more. The work of other threads, such as a
client of the test, does not count.
"""

import asyncio
import gc
import selectors
import ssl
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

# No step may take longer on a machine that does nothing else.
STEP_MAX_S = 0.02
# The factor of processor time when other tests use the same caches and cores.
BUSY = 4.0
LOOK_S = 0.002
FRAMES = 12


class Watch:
    """The longest step of the loop, and the stack that was seen in it."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.stack = "nobody looked in time"
        self._thread = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._thread)
        self._begun = self._spent()
        self._seen = ""
        self._over = threading.Event()

    def check(self, step_max_s: float = BUSY * STEP_MAX_S) -> None:
        """Fail if a step took longer."""
        assert self.longest_s <= step_max_s, (
            f"the loop was held for {1000 * self.longest_s:.0f} ms of processor time, at\n"
            f"{self.stack}"
        )

    def begins(self) -> None:
        self._seen, self._begun = "", self._spent()

    def ends(self) -> None:
        took = self._spent() - self._begun
        if took > self.longest_s:
            self.longest_s, self.stack = took, self._seen or self.stack

    def look(self) -> None:
        """Record, from another thread, the stack of a step that lasts longer than any before."""
        while not self._over.wait(LOOK_S):
            begun = self._begun
            # Once: after the step its stack is gone.
            if not self._seen and self._spent() - begun > max(STEP_MAX_S / 2, self.longest_s):
                frame = sys._current_frames().get(self._thread)
                stack = "".join(traceback.format_stack(frame, FRAMES))
                if self._begun == begun:
                    self._seen = stack

    def end(self) -> None:
        self._over.set()

    def _spent(self) -> float:
        return time.clock_gettime(self._clock)


class _Selector:
    """The selector of a loop. It tells the watch of each step, so the loop need not turn to be
    watched: that would take a processor, and the interpreter from the threads that work.
    """

    def __init__(self, selector: selectors.BaseSelector, watch: Watch) -> None:
        self._selector, self._watch = selector, watch

    def select(self, timeout: float | None = None) -> Any:
        self._watch.ends()
        try:
            return self._selector.select(timeout)
        finally:
            self._watch.begins()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


@asynccontextmanager
async def watched() -> AsyncIterator[Watch]:
    """Watch the loop of the caller for as long as the block lasts."""
    # Objects that the test has made so far are not garbage of the server: see `server.serve`.
    # They stay so: else the collector would look at all that the run has imported, again and again.
    gc.collect()
    gc.freeze()
    switch = sys.getswitchinterval()
    sys.setswitchinterval(LOOK_S / 4)  # otherwise the watching thread waits for those that work
    watch = Watch()
    looking = threading.Thread(target=watch.look, daemon=True)
    looking.start()
    loop: Any = asyncio.get_running_loop()
    selector = loop._selector
    loop._selector = _Selector(selector, watch)
    await asyncio.sleep(0)
    try:
        yield watch
        await asyncio.sleep(0)
    finally:
        loop._selector = selector
        watch.end()
        looking.join()
        sys.setswitchinterval(switch)


def readers_of_certificates(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Return the threads that read a trust store from now on: reading takes 25 to 70 ms."""
    threads: set[int] = set()
    read = ssl.SSLContext.load_verify_locations

    def load_verify_locations(context: ssl.SSLContext, *args: Any, **given: Any) -> None:
        threads.add(threading.get_ident())
        read(context, *args, **given)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", load_verify_locations)
    return threads
