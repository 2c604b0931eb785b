"""Answers that last, and the tokens that they are given to."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import Bearer

STREAMS, EXPORTS, CALLS = "streams", "exports", "calls"
KINDS = (STREAMS, EXPORTS, CALLS)


class OpenAnswers:
    """The streams, exports and calls that wait of this process. They end by themselves with their
    token: see `stands`.
    """

    def __init__(self) -> None:
        self._open: dict[object, tuple[Namespace, str, str]] = {}

    @contextmanager
    def counted(self, kind: str, namespace: Namespace, bearer: Bearer | None) -> Iterator[None]:
        """Count one more of a kind meanwhile; None is the operator, whom nobody revokes."""
        answer = object()
        if bearer is not None:
            self._open[answer] = (namespace, bearer.name, kind)
        try:
            yield
        finally:
            self._open.pop(answer, None)

    def count(self, namespace: Namespace, ended: Callable[[str], bool]) -> Counter[str]:
        """How many of each kind are open for the tokens for which `ended` is true."""
        return Counter(
            kind for held, name, kind in self._open.values() if held == namespace and ended(name)
        )

    def forget(self, namespace: Namespace, ended: Callable[[str], bool]) -> None:
        """Count these no more: they have been told as ended, though they may last a moment yet."""
        for answer, (held, name, _) in list(self._open.items()):
            if held == namespace and ended(name):
                del self._open[answer]
