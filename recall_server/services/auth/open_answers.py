"""Long-lasting answers, and the tokens that receive them."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import Bearer

STREAMS, EXPORTS, CALLS = "streams", "exports", "calls"
KINDS = (STREAMS, EXPORTS, CALLS)


class OpenAnswers:
    """The open streams, exports and waiting calls of this process. They end by themselves when
    their token ends: see `stands`.
    """

    def __init__(self) -> None:
        self._open: dict[object, tuple[Namespace, str, str]] = {}

    @contextmanager
    def counted(self, kind: str, namespace: Namespace, bearer: Bearer | None) -> Iterator[None]:
        """Count one more of a kind during the context; the operator (None) is not counted."""
        answer = object()
        if bearer is not None:
            self._open[answer] = (namespace, bearer.name, kind)
        try:
            yield
        finally:
            self._open.pop(answer, None)

    def count(self, namespace: Namespace, ended: Callable[[str], bool]) -> Counter[str]:
        """Return how many of each kind are open for the tokens for which `ended` is true."""
        return Counter(
            kind for held, name, kind in self._open.values() if held == namespace and ended(name)
        )

    def forget(self, namespace: Namespace, ended: Callable[[str], bool]) -> None:
        """Stop counting these: they were reported as ended, but may last a moment longer."""
        for answer, (held, name, _) in list(self._open.items()):
            if held == namespace and ended(name):
                del self._open[answer]
