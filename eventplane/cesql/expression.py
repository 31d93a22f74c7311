"""Parse an expression and evaluate it: its value and every error (sections 3.2, 3.3, 3.6).

An operation with an operand that erred, or that cannot be cast, gives the zero value of its type, and the
rest of the expression is evaluated. `evaluate` walks the tree; `compilation` is the fast form of `matches`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eventplane.attributes import REQUIRED, Attributes, AttributeValue
from eventplane.cesql import tree
from eventplane.cesql.compilation import compile_filter
from eventplane.cesql.errors import CesqlError, CesqlMissingAttributeError
from eventplane.cesql.functions import BUILTINS, Functions
from eventplane.cesql.operations import ZERO, Type, cast
from eventplane.cesql.parser import parse_tree
from eventplane.cesql.tree import Node, signature


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The value of an expression for one event, and its errors in the order of evaluation."""

    value: AttributeValue
    errors: tuple[CesqlError, ...] = ()

    @property
    def passes(self) -> bool:
        """True if the event passes as a filter: only a Boolean true without an error does (section 1.2)."""
        return self.value is True and not self.errors

    def as_condition(self) -> Evaluation:
        """Return it as AND and OR take it: 'true' holds, which alone would not pass."""
        if self.errors:
            return self
        try:
            return Evaluation(cast(self.value, Type.BOOLEAN))
        except CesqlError as error:
            return Evaluation(self.value, (error,))


def evaluate(node: Node, attributes: Attributes) -> Evaluation:
    """Return the value of `node` and its errors. Raises nothing."""
    walk = _Walk(attributes)
    value = walk.value(node)
    return Evaluation(value, tuple(walk.errors))


class _Walk:
    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes
        self.errors: list[CesqlError] = []

    def value(self, node: Node) -> AttributeValue:
        match node:
            case tree.Literal():
                return node.value
            case tree.Attribute():
                return self._attribute(node)
            case tree.Exists():
                return node.name in REQUIRED or node.name in self._attributes
            case tree.Logic():
                return self._logic(node)
            case _:
                return self._operation(node)

    def _attribute(self, node: tree.Attribute) -> AttributeValue:
        if node.name in self._attributes:
            return self._attributes[node.name]
        self.errors.append(CesqlMissingAttributeError(name=node.name, position=node.position))
        return ZERO[Type.ANY]

    def _operation(self, node: Node) -> AttributeValue:
        """Evaluate and cast every operand, then run; the zero value of the result if an operand erred."""
        found = signature(node)
        before = len(self.errors)
        operands = []
        for each, target in found.operands:
            # A comprehension would be one more frame on each level of the recursion.
            operands.append(self._operand(each, target))
        if len(self.errors) > before:
            return ZERO[found.result]
        try:
            return found.run(*operands)
        except CesqlError as error:
            return self._failed(error, node, found.result)

    def _operand(self, node: Node, target: Type) -> AttributeValue:
        before = len(self.errors)
        value = self.value(node)
        if len(self.errors) > before:
            return ZERO[target]
        try:
            return cast(value, target)
        except CesqlError as error:
            return self._failed(error, node, target)

    def _failed(self, error: CesqlError, node: Node, result: Type) -> AttributeValue:
        error.position = node.position
        self.errors.append(error)
        return ZERO[result] if error.value is None else error.value

    def _logic(self, node: tree.Logic) -> bool:
        before = len(self.errors)
        left = self._operand(node.left, Type.BOOLEAN) is True
        if left is (node.operator == "OR") and node.operator != "XOR":
            return left
        right = self._operand(node.right, Type.BOOLEAN) is True
        if len(self.errors) > before:
            return False
        return left is not right if node.operator == "XOR" else right


class Expression:
    """A filter: an expression's `text` and its `tree`. Equal to one with the same text and functions.

    `matches(attributes)` returns whether an event passes as a filter: only a Boolean true without any error
    does. It raises nothing and stops at the first error. It is compiled at its first use, so that contracts
    with thousands of routes load fast.
    """

    __slots__ = ("_compiled", "functions", "matches", "text", "tree")

    matches: Callable[[Attributes], bool]

    def __init__(self, text: str, tree: Node, functions: Functions) -> None:
        self.text = text
        self.tree = tree
        self.functions = functions
        self.matches = self._first_match
        self._compiled: Callable[[Attributes], bool] | None = None

    def evaluate(self, attributes: Attributes) -> Evaluation:
        """Return the value for an event and every error. Raises nothing."""
        return evaluate(self.tree, attributes)

    @property
    def names(self) -> frozenset[str]:
        """The attributes that it reads or tests."""
        return tree.names(self.tree)

    def _first_match(self, attributes: Attributes) -> bool:
        # A router may have taken `matches` before, and calls this for each event.
        compiled = self._compiled
        if compiled is None:
            compiled = self.matches = self._compiled = compile_filter(self.tree)
        return compiled(attributes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Expression):
            return NotImplemented
        return self.text == other.text and self.functions is other.functions

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"parse({self.text!r})"

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Callable[..., Expression], tuple[object, ...]]:
        # A generated function cannot be pickled.
        builtin = self.functions is BUILTINS
        return parse, (self.text,) if builtin else (self.text, self.functions)


def parse(text: str, functions: Functions = BUILTINS) -> Expression:
    """Read `text` as CESQL v1.0.0; raises CesqlParseError with the place and a remedy.

    A call of a function that is not in `functions` is not a parse error: `lint` and evaluation report it.
    """
    return Expression(text, parse_tree(text, functions), functions)
