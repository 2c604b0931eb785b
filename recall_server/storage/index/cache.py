"""What is held in memory of the namespaces searched last, within a budget."""

from collections import OrderedDict

from recall_server.domain.namespace import Namespace
from recall_server.storage.index.documents import Documents
from recall_server.storage.index.vector_cache import VectorCache


class Held:
    """Of one namespace, as of one erasure: nothing that was erased before it."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.documents = Documents()
        self._matrices: dict[str, VectorCache] = {}
        # What it counted for when it was weighed last.
        self.weight = 0

    @property
    def bytes(self) -> int:
        return self.documents.bytes + sum(matrix.bytes for matrix in self._matrices.values())

    def matrix(self, model: str, dimensions: int) -> VectorCache:
        return self._matrices.setdefault(model, VectorCache(dimensions))


class Cache:
    """All that is held, `bytes_max` of it at most."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._weight = 0
        self._held: OrderedDict[Namespace, Held] = OrderedDict()

    def of(self, namespace: Namespace, epoch: int) -> Held:
        """What is held of a namespace as of `epoch`."""
        held = self._held.setdefault(namespace, Held(epoch))
        if held.epoch > epoch:
            # Who still sees the state before the erasure must not put it back for the others.
            return Held(epoch)
        if held.epoch < epoch:
            self.drop(namespace)
            held = self._held[namespace] = Held(epoch)
        self._held.move_to_end(namespace)
        return held

    def weigh(self, namespace: Namespace) -> None:
        """Count what has come to a namespace, and make room for it: others go that were not
        searched lately, and of the last one the postings asked for longest ago.
        """
        held = self._held.get(namespace)
        if held is None:
            return
        self._count(held)
        while len(self._held) > 1 and self._weight > self._bytes_max:
            self._weight -= self._held.popitem(last=False)[1].weight
        over = self._weight - self._bytes_max
        if over > 0 and namespace in self._held and not held.documents.loading.locked():
            held.documents.forget_terms(over)
            self._count(held)

    def _count(self, held: Held) -> None:
        weight = held.bytes
        self._weight += weight - held.weight
        held.weight = weight

    def drop(self, namespace: Namespace) -> None:
        """Hold nothing of a namespace."""
        if (held := self._held.pop(namespace, None)) is not None:
            self._weight -= held.weight
