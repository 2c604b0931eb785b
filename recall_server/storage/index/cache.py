"""The indexes of the namespaces that were searched last, in memory, within a budget."""

from collections import OrderedDict

from recall_server.domain.namespace import Namespace
from recall_server.storage.index.documents import Documents
from recall_server.storage.index.vector_cache import VectorCache


class NamespaceIndex:
    """The index of one namespace as of one erase epoch: it has nothing that was erased before."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.documents = Documents()
        self._vectors: dict[str, VectorCache] = {}
        # The bytes at the last count.
        self.counted = 0

    @property
    def bytes(self) -> int:
        return self.documents.bytes + sum(cache.bytes for cache in self._vectors.values())

    def vectors(self, model: str, dimensions: int) -> VectorCache:
        cache = self._vectors.get(model)
        if cache is None:
            cache = self._vectors[model] = VectorCache(dimensions)
        return cache


class Cache:
    """The indexes of several namespaces, `bytes_max` in all."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._indexes: OrderedDict[Namespace, NamespaceIndex] = OrderedDict()

    @property
    def bytes(self) -> int:
        return self._bytes

    def index(self, namespace: Namespace, epoch: int) -> NamespaceIndex:
        """Return the index of a namespace as of `epoch`."""
        index = self._indexes.get(namespace)
        if index is not None and index.epoch > epoch:
            # A reader that still sees the state before the erasure must not bring it back.
            return NamespaceIndex(epoch)
        if index is None or index.epoch < epoch:
            self.drop(namespace)
            index = self._indexes[namespace] = NamespaceIndex(epoch)
        self._indexes.move_to_end(namespace)
        return index

    def trim(self, namespace: Namespace) -> None:
        """Count what a search has added to a namespace, and keep to the budget: drop first the
        least recently searched namespaces, then the least recently used postings of this one.
        """
        index = self._indexes.get(namespace)
        if index is None:
            return
        self._count(index)
        while len(self._indexes) > 1 and self._bytes > self._bytes_max:
            self._bytes -= self._indexes.popitem(last=False)[1].counted
        over = self._bytes - self._bytes_max
        if over > 0 and namespace in self._indexes and not index.documents.loading.locked():
            index.documents.forget_terms(over)
            self._count(index)

    def _count(self, index: NamespaceIndex) -> None:
        counted = index.bytes
        self._bytes += counted - index.counted
        index.counted = counted

    def drop(self, namespace: Namespace) -> None:
        """Drop the index of a namespace."""
        if (index := self._indexes.pop(namespace, None)) is not None:
            self._bytes -= index.counted
