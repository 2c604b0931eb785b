"""Aliases of subjects: names that stand for one person or thing."""

from collections.abc import Sequence

from pydantic import Field

from recall_server.api.arguments import Arguments, NoArguments
from recall_server.api.operations.operation import REVIEWS, Call, Http, Json, Mcp, Operation
from recall_server.domain.permissions import Scope
from recall_server.domain.subject_aliases import ALIASES_MAX, Alias


class SetAliases(Arguments):
    subject: str
    aliases: list[str] = Field(max_length=ALIASES_MAX)


class OneAlias(Arguments):
    alias: str


async def list_all(call: Call, _: NoArguments) -> Sequence[Alias]:
    return await call.services.aliases.all(call.context)


async def set_all(call: Call, given: SetAliases) -> Sequence[Alias]:
    return await call.services.aliases.set(call.context, given.subject, given.aliases)


async def remove(call: Call, given: OneAlias) -> Json:
    await call.services.aliases.remove(call.context, given.alias)
    return {"removed": given.alias}


def _listed(found: Sequence[Alias], _: Arguments) -> Json:
    return {"aliases": [one._asdict() for one in found]}


LIST_ALIASES = Operation(
    "list_aliases",
    Scope.READ,
    "List the aliases of subjects: names that stand for one person or thing.",
    NoArguments,
    list_all,
    _listed,
    ("aliases",),
    whole_namespace=True,
    http=(Http("GET", "/v1/aliases"),),
    mcp=Mcp(
        "List aliases",
        "List the names that stand for one person or thing.",
        toolset=REVIEWS,
        idempotent=True,
    ),
    cli="recall aliases list",
    read_only=True,
)
SET_ALIASES = Operation(
    "set_aliases",
    Scope.EDIT,
    "Set the aliases of a subject, in place of those it had: facts about them are facts about it.",
    SetAliases,
    set_all,
    _listed,
    ("aliases",),
    whole_namespace=True,
    http=(Http("POST", "/v1/aliases"),),
    mcp=Mcp(
        "Set aliases",
        "Say which other names a person or thing has: facts about them are about it from now on.",
        toolset=REVIEWS,
        idempotent=True,
    ),
    cli="recall aliases set",
)
REMOVE_ALIAS = Operation(
    "remove_alias",
    Scope.EDIT,
    "Remove an alias: it is a subject of its own again.",
    OneAlias,
    remove,
    returns=("removed",),
    whole_namespace=True,
    http=(Http("DELETE", "/v1/aliases"),),
    mcp=Mcp("Remove alias", "Remove an alias of a person or thing.", toolset=REVIEWS),
    cli="recall aliases remove",
)

OPERATIONS = (LIST_ALIASES, SET_ALIASES, REMOVE_ALIAS)
