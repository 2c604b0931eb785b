"""`POST /v1/erasure`: erase a memory, a subject, a container, or everything; `POST
/v1/memories/{id}/restore`: take back that one was forgotten; `GET /v1/receipts/{id}`: the proof of
it, for whoever has its secret.
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from recall_server.api import answers, presenters
from recall_server.api.arguments import Arguments
from recall_server.api.caller import Caller, caller_of
from recall_server.api.http.performing import PROTOCOL, RECEIPTS, performed
from recall_server.api.perform import Calls
from recall_server.domain.audit import AuditEntry
from recall_server.domain.erasure import CONFIRMATION
from recall_server.domain.errors import Invalid, RecallError
from recall_server.domain.permissions import NONE
from recall_server.services import Services
from recall_server.services.erasure.erase import Collected, Erased

NAMED = {"memory_id", "subject", "container"}
HEADER = "Recall-Receipt-Secret"


class Wanted(Arguments):
    """The body: one of the first four; `dry_run` shows what any but the first would reach."""

    confirm: str = ""
    memory_id: str = ""
    subject: str = ""
    container: str = ""
    dry_run: bool = False


class Erasure:
    """The routes of erasing."""

    def __init__(self, services: Services, calls: Calls) -> None:
        self._services = services
        self._calls = calls

    def routes(self) -> list[Route]:
        return [
            Route("/v1/erasure", self._erase, methods=["POST"]),
            Route("/v1/memories/{id}/restore", self._restore, methods=["POST"]),
            Route(RECEIPTS + "{id}", self._receipt, methods=["GET"]),
        ]

    async def _erase(self, request: Request) -> Response:
        caller = caller_of(request.scope)
        body = request.scope.get("recall.json")

        async def work(entry: AuditEntry) -> Erased:
            return await self._erased(caller, Wanted.parse(body, "the body"), entry)

        return await performed(
            self._calls,
            request,
            _operation(body),
            work,
            lambda erased: answers.answer(presenters.erased(erased)),
        )

    async def _erased(self, caller: Caller, wanted: Wanted, entry: AuditEntry) -> Erased:
        erase, namespace = self._services.erase, caller.namespace
        named = [one for one in (wanted.memory_id, wanted.subject, wanted.container) if one]
        # Also beside an empty name: one that went missing must not turn into everything.
        mixed = bool(wanted.confirm) and bool(wanted.model_fields_set & NAMED)
        if len(named) > 1 or mixed or (wanted.dry_run and not named):
            raise Invalid(
                f"Send one of memory_id, subject, container, or confirm: {CONFIRMATION}. dry_run "
                "goes with the first three."
            )
        if wanted.memory_id:
            return await erase.memory(
                namespace, wanted.memory_id, dry_run=wanted.dry_run, entry=entry
            )
        if wanted.subject:
            return await erase.subject(
                namespace, wanted.subject, dry_run=wanted.dry_run, entry=entry
            )
        if wanted.container:
            return await erase.container(
                namespace,
                wanted.container,
                dry_run=wanted.dry_run,
                reach=caller.reach,
                entry=entry,
            )
        return await erase.namespace(namespace, wanted.confirm, entry=entry)

    async def _restore(self, request: Request) -> Response:
        caller = caller_of(request.scope)
        memory_id = request.path_params["id"]

        async def work(entry: AuditEntry) -> None:
            await self._services.recall.restore(
                caller.namespace, memory_id, reach=caller.reach, entry=entry
            )

        return await performed(
            self._calls,
            request,
            "restore_memory",
            work,
            lambda _: answers.answer({"restored": memory_id}),
        )

    async def _receipt(self, request: Request) -> Response:
        receipt_id = request.path_params["id"]
        secret = request.headers.get(HEADER, "")

        async def work(entry: AuditEntry) -> Collected:
            return await self._services.erase.collect(namespace, receipt_id, secret, entry=entry)

        try:
            # Nobody is named by a token here: whose book it goes to is found out first.
            namespace = await self._services.erase.find_receipt(receipt_id, secret)
            holder = Caller(namespace, receipt_id, NONE)
            found = await self._calls.perform(holder, PROTOCOL, "collect_receipt", work)
        except RecallError as error:
            return answers.http_error(error)
        return answers.answer({"receipt": found.receipt, "final": found.final})


def _operation(body: object) -> str:
    """The operation that a body asks for, for the book and the guard."""
    given = body if isinstance(body, dict) else {}
    if given.get("memory_id"):
        return "erase_memory"
    if given.get("subject"):
        return "erase_subject"
    return "erase_container" if given.get("container") else "delete_namespace_data"
