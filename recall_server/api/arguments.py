"""Arguments of operations: exact types, and errors that name the fault, never the value."""

import re
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from recall_server.domain.errors import Invalid

INT64_MAX = 2**63 - 1
FAULTS_NAMED = 5
ID_CHARS_MAX = 128
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,40}")


class Arguments(BaseModel):
    """Arguments of one operation: exact types, finite numbers, and no unknown names.

    `null` and `""` mean that an optional argument is not given, and a whole float, such as 3.0, is
    an integer: clients and models that fill in a schema send them. Texts are plain `str` with ""
    for "none": the MCP SDK would parse other strings as JSON.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    # Whether an error repeats the name of an unknown argument, where it looks like one.
    repeats_names: ClassVar[bool] = True
    # Where an empty text is a mistake, since leaving the argument out would mean more than it says.
    empty_is_given: ClassVar[frozenset[str]] = frozenset()
    _optional: ClassVar[frozenset[str]]
    _integers: ClassVar[frozenset[str]]

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        fields = cls.model_fields.items()
        cls._optional = frozenset(name for name, field in fields if not field.is_required())
        cls._integers = frozenset(
            name for name, field in fields if field.annotation in (int, int | None)
        )

    @classmethod
    def parse(cls, given: Any, operation: str, *, as_text: bool = False) -> Self:
        """The arguments `given` to `operation`, checked; `as_text` where each is a text, as in a
        query. Raises `Invalid`, naming each fault and what is allowed.
        """
        try:
            return cls.model_validate(cls._given(given), strict=False if as_text else None)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)
            faults = [
                cls._fault(each["type"], each["loc"], each["msg"], operation)
                for each in found[:FAULTS_NAMED]
            ]
            raise Invalid(" ".join(dict.fromkeys(faults))) from None

    @classmethod
    def _given(cls, arguments: Any) -> Any:
        """`arguments` without those that are not given, and with integers for whole floats."""
        if not isinstance(arguments, dict):
            return arguments
        given: dict[str, Any] = {}
        for name, value in arguments.items():
            if value is None and name in cls._optional:
                # Where None is a value of the argument, it is its default too.
                if cls.model_fields[name].default is None:
                    given[name] = value
            elif value == "" and name in cls._optional - cls.empty_is_given:
                continue
            elif isinstance(value, float) and name in cls._integers and value.is_integer():
                given[name] = int(value)
            else:
                given[name] = value
        return given

    @classmethod
    def _fault(cls, kind: str, place: tuple[int | str, ...], why: str, operation: str) -> str:
        known = ", ".join(cls.model_fields) or "no arguments"
        if not place:
            return f"Send a JSON object. It may have {known}."
        field = str(place[0])
        if len(place) > 1:
            # Names further down may be those of what was sent.
            inner = f"{field}[{place[1]}]" if isinstance(place[1], int) else field
            return f"{inner}: {'A field in it is not known' if kind == 'extra_forbidden' else why}."
        if kind != "extra_forbidden":
            return f"{field}: {why}."
        # Only what could be the name of an argument is worth repeating, and safe to.
        named = f"'{field}'" if cls.repeats_names and _NAME.fullmatch(field) else "An argument"
        return f"{named} is not known to {operation}, which takes {known}."


class NoArguments(Arguments):
    """Of an operation that takes none."""


_OBJECT = {"type": "object"}


@cache
def schema_of(model: type[Arguments]) -> dict[str, Any]:
    """The schema of arguments without what costs a client tokens and tells it nothing."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def strip(node: Any) -> Any:
        if isinstance(node, list):
            return [strip(part) for part in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            # The docstring of a class is for readers of the code, and what an object has stands
            # in the description of the argument.
            named = definitions[node["$ref"].rsplit("/", 1)[1]]
            if named["type"] == "object":
                return {key: node[key] for key in ("description",) if key in node} | _OBJECT
            node = {**named, "description": "", **node}
            del node["$ref"]
        if "anyOf" in node:
            # "or null" is what leaving an optional argument out means anyway.
            options = [part for part in node["anyOf"] if part != {"type": "null"}]
            rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
            node = {**rest, **strip(options[0])}
        return {
            key: strip(value)
            for key, value in node.items()
            if value != INT64_MAX
            # An argument that is not known is refused with the names of those that are.
            and key != "additionalProperties"
            # "", 0 and false are what leaving an argument out means anyway.
            and (key != "default" or value)
            if (not (key == "title" and isinstance(value, str)) and key != "description")
            or (key == "description" and value and "type" in node and "properties" not in node)
        }

    return {"properties": {}, **strip(schema)}


def checked_id(value: str, name: str) -> str:
    """An id of the client's, if it can be kept everywhere. Raises `Invalid`."""
    if len(value) > ID_CHARS_MAX or not (value.isprintable() or not value):
        raise Invalid(f"{name} must be at most {ID_CHARS_MAX} printable characters.")
    return value
