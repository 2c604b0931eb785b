"""Token vectors of texts that were scored before: computing them is what re-ranking costs."""

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


class _NamespaceTokens:
    """The token vectors of one namespace, as of one epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.of: OrderedDict[bytes, Tokens] = OrderedDict()


class TokenVectors:
    """The token vectors of the texts scored last, within `bytes_max`, apart for each namespace: no
    search is faster, or reveals anything, because of another namespace. Of the namespace not
    searched for longest, the text not scored for longest is dropped first.

    One thread uses it; `forget` may be called from any.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._namespaces: OrderedDict[Namespace, _NamespaceTokens] = OrderedDict()

    @property
    def bytes(self) -> int:
        return sum(
            one.nbytes for tokens in list(self._namespaces.values()) for one in tokens.of.values()
        )

    def of(
        self,
        namespace: Namespace,
        epoch: int,
        texts: Sequence[str],
        make: Callable[[list[str]], Sequence[Tokens]],
    ) -> list[Tokens]:
        """The token vectors of `texts`, in their order; `make` makes those that are not
        cached. Nothing stays cached from before the latest epoch.
        """
        tokens = self._of(namespace, epoch)
        keys = [blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in tokens.of}
        if missing:
            tokens.of.update(zip(missing, make(list(missing.values())), strict=True))
        found = [tokens.of[key] for key in keys]
        for key in keys:
            tokens.of.move_to_end(key)
        self._trim()
        return found

    def forget(self, namespace: Namespace) -> None:
        """Cache nothing of a namespace."""
        self._namespaces.pop(namespace, None)

    def _of(self, namespace: Namespace, epoch: int) -> _NamespaceTokens:
        tokens = self._namespaces.get(namespace)
        if tokens is None or tokens.epoch < epoch:
            tokens = self._namespaces[namespace] = _NamespaceTokens(epoch)
        elif tokens.epoch > epoch:
            # A reader that still sees the state before the erasure must not bring it back.
            return _NamespaceTokens(epoch)
        self._namespaces.move_to_end(namespace)
        return tokens

    def _trim(self) -> None:
        over = self.bytes - self._bytes_max
        while over > 0 and self._namespaces:
            namespace, tokens = next(iter(self._namespaces.items()))
            while tokens.of and over > 0:
                _, gone = tokens.of.popitem(last=False)
                over -= gone.nbytes
            if not tokens.of:
                self._namespaces.pop(namespace, None)
