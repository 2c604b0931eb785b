"""Texts: list, label and forget them, as they were stored."""

from typing import Any

from pydantic import Field

from recall_server.api import presenters
from recall_server.api.operations.intake import moment_given
from recall_server.api.operations.memories import Selection
from recall_server.api.operations.operation import (
    AGENTERNAL,
    ENGRAM,
    INT64_MAX,
    Arguments,
    Call,
    Http,
    Json,
    Mcp,
    Operation,
)
from recall_server.domain.episode import Episode
from recall_server.domain.permissions import AccessScope, Scope
from recall_server.services.memory.texts import TextPage

# The `expires_at` of a text that does not expire.
NEVER = "never"


class ListTexts(Selection):
    limit: int = Field(20, ge=1, le=50)
    offset: int = Field(0, ge=0, le=INT64_MAX)
    session_id: str = ""
    topic: str = ""


class GetEpisodes(ListTexts):
    """The arguments that Engram takes: by time range, source or group."""

    start_time: str = ""
    end_time: str = ""
    source: str = ""

    def narrowed(self, scope: AccessScope) -> AccessScope:
        times = {
            "said_after": moment_given(self.start_time, "start_time"),
            "said_before": moment_given(self.end_time, "end_time"),
        }
        return super().narrowed(scope).filtered(app=self.source, times=times)


class ListByDate(ListTexts):
    """The arguments that Agenternal takes."""

    start_date: str = ""
    end_date: str = ""

    def narrowed(self, scope: AccessScope) -> AccessScope:
        times = {
            "said_after": moment_given(self.start_date, "start_date"),
            "said_before": moment_given(self.end_date, "end_date"),
        }
        return super().narrowed(scope).filtered(times=times)


class OneText(Arguments):
    text_id: str


class UpdateText(OneText):
    """The fields to change; all others stay."""

    tags: list[str] | None = None
    metadata: dict[str, Any] | None = None
    expires_at: str = Field("", description=f"ISO date, time with zone, or {NEVER}")


class UpdateEpisode(Arguments):
    """The arguments that Engram takes."""

    episode_id: str
    tags: list[str] | None = None
    metadata: dict[str, Any] | None = None
    expired_at: str = ""


async def list_page(call: Call, given: ListTexts) -> TextPage:
    return await call.services.texts.page(
        given.context(call),
        limit=given.limit,
        offset=given.offset,
        session_id=given.session_id,
        topic=given.topic,
    )


async def update(call: Call, given: UpdateText | UpdateEpisode) -> tuple[Episode, str]:
    if isinstance(given, UpdateEpisode):
        given = UpdateText(
            text_id=given.episode_id,
            tags=given.tags,
            metadata=given.metadata,
            expires_at=given.expired_at,
        )
    if given.expires_at:
        # An expired text is no longer found.
        call.caller.rights.require(Scope.FORGET, whole_namespace=False)
    forever = given.expires_at == NEVER
    return await call.services.texts.update(
        call.context,
        given.text_id,
        tags=given.tags,
        metadata=given.metadata,
        expires_at=None if forever else moment_given(given.expires_at, "expires_at"),
        forever=forever,
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
    "List texts as they were sent, latest first by when they were said.",
    ListTexts,
    list_page,
    _page,
    ("texts", "next_offset"),
    http=(Http("GET", "/v1/texts"), Http("GET", "/api/v1/episodes", arguments=GetEpisodes)),
    mcp=Mcp(
        toolset=ENGRAM,
        aliases={
            "get_episodes": (GetEpisodes, ENGRAM),
            "conversation_search_date": (ListByDate, AGENTERNAL),
        },
        idempotent=True,
    ),
    cli="recall texts",
    read_only=True,
)
UPDATE_TEXT = Operation(
    "update_text",
    Scope.WRITE,
    "Change the tags, the metadata or the end of a text; its words stay as they are.",
    UpdateText,
    update,
    lambda changed, _: presenters.text(*changed),
    ("id", "tags", "metadata", "expires_at"),
    http=(
        Http("PATCH", "/v1/texts/{text_id}"),
        Http("PATCH", "/api/v1/episodes/{episode_id}", arguments=UpdateEpisode),
    ),
    mcp=Mcp(toolset=ENGRAM, aliases={"update_episode": (UpdateEpisode, ENGRAM)}, idempotent=True),
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

OPERATIONS = (LIST_TEXTS, UPDATE_TEXT, FORGET_TEXT)
