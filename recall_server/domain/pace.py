"""How long the work of each key waits, so that no key gets more than a steady rate."""

from collections.abc import Hashable

# Beyond so many keys, those that nothing waits for are dropped.
KEYS_MAX = 1_000


class Pace:
    """Lets `per_s` of each key pass in a second, in the order in which it comes. Nothing waits for
    longer than `wait_max_s`.
    """

    def __init__(self, per_s: float, wait_max_s: float) -> None:
        self._per_s = per_s
        self._wait_max_s = wait_max_s
        self._passed_at: dict[Hashable, float] = {}

    def wait_s(self, key: Hashable, amount: float, now: float) -> float | None:
        """Return the seconds until all that came before this `amount` has passed; None if it may
        not wait that long, and is refused.
        """
        if len(self._passed_at) > KEYS_MAX:
            self._passed_at = {one: at for one, at in self._passed_at.items() if at > now}
        begins = max(now, self._passed_at.get(key, now))
        if begins - now > self._wait_max_s:
            return None
        self._passed_at[key] = begins + amount / self._per_s
        return begins - now
