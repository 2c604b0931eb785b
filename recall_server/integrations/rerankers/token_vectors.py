"""Token vectors of texts that were looked at before: they are what a look at a text costs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.namespace import Namespace

Tokens = NDArray[np.float16]
"""A row of length 1 for each token of a text."""

_DIGEST_BYTES = 16


class _Shelf:
    """What is held of one namespace, as of one epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.of: OrderedDict[bytes, Tokens] = OrderedDict()


class TokenVectors:
    """The token vectors of the texts met last, within `bytes_max`, a shelf for each namespace: no
    search is the faster, or tells anything, for what another namespace holds. Of the namespace that
    was not searched for longest, what was not met for longest goes first.

    One thread uses it; `forget` may be called from any.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._shelves: OrderedDict[Namespace, _Shelf] = OrderedDict()

    @property
    def bytes(self) -> int:
        return sum(
            one.nbytes for shelf in list(self._shelves.values()) for one in shelf.of.values()
        )

    def of(
        self,
        namespace: Namespace,
        epoch: int,
        texts: Sequence[str],
        make: Callable[[list[str]], Sequence[Tokens]],
    ) -> list[Tokens]:
        """The token vectors of `texts`, in their order; `make` makes those that are not held.
        Nothing is held that was made before the epoch that is known last.
        """
        shelf = self._shelf(namespace, epoch)
        keys = [blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in shelf.of}
        if missing:
            shelf.of.update(zip(missing, make(list(missing.values())), strict=True))
        found = [shelf.of[key] for key in keys]
        for key in keys:
            shelf.of.move_to_end(key)
        self._trim()
        return found

    def forget(self, namespace: Namespace) -> None:
        """Hold nothing of a namespace."""
        self._shelves.pop(namespace, None)

    def _shelf(self, namespace: Namespace, epoch: int) -> _Shelf:
        shelf = self._shelves.get(namespace)
        if shelf is None or shelf.epoch < epoch:
            shelf = self._shelves[namespace] = _Shelf(epoch)
        elif shelf.epoch > epoch:
            # Who still sees the state before the erasure must not put it back for the others.
            return _Shelf(epoch)
        self._shelves.move_to_end(namespace)
        return shelf

    def _trim(self) -> None:
        over = self.bytes - self._bytes_max
        while over > 0 and self._shelves:
            namespace, shelf = next(iter(self._shelves.items()))
            while shelf.of and over > 0:
                _, gone = shelf.of.popitem(last=False)
                over -= gone.nbytes
            if not shelf.of:
                self._shelves.pop(namespace, None)
