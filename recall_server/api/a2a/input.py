"""Read a message: a request of the skill, as a text or a data part of its schema, or an answer."""

from collections.abc import Mapping, Sequence
from typing import Any

from a2a.helpers import get_data_parts, get_text_parts
from a2a.types import Message, Role
from google.protobuf.json_format import MessageToDict, SerializeToJsonError

from recall_server.api.arguments import checked_id
from recall_server.api.middleware.request_validation import UnsupportedMedia
from recall_server.api.operations.consolidation import Consolidation, consolidation
from recall_server.api.operations.tasks import SKILL
from recall_server.domain.errors import Invalid, LimitReached
from recall_server.domain.task import Request
from recall_server.domain.text.cleaning import storable

ANSWER_BYTES_MAX = 65_536
# Protobuf reads 100, and takes three for each level of JSON.
LEVELS_MAX = 20


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
    """The request in a new message: its data part, with the texts beside it as the text.

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
    if texts and known.get("text") is None:
        known["text"] = "\n".join(texts)
    return consolidation(known, "a2a")


def answer_of(message: Message) -> str | Sequence[Any]:
    """The answer in a message: the resolutions of its data part, or else its text. Raises
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
