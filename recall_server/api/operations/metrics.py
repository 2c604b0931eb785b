"""Metrics of the process, for an operator's Prometheus."""

from prometheus_client import CONTENT_TYPE_LATEST

from recall_server.api.arguments import NoArguments
from recall_server.api.operations.operation import Call, Http, Operation, Plain
from recall_server.api.probes import METRICS_PATH
from recall_server.domain.permissions import Scope


async def read(call: Call, _: NoArguments) -> Plain:
    tasks = call.services.tasks
    found = await call.services.metrics.exposed(tasks.store, tasks.runtime.now())
    return Plain(CONTENT_TYPE_LATEST, found)


READ_METRICS = Operation(
    "read_metrics",
    Scope.METRICS,
    "The metrics of this process, in the text format of Prometheus. No label names a tenant.",
    NoArguments,
    read,
    http=(Http("GET", METRICS_PATH, media_type="text/plain"),),
    read_only=True,
)

OPERATIONS = (READ_METRICS,)
