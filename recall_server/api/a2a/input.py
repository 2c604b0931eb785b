"""What a message asks of the skill: a text, or a data part of its schema; or an answer."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from a2a.helpers import get_data_parts, get_text_parts
from a2a.types import Message, Role
from google.protobuf.json_format import MessageToDict, SerializeToJsonError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from recall_server.api.a2a.card import SKILL
from recall_server.api.middleware.request_validation import UnsupportedMedia
from recall_server.domain.containers import NONE
from recall_server.domain.episode import Source
from recall_server.domain.errors import Invalid, LimitReached
from recall_server.domain.plan import Policy
from recall_server.domain.task import Expiry, Mode, Request
from recall_server.domain.text.cleaning import clean_label, storable
from recall_server.services.memory.ingest import LABEL_CHARS_MAX

DEFAULT_TOPIC = "general"
ID_CHARS_MAX = 128
ANSWER_BYTES_MAX = 65_536
# Protobuf reads 100, and takes three for each level of JSON.
LEVELS_MAX = 20


class Consolidation(BaseModel):
    """The data part of a request; see `a2a_schema.INPUT_SCHEMA`."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    mode: Annotated[Mode | None, Field(strict=False)] = None
    text: str = ""
    topic: str = DEFAULT_TOPIC
    container: str = NONE
    policy: Annotated[Policy | None, Field(strict=False)] = None
    similarity_threshold: float = Field(0.85, ge=0, le=1)
    dry_run: bool = False
    plan_id: str = ""
    expires_in: float | None = None
    on_expiry: Annotated[Expiry, Field(strict=False)] = Expiry.KEEP_EXISTING
    session_id: str = ""
    agent_id: str = ""

    def request(self) -> Request:
        """Raises `Invalid` where the mode and what is given do not fit."""
        # Also where the text is empty: one that went missing must not turn into a merge.
        said = "text" in self.model_fields_set
        given = Mode.APPLY if self.plan_id else Mode.INGEST if said else Mode.MERGE
        mode = self.mode or given
        if mode is not given:
            raise Invalid("mode ingest takes a text, merge a topic only, and apply a plan_id only.")
        return Request(
            mode=mode,
            topic=self.topic,
            text=self.text,
            policy=self.policy,
            similarity_threshold=self.similarity_threshold,
            dry_run=self.dry_run,
            plan_id=checked_id(self.plan_id, "plan_id"),
            expires_in_s=self.expires_in,
            on_expiry=self.on_expiry,
            source=Source(
                _label(self.session_id, "session_id"), _label(self.agent_id, "agent_id"), "a2a"
            ),
            container=self.container,
        )


def _label(text: str, name: str) -> str | None:
    return clean_label(text, name, chars_max=LABEL_CHARS_MAX) if text else None


def consolidation(given: Mapping[str, Any]) -> Request:
    """The request in a JSON object. Raises `Invalid`, naming each fault; never repeats values."""
    try:
        return Consolidation.model_validate(dict(given)).request()
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        known = set(Consolidation.model_fields)
        faults = [
            f"{fault['loc'][0]}: {fault['msg']}."
            if fault["loc"] and fault["loc"][0] in known
            else f"A field is not known. Known are: {', '.join(Consolidation.model_fields)}."
            for fault in found[:5]
        ]
        raise Invalid(" ".join(dict.fromkeys(faults))) from None


def checked(message: Message) -> Message:
    """A message of which every part can be read, and all of it kept. Raises `Invalid`."""
    if message.role != Role.ROLE_USER:
        raise Invalid("The role of a message to an agent is ROLE_USER.")
    for name in ("message_id", "task_id", "context_id"):
        checked_id(getattr(message, name), name)
    if not message.parts:
        raise Invalid("The message has no parts. Send a text or a data part.")
    for part in message.parts:
        content = part.WhichOneof("content")
        if content is None:
            raise Invalid("A part has no content. Send text or data.")
        if content not in ("text", "data"):
            raise UnsupportedMedia("Files are not read here. Send the text itself, or a data part.")
        if part.media_type not in ("", "text/plain", "application/json"):
            raise UnsupportedMedia("Send text/plain or application/json; others are not read here.")
    try:
        _storable(MessageToDict(message))
    except SerializeToJsonError:
        raise Invalid("A number in the message is too large. Send it as a text.") from None
    return message


def checked_id(value: str, name: str) -> str:
    """An id of the client's, if it can be kept everywhere. Raises `Invalid`."""
    if len(value) > ID_CHARS_MAX or not (value.isprintable() or not value):
        raise Invalid(f"{name} must be at most {ID_CHARS_MAX} printable characters.")
    return value


def _storable(value: Any, levels: int = LEVELS_MAX) -> None:
    if isinstance(value, str):
        storable(value)
    elif levels == 0:
        raise Invalid(f"The message is nested deeper than {LEVELS_MAX}. Send it flatter.")
    elif isinstance(value, Mapping):
        for name, one in value.items():
            storable(name)
            _storable(one, levels - 1)
    elif isinstance(value, list):
        for one in value:
            _storable(one, levels - 1)


def request_of(message: Message) -> Request:
    """What a new message asks for: its data part, with the texts beside it as the text.

    A text alone is a transcript to be ingested; `topic`, `policy` and the like may stand in the
    metadata of the message. Raises `Invalid`.
    """
    texts, data = get_text_parts(message.parts), get_data_parts(message.parts)
    given: dict[str, Any] = MessageToDict(message.metadata) if message.HasField("metadata") else {}
    known = {key: value for key, value in given.items() if key in Consolidation.model_fields}
    if given.get("skill", SKILL) != SKILL:
        raise Invalid(f"There is no such skill. This agent has {SKILL}.")
    for one in data:
        if not isinstance(one, Mapping):
            raise Invalid("A data part must be a JSON object of the skill's input schema.")
        known |= {key: value for key, value in one.items() if key != "skill"}
    if texts and "text" not in known:
        known["text"] = "\n".join(texts)
    return consolidation(known)


def answer_of(message: Message) -> str | Sequence[Any]:
    """What a message answers: the resolutions of its data part, or else its text. Raises
    `LimitReached`: every answer is kept, and a question may get many.
    """
    if message.ByteSize() > ANSWER_BYTES_MAX:
        raise LimitReached(f"An answer may have {ANSWER_BYTES_MAX} bytes. Answer in parts.")
    for one in get_data_parts(message.parts):
        if isinstance(one, Mapping) and isinstance(one.get("resolutions"), list):
            found: list[Any] = one["resolutions"]
            return found
        return [one]  # not what was asked for: it is said which part is wrong
    return "\n".join(get_text_parts(message.parts))
