"""What callers may give: exact types, and errors that name the fault and never repeat the value."""

import re
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from recall_server.domain.errors import Invalid

FAULTS_TOLD = 5
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,40}")


class Arguments(BaseModel):
    """Arguments of one operation: exact types, finite numbers, and nothing that it does not know.

    Texts are plain `str` with "" for "none": the MCP SDK would parse other strings as JSON.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def parse(cls, given: Any, operation: str) -> Self:
        """What was given to `operation`, checked. Raises `Invalid`, naming each fault and what is
        allowed.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)
            faults = [
                cls._fault(each["type"], each["loc"], each["msg"], operation)
                for each in found[:FAULTS_TOLD]
            ]
            raise Invalid(" ".join(faults)) from None

    @classmethod
    def _fault(cls, kind: str, place: tuple[int | str, ...], why: str, operation: str) -> str:
        known = ", ".join(cls.model_fields) or "no arguments"
        if not place:
            return f"Send a JSON object. It may have {known}."
        field = str(place[0])
        if kind != "extra_forbidden":
            return f"{field}: {why}."
        # Only what could be the name of an argument is worth repeating, and safe to.
        named = f"'{field}'" if _NAME.fullmatch(field) else "An argument"
        return f"{named} is not known to {operation}, which takes {known}."
