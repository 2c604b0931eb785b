"""What is held in memory of the namespaces searched last, within a budget."""

from collections import OrderedDict

from recall_server.domain.model import Namespace
from recall_server.storage.documents import Documents
from recall_server.storage.matrix import Matrix


class Held:
    """Of one namespace, as of one erasure: nothing that was erased before it."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.documents = Documents()
        self._matrices: dict[str, Matrix] = {}

    @property
    def bytes(self) -> int:
        return self.documents.bytes + sum(matrix.bytes for matrix in self._matrices.values())

    def matrix(self, model: str, dimensions: int) -> Matrix:
        return self._matrices.setdefault(model, Matrix(dimensions))


class Cache:
    """All that is held, `bytes_max` of it at most."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: OrderedDict[Namespace, Held] = OrderedDict()

    def of(self, namespace: Namespace, epoch: int) -> Held:
        """What is held of a namespace as of `epoch`."""
        held = self._held.setdefault(namespace, Held(epoch))
        if held.epoch > epoch:
            # Who still sees the state before the erasure must not put it back for the others.
            return Held(epoch)
        if held.epoch < epoch:
            held = self._held[namespace] = Held(epoch)
        self._held.move_to_end(namespace)
        return held

    def trim(self) -> None:
        """Hold no more than the budget, but for the vectors and documents searched last."""
        over = self._total() - self._bytes_max
        while len(self._held) > 1 and over > 0:
            over -= self._held.popitem(last=False)[1].bytes
        if over > 0 and self._held:
            (last,) = self._held.values()
            if not last.documents.loading.locked():
                last.documents.forget_terms(over)

    def drop(self, namespace: Namespace) -> None:
        """Hold nothing of a namespace."""
        self._held.pop(namespace, None)

    def _total(self) -> int:
        return sum(held.bytes for held in self._held.values())
