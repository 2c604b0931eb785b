"""The fixture's tools that answer at once, and those that send messages while they work."""

import asyncio
import warnings
from typing import Any

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    CreateMessageResult,
    SamplingMessage,
)

Json = dict[str, Any]
Context = ServerRequestContext[Any, Any]

# One red pixel, and a sound of no length.
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJg"
    "gg=="
)
SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
IMAGE: Json = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
_AUDIO: Json = {"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}
_NOTHING: Json = {"type": "object", "properties": {}}
_DONE = "It is done."
_STEP_S = 0.05


def embedded(uri: str, kind: str, text: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}}


_ANSWERS: dict[str, list[Any]] = {
    "test_simple_text": ["This is a simple text response for testing."],
    "test_image_content": [IMAGE],
    "test_audio_content": [_AUDIO],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        "Multiple content types test:",
        IMAGE,
        embedded(
            "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
        ),
    ],
    "test_error_handling": ["This tool intentionally returns an error for testing"],
    "json_schema_2020_12_tool": [_DONE],
    "test_x_mcp_header": [_DONE],
}

# A server must pass on this vocabulary unchanged.
_RICH_SCHEMA: Json = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
_SCHEMAS: dict[str, Json] = {
    "json_schema_2020_12_tool": _RICH_SCHEMA,
    "test_sampling": {
        "type": "object",
        "properties": {"prompt": {"type": "string"}},
        "required": ["prompt"],
    },
    "test_elicitation": {
        "type": "object",
        "properties": {"message": {"type": "string"}},
        "required": ["message"],
    },
    "test_x_mcp_header": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    },
}
_SPEAKING = (
    "test_tool_with_logging",
    "test_logging_tool",
    "test_tool_with_progress",
    "test_streaming_elicitation",
)
_ASKING = (
    "test_sampling",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
)


def faces() -> list[Json]:
    names = (*_ANSWERS, *_SPEAKING, *_ASKING, "test_missing_capability")
    return [
        {
            "name": name,
            "description": "A tool of the conformance suite.",
            "inputSchema": _SCHEMAS.get(name, _NOTHING),
        }
        for name in names
    ]


async def call(context: Context, params: CallToolRequestParams) -> CallToolResult:
    name = params.name
    if name in _ANSWERS:
        return _said(*_ANSWERS[name], is_error=name == "test_error_handling")
    if name in _SPEAKING:
        return await _speak(context, name)
    if name in _ASKING:
        return await _ask(context, params)
    if name == "test_missing_capability":
        return _need_sampling(context)
    raise MCPError(INVALID_PARAMS, "There is no such tool.")


def content(one: Any) -> Json:
    return {"type": "text", "text": one} if isinstance(one, str) else one


def _said(*parts: Any, is_error: bool = False) -> CallToolResult:
    return CallToolResult.model_validate(
        {"content": [content(one) for one in parts], "isError": is_error}
    )


async def _speak(context: Context, name: str) -> CallToolResult:
    for step, words in enumerate(("started", "processing", "completed")):
        if "log" in name:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # The suite still tests this deprecated part.
                await context.session.send_log_message(
                    "info", f"Tool execution {words}", related_request_id=context.request_id
                )
        else:
            await context.session.report_progress(50 * step, 100, words)
        await asyncio.sleep(_STEP_S)
    return _said(_DONE)


async def _ask(context: Context, params: CallToolRequestParams) -> CallToolResult:
    """Ask the client in the middle of the call, as the older version did. This is impossible
    without a session: the four scenarios of the suite for it are in the baseline.
    """
    given = params.arguments or {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if params.name == "test_sampling":
            question = SamplingMessage.model_validate(
                {"role": "user", "content": content(given["prompt"])}
            )
            told = await context.session.create_message([question], max_tokens=100)
            assert isinstance(told, CreateMessageResult)
            return _said(f"LLM response: {told.content}")
        answer = await context.session.elicit_form(given.get("message", "?"), _NOTHING)
    return _said(f"User response: {answer.action} {answer.content}")


def _need_sampling(context: Context) -> CallToolResult:
    declared = context.session.client_capabilities
    if declared is None or declared.sampling is None:
        raise MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            "This tool needs sampling.",
            {"requiredCapabilities": {"sampling": {}}},
        )
    return _said(_DONE)
