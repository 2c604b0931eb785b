"""Texts: list and forget them, as they were handed in."""

from pydantic import Field

from recall_server.api import presenters
from recall_server.api.arguments import INT64_MAX, Arguments
from recall_server.api.operations.memories import Selection
from recall_server.api.operations.operation import Call, Http, Json, Operation
from recall_server.domain.permissions import Scope
from recall_server.services.texts import TextPage


class ListTexts(Selection):
    limit: int = Field(20, ge=1, le=50)
    offset: int = Field(0, ge=0, le=INT64_MAX)
    session_id: str = ""
    topic: str = ""


class OneText(Arguments):
    text_id: str


async def list_page(call: Call, given: ListTexts) -> TextPage:
    return await call.services.texts.page(
        given.context(call),
        session_id=given.session_id,
        topic=given.topic,
        limit=given.limit,
        offset=given.offset,
    )


async def forget(call: Call, given: OneText) -> Json:
    return {"forgotten": await call.services.texts.forget(call.context, given.text_id)}


def _page(found: TextPage, _: ListTexts) -> Json:
    return {
        "texts": [presenters.text(one, words) for one, words in found.texts],
        "next_offset": found.next_offset,
    }


LIST_TEXTS = Operation(
    "list_texts",
    Scope.READ,
    "List texts as they were handed in, what was said last first.",
    ListTexts,
    list_page,
    _page,
    ("texts", "next_offset"),
    http=(Http("GET", "/v1/texts"),),
    read_only=True,
)
FORGET_TEXT = Operation(
    "forget_text",
    Scope.FORGET,
    "Forget a text, and the memories that no other text states; each can be restored.",
    OneText,
    forget,
    returns=("forgotten",),
    http=(Http("DELETE", "/v1/texts/{text_id}"),),
)

OPERATIONS = (LIST_TEXTS, FORGET_TEXT)
