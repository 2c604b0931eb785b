"""The fixture's tools that ask questions, and return a result once those are answered."""

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitResult,
    InputRequiredResult,
    ListRootsResult,
)

Json = dict[str, Any]
Context = ServerRequestContext[Any, Any]


def _elicit(message: str, field: str, kind: str = "string") -> Json:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return {
        "method": "elicitation/create",
        "params": {"message": message, "requestedSchema": schema},
    }


def _sample(text: str) -> Json:
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return {
        "method": "sampling/createMessage",
        "params": {"messages": [message], "maxTokens": 100},
    }


_ROOTS: Json = {"method": "roots/list", "params": {}}
_NAME = {"user_name": _elicit("What is your name?", "name")}
_CONFIRM = {"confirm": _elicit("Please confirm", "ok", "boolean")}

# The rounds of each tool: its questions, one round after the other.
TOOLS: dict[str, list[Json]] = {
    "test_input_required_result_elicitation": [_NAME],
    "test_input_required_result_sampling": [
        {"capital_question": _sample("What is the capital of France?")}
    ],
    "test_input_required_result_list_roots": [{"client_roots": _ROOTS}],
    "test_input_required_result_request_state": [_CONFIRM],
    "test_input_required_result_tampered_state": [_CONFIRM],
    "test_input_required_result_multiple_inputs": [
        {**_NAME, "greeting": _sample("Generate a greeting"), "client_roots": _ROOTS}
    ],
    "test_input_required_result_multi_round": [
        {"step1": _elicit("Step 1: What is your name?", "name")},
        {"step2": _elicit("Step 2: What is your favorite color?", "color")},
    ],
    "test_input_required_result_capabilities": [{**_NAME, "greeting": _sample("Greet me")}],
}
# These need no state between the rounds.
_STATELESS = frozenset(
    f"test_input_required_result_{kind}"
    for kind in ("elicitation", "sampling", "list_roots", "capabilities")
)
_CAPABILITY = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}

PROMPT_ASKS = InputRequiredResult.model_validate(
    {"inputRequests": {"user_context": _elicit("What context should the prompt use?", "context")}}
)


def faces() -> list[Json]:
    return [
        {
            "name": name,
            "description": "A tool of the conformance suite that asks back.",
            "inputSchema": {"type": "object", "properties": {}},
        }
        for name in TOOLS
    ]


def call(context: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
    """Return the next question, or the result. The state that comes back was sealed when it was
    sent, and has been checked. It is the number of the round.
    """
    rounds = TOOLS[params.name]
    asked = int(params.request_state or 0)
    answers = params.input_responses or {}
    if not set(rounds[asked]) <= set(answers):
        return _question(context, params.name, asked)
    if asked + 1 < len(rounds):
        return _question(context, params.name, asked + 1)
    text = f"state-ok: {', '.join(_told(one) for one in answers.values())}"
    return CallToolResult.model_validate({"content": [{"type": "text", "text": text}]})


def _question(context: Context, name: str, number: int) -> InputRequiredResult:
    declared = context.session.client_capabilities
    known = {
        key: one
        for key, one in TOOLS[name][number].items()
        if getattr(declared, _CAPABILITY[one["method"]], None) is not None
    }
    state = None if name in _STATELESS else str(number)
    return InputRequiredResult.model_validate({"inputRequests": known, "requestState": state})


def _told(answer: object) -> str:
    if isinstance(answer, ElicitResult):
        return str(answer.content)
    if isinstance(answer, ListRootsResult):
        return ", ".join(str(root.uri) for root in answer.roots)
    return str(getattr(answer, "content", answer))
