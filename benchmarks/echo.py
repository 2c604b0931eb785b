"""The least cost of an A2A task: the SDK's own server and memory store, with an agent that echoes.

Run as `python -m benchmarks.echo`; its address is the one line that it prints.
"""

import asyncio

import typer
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

from recall_server import telemetry
from recall_server.config import Settings
from recall_server.lifecycle import stop_signal
from recall_server.server import bound, listening

PATH = "/a2a"
TEXT = "text/plain"


class Echo(AgentExecutor):
    """Answers with the text of the message."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.add_artifact([new_text_part(context.get_user_input())])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Do nothing: there is never a task to cancel."""


def _card(address: str) -> AgentCard:
    return AgentCard(
        name="Echo",
        description="Answers with the text.",
        version="1",
        supported_interfaces=[
            AgentInterface(url=address + PATH, protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming=False),
        default_input_modes=[TEXT],
        default_output_modes=[TEXT],
        skills=[AgentSkill(id="echo", name="Echo", description="Answers.", tags=["echo"])],
    )


async def _serve() -> None:
    settings = Settings(port=0)
    stop = stop_signal()
    listener = bound(settings)
    address = f"http://{settings.host}:{listener.getsockname()[1]}"
    handler = DefaultRequestHandler(Echo(), InMemoryTaskStore(), _card(address))
    app = Starlette(routes=create_jsonrpc_routes(handler, PATH))
    async with listening(app, settings, listener):
        typer.echo(address)
        await stop.wait()


def main() -> None:
    telemetry.configure_logs("warning")
    asyncio.run(_serve())


if __name__ == "__main__":
    main()
