"""Push notifications of A2A 0.3. The SDK's own layer for it is stricter than its clients: they ask
for the configuration of a task without naming one, and accept no answer without a result.
"""

import json
from typing import Any

from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message

GET = "tasks/pushNotificationConfig/get"
DELETE = "tasks/pushNotificationConfig/delete"
NAME = "pushNotificationConfigId"


async def answered(rpc: JsonRpcDispatcher, request: Request, body: Any) -> Response:
    """Return the answer of the SDK, with the parts that 0.3 requires."""
    method = body.get("method") if isinstance(body, dict) else None
    params = body.get("params") if method == GET else None
    if isinstance(params, dict) and params.get(NAME) is None and "id" in params:
        named = {**body, "params": {**params, NAME: params["id"]}}
        request = Request(request.scope, _receiving(json.dumps(named).encode()))
    response: Response = await rpc.handle_requests(request)
    if method == DELETE:
        said = json.loads(bytes(response.body))
        if not {"result", "error"} & said.keys():
            return JSONResponse({**said, "result": None})
    return response


def _receiving(body: bytes) -> Any:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
