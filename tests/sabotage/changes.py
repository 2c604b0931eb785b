"""Changes of a function, a class or a constant, by its syntax tree.

A change finds its place by the names in it, never by how the line is written, and raises `Outdated`
unless there is exactly one such place.
"""

import ast
import copy
from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

T = TypeVar("T")
Function = ast.FunctionDef | ast.AsyncFunctionDef
# This name is the expression that a change replaces.
ORIGINAL = "original"


class Outdated(Exception):
    """A breakage no longer fits the code. The message says where."""


@runtime_checkable
class Change(Protocol):
    def apply(self, node: ast.stmt) -> None:
        """Change the definition. Raises `Outdated`."""


class Body:
    """Replace the body of a function by this code."""

    def __init__(self, code: str) -> None:
        self.code = code

    def apply(self, node: ast.stmt) -> None:
        _function(node).body = ast.parse(self.code).body


class Replaced:
    """Replace a method by another function, which can call `_original_NAME`."""

    def __init__(self, code: str) -> None:
        self.code = code

    def apply(self, node: ast.stmt) -> None:
        function = _function(node)
        (new,) = ast.parse(self.code).body
        other = _function(new)
        if other.name != function.name:
            raise Outdated(f"the function in place of {function.name} is named {other.name}.")
        kept = copy.deepcopy(function)
        kept.name = f"_original_{function.name}"
        # Both are in one statement, so that whatever holds the first has the second too.
        both = ast.If(test=ast.Constant(value=True), body=[kept, other], orelse=[])
        other.decorator_list = copy.deepcopy(function.decorator_list)
        _become(function, both)


class Value:
    """Set a constant to this. `original` in the code is its old value."""

    def __init__(self, code: str) -> None:
        self.code = code

    def apply(self, node: ast.stmt) -> None:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            raise Outdated("it is no constant.")
        node.value = _expression(self.code, node.value)


class Entry:
    """Set the value of a key in a literal dictionary."""

    def __init__(self, key: str, code: str) -> None:
        self.key, self.code = key, code

    def apply(self, node: ast.stmt) -> None:
        places = [
            (one, number)
            for one in ast.walk(node)
            if isinstance(one, ast.Dict)
            for number, key in enumerate(one.keys)
            if isinstance(key, ast.Constant) and key.value == self.key
        ]
        one, number = _only(places, f"the key {self.key!r}")
        one.values[number] = _expression(self.code, one.values[number])


class Element:
    """Remove the elements with this name or text from a literal tuple, list or set."""

    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, node: ast.stmt) -> None:
        places = [
            one
            for one in ast.walk(node)
            if isinstance(one, ast.Tuple | ast.List | ast.Set) and any(map(self._is, one.elts))
        ]
        found = _only(places, f"a literal with {self.name!r}")
        found.elts = [one for one in found.elts if not self._is(one)]

    def _is(self, one: ast.expr) -> bool:
        return (isinstance(one, ast.Constant) and one.value == self.name) or (
            isinstance(one, ast.Name) and one.id == self.name
        )


class Without:
    """Remove the statement with these names."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)

    def apply(self, node: ast.stmt) -> None:
        simple = ast.Expr | ast.Assign | ast.AugAssign
        places = [
            one
            for one in ast.walk(node)
            if isinstance(one, simple) and one is not node and self.names <= mentions(one)
        ]
        _become(_only(places, f"a statement with {', '.join(sorted(self.names))}"), ast.Pass())


class OnlyIf:
    """Add a condition to the `if` that has these names in its condition or in the first line of its
    body.
    """

    def __init__(self, *names: str, code: str) -> None:
        self.names, self.code = set(names), code

    def apply(self, node: ast.stmt) -> None:
        places = [
            one
            for one in ast.walk(node)
            if isinstance(one, ast.If) and self.names <= mentions(one.test) | _first(one)
        ]
        found = _only(places, f"an if with {', '.join(sorted(self.names))}")
        more = ast.parse(self.code, mode="eval").body
        found.test = ast.BoolOp(op=ast.And(), values=[found.test, more])


class Never(OnlyIf):
    """Never enter an `if`, although its condition is evaluated."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names, code="False")


class Forgets:
    """Remove the smallest part with this name from a chain of `and`, `or`, `&` or `|`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, node: ast.stmt) -> None:
        places = [one for one in ast.walk(node) if self._splits(one)]
        inner = [
            one
            for one in places
            if not any(other is not one and other in ast.walk(one) for other in places)
        ]
        found = _only(inner, f"an `and` or `or` of which one part has {self.name}")
        left = [part for part in _parts(found) if self.name not in mentions(part)]
        if isinstance(found, ast.BoolOp) and len(left) > 1:
            found.values = left
        else:
            _become(found, left[0])

    def _splits(self, one: ast.AST) -> bool:
        return len([part for part in _parts(one) if self.name in mentions(part)]) == 1


class Instead:
    """Replace a call, and the `await` before it."""

    def __init__(self, call: str, code: str) -> None:
        self.call, self.code = call, code

    def apply(self, node: ast.stmt) -> None:
        found = _call(node, self.call)
        awaited = [one for one in ast.walk(node) if isinstance(one, ast.Await)]
        place = next((one for one in awaited if one.value is found), found)
        _become(place, _expression(self.code, copy.deepcopy(found)))


class Unwrapped:
    """Replace a call by its first argument, or by its object."""

    def __init__(self, call: str) -> None:
        self.call = call

    def apply(self, node: ast.stmt) -> None:
        found = _call(node, self.call)
        of_object = isinstance(found.func, ast.Attribute)
        _become(found, found.func.value if of_object else found.args[0])  # type: ignore[attr-defined]


class Argument:
    """Set an argument of a call, by name or by number; None removes it. Of several calls, take the
    one that has the argument already.
    """

    def __init__(self, call: str, which: str | int, code: str | None) -> None:
        self.call, self.which, self.code = call, which, code

    def apply(self, node: ast.stmt) -> None:
        what = f"a call of {self.call} with the argument {self.which}"
        calls = _calls(node, self.call)
        if isinstance(self.which, int):
            assert self.code is not None, "an argument that is counted cannot be left out"
            found = _only([one for one in calls if self.which < len(one.args)], what)
            found.args[self.which] = _expression(self.code, found.args[self.which])
            return
        given = [(one, key) for one in calls for key in one.keywords if key.arg == self.which]
        if self.code is None:
            found, key = _only(given, what)
            found.keywords.remove(key)
        elif given:
            _, key = _only(given, what)
            key.value = _expression(self.code, key.value)
        else:
            found = _only(calls, f"a call of {self.call}")
            found.keywords.append(ast.keyword(self.which, _expression(self.code, None)))


def mentions(node: ast.AST) -> set[str]:
    """Return the names, attributes and texts in a node."""
    found: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            found.add(one.id)
        elif isinstance(one, ast.Attribute):
            found.add(one.attr)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            found.add(one.value)
    return found


def _first(one: ast.If) -> set[str]:
    nested = isinstance(one.body[0], ast.If | ast.For | ast.While | ast.With | ast.Try)
    return set() if nested else mentions(one.body[0])


def _parts(one: ast.AST) -> Sequence[ast.expr]:
    if isinstance(one, ast.BoolOp):
        return one.values
    if isinstance(one, ast.BinOp) and isinstance(one.op, ast.BitAnd | ast.BitOr):
        return (one.left, one.right)
    return ()


def _calls(node: ast.stmt, name: str) -> list[ast.Call]:
    def called(one: ast.Call) -> str:
        return one.func.attr if isinstance(one.func, ast.Attribute) else ast.unparse(one.func)

    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
    return [one for one in calls if called(one) == name]


def _call(node: ast.stmt, name: str) -> ast.Call:
    return _only(_calls(node, name), f"a call of {name}")


def _function(node: ast.stmt) -> Function:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        raise Outdated("it is no function.")
    return node


def _expression(code: str, original: ast.expr | None) -> ast.expr:
    class Put(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:  # The name is set by ast.
            return original if original is not None and node.id == ORIGINAL else node

    tree = ast.parse(code, mode="eval")
    put = Put().visit(tree)
    assert isinstance(put, ast.Expression)
    return put.body


def _only(found: Sequence[T], what: str) -> T:
    if len(found) != 1:
        raise Outdated(f"{what} stands there {len(found)} times, not once.")
    return found[0]


def _become(node: ast.AST, other: ast.AST) -> None:
    """Turn `node` into a copy of the other, wherever it is in its tree."""
    other = copy.deepcopy(other)
    node.__class__ = other.__class__
    node.__dict__.clear()
    node.__dict__.update(other.__dict__)
