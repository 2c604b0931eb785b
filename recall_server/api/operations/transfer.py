"""Export of all that a namespace holds, and its import by the operator."""

from recall_server.api.arguments import Arguments
from recall_server.api.operations.operation import Call, Download, Http, Operation
from recall_server.domain.permissions import Scope
from recall_server.services.transfer import export as exporting
from recall_server.services.transfer import importing


class ExportNamespace(Arguments):
    # A name that went missing must not turn into everybody.
    empty_is_given = frozenset({"subject"})

    subject: str | None = None


async def export(call: Call, given: ExportNamespace) -> Download:
    pieces = call.services.export.stream(call.context, subject=given.subject)
    # What may fail does so before the answer has begun.
    first = await anext(pieces)
    return Download(f"{call.namespace}.jsonl", "application/x-ndjson", first, pieces)


# The audit log and deleted memories are in it: more than reading memories.
EXPORT_NAMESPACE = Operation(
    exporting.OPERATION,
    Scope.ADMIN,
    "Export all that the namespace holds, or all that concerns one subject, as JSON Lines.",
    ExportNamespace,
    export,
    whole_namespace=True,
    http=(Http("GET", "/v1/export"),),
    cli="recall export",
)
IMPORT_NAMESPACE = Operation(
    importing.OPERATION, Scope.ADMIN, "Import an export into a namespace.", cli="recall import"
)

OPERATIONS = (EXPORT_NAMESPACE, IMPORT_NAMESPACE)
