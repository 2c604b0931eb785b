"""The arguments that store a text: those of `store_memory`, and the bodies and names of other
memory servers. Each gives the same submission; no other module knows them.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from recall_server.api.operations.operation import Arguments, Call
from recall_server.domain.episode import TEXT_ONLY, Source, Utterance
from recall_server.domain.errors import Invalid, NamespaceNotAllowed
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import MemoryType
from recall_server.domain.moments import parse_moment
from recall_server.services.auth import CONTAINERS_MAX
from recall_server.services.memory.ingest import Submission


def moment_given(text: str | None, name: str) -> datetime | None:
    """Return the moment that an argument names; None if it is not given. Raises `Invalid`."""
    return parse_moment(text, name) if text else None


# A text with this tag is stored as with `infer` false.
NO_DERIVE = "no_derive"


class Message(Arguments):
    """One message of a conversation, as model APIs have them."""

    role: str
    content: str | None = None
    name: str | None = None
    at: str | None = None

    def utterance(self) -> Utterance:
        said_at = moment_given(self.at, "at of a message")
        return Utterance(self.role, self.content or "", self.name or None, said_at)


class Origin(Arguments):
    app: str | None = None
    model: str | None = None
    description: str | None = None


_UNKNOWN = Origin()


class Labelled(Protocol):
    session_id: str
    agent_id: str
    tags: list[str]
    metadata: dict[str, Any]
    source: Origin | None
    trace_id: str


def source_of(given: Labelled, client: str | None) -> Source:
    origin = given.source or _UNKNOWN
    return Source(
        session_id=given.session_id or None,
        agent_id=given.agent_id or None,
        client=client,
        tags=tuple(given.tags),
        metadata=given.metadata,
        app=origin.app,
        model=origin.model,
        description=origin.description,
        trace_id=given.trace_id or None,
    )


class StoreMemory(Arguments):
    empty_is_given = frozenset({"text"})

    text: str | None = None
    messages: list[Message] = Field(
        [], description="[{role, content, name?, at?}] in place of text"
    )
    topic: str = Field("general", description="context label")
    idempotency_key: str = Field("", description="same key and text: stored once")
    session_id: str = ""
    agent_id: str = ""
    container: str = ""
    tags: list[str] = Field([])
    occurred_at: str = Field("", description="ISO date, or time with zone")
    metadata: dict[str, Any] = Field({})
    source: Origin | None = Field(None, description="{app?, model?, description?}")
    trace_id: str = ""
    expires_at: str = ""
    infer: bool = True
    type: Annotated[MemoryType | None, Field(strict=False)] = Field(
        None, description="with infer false: kept as is"
    )
    user_message: str = Field("", description="with assistant_response: two messages")
    assistant_response: str = ""

    def submission(self, call: Call) -> Submission:
        """Return the submission. Raises `Invalid` if the arguments do not fit together."""
        sides = (("user", self.user_message), ("assistant", self.assistant_response))
        said = [Utterance(role, words) for role, words in sides if words]
        given = [self.text is not None, bool(self.messages), bool(said)]
        if not any(given):
            raise Invalid("There is nothing to store. Send text or messages.")
        if sum(given) > 1 and (self.text or said):
            raise Invalid("Send one of text, messages and user_message with assistant_response.")
        infer = self.infer and NO_DERIVE not in self.tags
        if infer and self.type:
            raise Invalid("type is of what is kept word for word. Send infer: false with it.")
        return Submission(
            self.text or "",
            self.topic,
            self.idempotency_key or None,
            source_of(self, call.client),
            self.container,
            tuple(said or (one.utterance() for one in self.messages)),
            moment_given(self.occurred_at, "occurred_at"),
            None if infer else self.type or TEXT_ONLY,
            moment_given(self.expires_at, "expires_at"),
        )


class Turn(Arguments):
    """One turn of a conversation, as aCMF has it."""

    user_message: str | None = None
    assistant_response: str | None = None
    occurred_at: str | None = None
    user_message_id: str | None = None
    assistant_message_id: str | None = None


class NamedContainer(Arguments):
    """A container in the form of aCMF; its type is ignored."""

    id: str
    type: str | None = None


class ScopePolicy(Arguments):
    """The scope policy of aCMF: only its defaults are accepted, since the token decides."""

    write_user: Literal["auto"] | None = None
    write_global: Literal["auto"] | None = None
    write_container: Literal[True] | None = None


class ProcessTurn(StoreMemory):
    """`store_memory`, or the body that aCMF takes after a turn."""

    user_id: str = ""
    turn: Turn | None = None
    containers: list[NamedContainer] = Field([], max_length=CONTAINERS_MAX)
    scope_policy: ScopePolicy | None = None

    def submission(self, call: Call) -> Submission:
        check_own(self.user_id, "user_id", call.caller.namespace)
        given: dict[str, Any] = {}
        if self.containers:
            if self.container:
                raise Invalid("Send one of container and containers.")
            named = {one.id for one in self.containers}
            if len(named) > 1:
                # Erasing a container erases its texts, so a text cannot be in two.
                raise Invalid(
                    "A text stands in one container. Send it once for each, or name the others in "
                    "tags."
                )
            given["container"] = self.containers[0].id
        if self.turn is not None:
            given |= self._of_turn(self.turn)
        return StoreMemory.submission(self.model_copy(update=given), call)

    def _of_turn(self, turn: Turn) -> Mapping[str, Any]:
        """Return the arguments that a turn stands for. Its `metadata` say where it comes from."""
        rest = dict(self.metadata)
        app, model, source, trace_id = (
            _label(rest.pop(name, None), name) for name in ("app", "model", "source", "trace_id")
        )
        ids = ("user_message_id", "assistant_message_id")
        rest |= {name: getattr(turn, name) for name in ids if getattr(turn, name)}
        return {
            "user_message": turn.user_message or self.user_message,
            "assistant_response": turn.assistant_response or self.assistant_response,
            "occurred_at": turn.occurred_at or self.occurred_at,
            "metadata": rest,
            "source": self.source or Origin(app=app, model=model, description=source),
            "trace_id": trace_id or self.trace_id,
        }


class RecordInteraction(Arguments):
    """The body that Camillo takes."""

    namespace: str = ""
    session_id: str = ""
    user_msg: str = ""
    ai_msg: str = ""

    def submission(self, call: Call) -> Submission:
        check_own(self.namespace, "namespace", call.caller.namespace)
        given = {"user_message": self.user_msg, "assistant_response": self.ai_msg}
        given["session_id"] = self.session_id
        return StoreMemory.parse(given, "record_interaction").submission(call)


class AddMemory(Arguments):
    """An episode as Engram takes it; with `infer` false it is stored without extraction."""

    content: str
    name: str = ""
    source: str = ""
    source_model: str = ""
    source_description: str = ""
    # As in Engram: a text without a group is in this one.
    group_id: str = "default"
    tags: list[str] = Field([])
    valid_at: str = ""
    metadata: dict[str, Any] = Field({})
    infer: bool = True

    def submission(self, call: Call) -> Submission:
        said_at = moment_given(self.valid_at, "valid_at")
        given = {
            "text": self.content,
            "tags": self.tags,
            "metadata": self.metadata,
            "source": {
                "app": self.source,
                "model": self.source_model,
                "description": self.source_description,
            },
            "infer": self.infer,
        }
        made = StoreMemory.parse(given, "add_memory").submission(call)
        source = replace(made.source, name=self.name or None, group_id=self.group_id)
        return replace(made, source=source, occurred_at=said_at)


def check_own(name: str, argument: str, namespace: Namespace) -> None:
    """Raise `NamespaceNotAllowed` if a caller names another namespace than that of its token,
    whether it exists or not.
    """
    if name not in ("", namespace):
        raise NamespaceNotAllowed(
            f"{argument} names another namespace than that of the token. Leave it out: the token "
            "says which one is meant."
        )


def _label(value: Any, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise Invalid(f"{name} of metadata must be a text beside a turn.")
