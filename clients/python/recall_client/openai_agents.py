"""A `Session` of the OpenAI Agents SDK on recall-server: the conversation outlives the program, and
memories are made of what is said in it.

    result = await Runner.run(agent, "I moved to Lisbon.", session=RecallSession("ana-1", client))

It does not import the SDK, whose `Session` is a protocol.
"""

import copy
import json
from collections.abc import AsyncIterator
from typing import Any

from recall_client._async_client import AsyncRecallClient
from recall_client._documents import content
from recall_client.models import Text

VIA = "openai-agents"
TOOL = "tool"
Item = dict[str, Any]
PAGE = 50
# The metadata of a text may have 4 KiB in all.
_REST_BYTES_MAX = 3_000


class RecallSession:
    """The items of one conversation. Each is a text of its own, in the order of their arrival.

    The words of messages are stored as texts of a conversation, so that memories are made of them,
    unless `remember` is False. Other items, such as calls of tools, are kept unchanged. Words that
    the server holds back, since they read like an order to a model, are left out of their item.
    """

    session_settings: Any = None

    def __init__(
        self,
        session_id: str,
        client: AsyncRecallClient,
        *,
        container: str | None = None,
        remember: bool = True,
    ) -> None:
        """The caller closes `client`."""
        self.session_id = session_id
        self._client = client
        self._container = container
        self._remember = remember

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """Return the latest `limit` items, or all, the oldest first."""
        if limit is None and self.session_settings is not None:
            limit = getattr(self.session_settings, "limit", None)
        found: list[Item] = []
        if limit is None or limit > 0:
            async for text in self._texts(limit or PAGE):
                found.append(_item(text))
                if len(found) == limit:
                    break
        return found[::-1]

    async def add_items(self, items: list[Item]) -> None:
        for item in items:
            rest, words = _parted(item)
            role = rest.get("role") or TOOL
            written = json.dumps(rest)
            if words.strip() and len(written) <= _REST_BYTES_MAX:
                await self._client.store_memory(
                    messages=[{"role": role, "content": words}],
                    infer=self._remember and role != TOOL,
                    metadata={"via": VIA, "item": written},
                    session_id=self.session_id,
                    container=self._container,
                )
            else:
                await self._client.store_memory(
                    json.dumps(item, ensure_ascii=False),
                    infer=False,
                    metadata={"via": VIA},
                    session_id=self.session_id,
                    container=self._container,
                )

    async def pop_item(self) -> Item | None:
        """Forget the latest item, and return it."""
        async for text in self._texts(1):
            await self._client.forget_text(text.id)
            return _item(text)
        return None

    async def clear_session(self) -> None:
        """Forget all items, and the memories that were made of them and of nothing else."""
        for text in [text async for text in self._texts(PAGE)]:
            await self._client.forget_text(text.id)

    async def _texts(self, first: int) -> AsyncIterator[Text]:
        """Yield the texts of this session, the latest first; the first page asks for `first`."""
        offset: int | None = 0
        while offset is not None:
            page = await self._client.list_texts(
                session_id=self.session_id,
                container=self._container,
                metadata={"via": VIA},
                limit=PAGE if offset else min(first, PAGE),
                offset=offset,
            )
            for one in page.texts:
                yield one
            offset = page.next_offset


def _parted(item: Item) -> tuple[Item, str]:
    """Return an item without its words, and its words; "" if it has none, or more than words."""
    rest = copy.deepcopy(item)
    holder, name = _place(rest)
    if holder is None:
        return rest, ""
    words = holder[name]
    holder[name] = ""
    return rest, words


def _place(item: Item) -> tuple[Item | None, str]:
    """Return the place of the words in a message, or in the answer of a tool."""
    for name in ("content", "output"):
        if isinstance(item.get(name), str):
            return item, name
    said = item.get("content")
    if isinstance(said, list) and len(said) == 1 and isinstance(said[0], dict):
        [part] = said
        if isinstance(part.get("text"), str):
            return part, "text"
    return None, ""


def _item(text: Text) -> Item:
    rest = text.metadata.get("item")
    if rest is None:
        item: Item = json.loads(content(text))
        return item
    item = json.loads(rest)
    holder, name = _place(item)
    assert holder is not None
    # The text has the speaker before the words.
    holder[name] = text.text.partition(": ")[2]
    return item
