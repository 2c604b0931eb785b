"""Documents with versions, for frameworks that keep files or items under a key.

Each version is a text of its own, kept unchanged: the newest is the document, the others are its
history. A deleted document is forgotten with all of its versions.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from recall_client._sync_client import RecallClient
from recall_client.errors import Unavailable
from recall_client.models import Text

# The largest page that the server gives.
PAGE = 50
_EMPTY = "(empty)"


class HeldBack(Unavailable):
    """A part of this text was held back, since it reads like an order to a model."""

    code = "HELD_BACK"


class Documents:
    """The documents of one framework (`via`), identified by container and key."""

    def __init__(self, client: RecallClient, via: str) -> None:
        self._client = client
        self._via = via

    def put(
        self, container: str, key: str, content: str, tags: Sequence[str] = (), **labels: Any
    ) -> None:
        """Store a version. `labels` are added to its metadata."""
        metadata = {"via": self._via, "key": key, **labels}
        if not content:
            metadata["empty"] = True
        self._client.store_memory(
            content or _EMPTY, container=container, tags=tags, metadata=metadata, infer=False
        )

    def get(self, container: str, key: str) -> Text | None:
        """Return the newest version."""
        return next(self.history(container, key), None)

    def history(self, container: str, key: str) -> Iterator[Text]:
        """Return all versions, newest first."""
        return self._texts(container, (), key=key)

    def current(self, container: str | None = None, tags: Sequence[str] = ()) -> Iterator[Text]:
        """Return the newest version of each document; the last changed is first."""
        seen = set()
        for one in self._texts(container, tags):
            place = (one.container, one.metadata["key"])
            if place not in seen:
                seen.add(place)
                yield one

    def delete(self, container: str, key: str) -> bool:
        """Forget all versions; return False if there are none."""
        versions = [*self.history(container, key)]
        for one in versions:
            self._client.forget_text(one.id)
        return bool(versions)

    def _texts(self, container: str | None, tags: Sequence[str], **labels: str) -> Iterator[Text]:
        offset: int | None = 0
        while offset is not None:
            page = self._client.list_texts(
                container=container,
                tags=tags,
                metadata={"via": self._via, **labels},
                limit=1 if labels and not offset else PAGE,
                offset=offset,
            )
            yield from page.texts
            offset = page.next_offset


def content(of: Text) -> str:
    """Return the content of a version. Raises `HeldBack`."""
    if not of.whole:
        raise HeldBack(
            f"A part of {of.metadata.get('key', of.id)} was held back or is forgotten. An "
            "administrator finds it in the quarantine, and can release it."
        )
    return "" if of.metadata.get("empty") else of.text
