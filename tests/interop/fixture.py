"""The server that the conformance suite is written for: its tools, resources and prompts.

It takes the place of our MCP server behind our middleware, so that the suite can test the
middleware. The scenarios of the suite define what each part must do.
"""

import warnings
from typing import Any

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
)

from tests.interop import fixture_rounds, fixture_tools
from tests.interop.fixture_tools import PIXEL

Context = ServerRequestContext[Any, Any]

_RESOURCES = {
    "test://static-text": {
        "mimeType": "text/plain",
        "text": "This is the content of the static text resource.",
    },
    "test://static-binary": {"mimeType": "image/png", "blob": PIXEL},
    "test://watched-resource": {"mimeType": "text/plain", "text": "It may change."},
}
_PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


def server() -> Server[Any]:
    """Make a new server, with its own key for request states."""
    with warnings.catch_warnings():
        # The suite still sets the level of logs in the older version.
        warnings.simplefilter("ignore")
        made: Server[Any] = Server(
            "fixture",
            version="1",
            on_list_tools=_list_tools,
            on_call_tool=_call_tool,
            on_list_resources=_list_resources,
            on_list_resource_templates=_list_templates,
            on_read_resource=_read_resource,
            on_subscribe_resource=_accept,
            on_unsubscribe_resource=_accept,
            on_list_prompts=_list_prompts,
            on_get_prompt=_get_prompt,
            on_completion=_complete,
            on_set_logging_level=_accept,
        )
    made.middleware.append(
        RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="fixture")
    )
    return made


async def _list_tools(_: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
    faces = [*fixture_tools.faces(), *fixture_rounds.faces()]
    return ListToolsResult.model_validate({"tools": faces})


async def _call_tool(
    context: Context, params: CallToolRequestParams
) -> CallToolResult | InputRequiredResult:
    if params.name in fixture_rounds.TOOLS:
        return fixture_rounds.call(context, params)
    return await fixture_tools.call(context, params)


async def _list_resources(_: Context, __: PaginatedRequestParams | None) -> ListResourcesResult:
    listed = [
        {"uri": uri, "name": uri.split("//")[1], "description": "It is read.", "mimeType": kind}
        for uri, kind in ((uri, one["mimeType"]) for uri, one in _RESOURCES.items())
    ]
    return ListResourcesResult.model_validate({"resources": listed})


async def _list_templates(
    _: Context, __: PaginatedRequestParams | None
) -> ListResourceTemplatesResult:
    template = {"uriTemplate": "test://template/{id}/data", "name": "template"}
    return ListResourceTemplatesResult.model_validate({"resourceTemplates": [template]})


async def _read_resource(_: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    uri = str(params.uri)
    content = _RESOURCES.get(uri)
    if content is None and uri.startswith("test://template/") and uri.endswith("/data"):
        given = uri.split("/")[3]
        text = f'{{"id":"{given}","templateTest":true,"data":"Data for ID: {given}"}}'
        content = {"mimeType": "application/json", "text": text}
    if content is None:
        raise MCPError(INVALID_PARAMS, "There is no such resource.", {"uri": uri})
    return ReadResourceResult.model_validate({"contents": [{"uri": uri, **content}]})


async def _accept(_: Context, __: Any) -> EmptyResult:
    return EmptyResult()


async def _list_prompts(_: Context, __: PaginatedRequestParams | None) -> ListPromptsResult:
    listed = [
        {
            "name": name,
            "description": "It is shown.",
            "arguments": [{"name": one, "required": True} for one in arguments],
        }
        for name, arguments in _PROMPTS.items()
    ]
    return ListPromptsResult.model_validate({"prompts": listed})


async def _get_prompt(
    _: Context, params: GetPromptRequestParams
) -> GetPromptResult | InputRequiredResult:
    given = params.arguments or {}
    if params.name == "test_input_required_result_prompt" and not params.input_responses:
        return fixture_rounds.PROMPT_ASKS
    said: dict[str, list[Any]] = {
        "test_simple_prompt": ["This is a simple prompt for testing."],
        "test_prompt_with_arguments": [
            f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
        ],
        "test_prompt_with_embedded_resource": [
            fixture_tools.embedded(
                given.get("resourceUri", ""), "text/plain", "Embedded resource content for testing."
            ),
            "Please process the embedded resource above.",
        ],
        "test_prompt_with_image": [fixture_tools.IMAGE, "Please analyze the image above."],
        "test_input_required_result_prompt": ["It was answered."],
    }
    if params.name not in said:
        raise MCPError(INVALID_PARAMS, "There is no such prompt.")
    messages = [
        {"role": "user", "content": fixture_tools.content(one)} for one in said[params.name]
    ]
    return GetPromptResult.model_validate({"messages": messages})


async def _complete(_: Context, __: CompleteRequestParams) -> CompleteResult:
    return CompleteResult.model_validate({"completion": {"values": ["paris", "park"], "total": 2}})
