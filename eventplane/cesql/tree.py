"""The syntax tree of an expression. Positions in the text do not count when trees are compared.

`x != y` and `x <> y` are one operator, and `x NOT LIKE p`, `x NOT IN s` are `LogicalNot` around `Like`, `In`,
as section 3.4 defines them. Attribute names are in lower case, function names in upper case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal as Word
from typing import NamedTuple

from eventplane.attributes import AttributeValue
from eventplane.cesql import operations
from eventplane.cesql.errors import CesqlMissingFunctionError
from eventplane.cesql.functions import Function
from eventplane.cesql.operations import Type, type_of

ArithmeticOperator = Word["*", "/", "%", "+", "-"]
ComparisonOperator = Word["=", "!=", "<", "<=", ">", ">="]
LogicOperator = Word["AND", "OR", "XOR"]


@dataclass(frozen=True, slots=True)
class _Placed:
    """`position`: offset in the expression, characters from 0. `grouped`: in parentheses."""

    position: int = field(default=0, compare=False, kw_only=True, repr=False)
    grouped: bool = field(default=False, compare=False, kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class Literal(_Placed):
    """A constant. Its type counts: 1 and true are equal in Python, and are not here."""

    value: AttributeValue
    type: Type = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", type_of(self.value))


@dataclass(frozen=True, slots=True)
class Attribute(_Placed):
    """The value of a context attribute."""

    name: str


@dataclass(frozen=True, slots=True)
class Exists(_Placed):
    """A test for the presence of an attribute."""

    name: str


@dataclass(frozen=True, slots=True)
class LogicalNot(_Placed):
    """`NOT operand`."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Negate(_Placed):
    """`-operand`."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Arithmetic(_Placed):
    """`left operator right`, of numbers."""

    operator: ArithmeticOperator
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Comparison(_Placed):
    """`left operator right`, of values."""

    operator: ComparisonOperator
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Logic(_Placed):
    """`left operator right`, of truth values."""

    operator: LogicOperator
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Like(_Placed):
    """`pattern` as it is written; `eventplane.cesql.operations` reads it."""

    operand: Node
    pattern: str


@dataclass(frozen=True, slots=True)
class In(_Placed):
    """`operand IN (elements)`."""

    operand: Node
    elements: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Call(_Placed):
    """`name(arguments)`. `function` is the one of that name and arity in the table of the expression."""

    name: str
    arguments: tuple[Node, ...]
    function: Function | None = field(default=None, compare=False, repr=False)


Node = Literal | Attribute | Exists | LogicalNot | Negate | Arithmetic | Comparison | Logic | Like | In | Call


def children(node: Node) -> tuple[Node, ...]:
    """Return the operands or arguments of `node`, in the order of their evaluation."""
    match node:
        case LogicalNot() | Negate() | Like():
            return (node.operand,)
        case Arithmetic() | Comparison() | Logic():
            return (node.left, node.right)
        case In():
            return (node.operand, *node.elements)
        case Call():
            return node.arguments
        case _:
            return ()


def walk(tree: Node) -> Iterator[Node]:
    """Yield every node, parents first."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children(node)))


def names(tree: Node) -> frozenset[str]:
    """Return the attributes that the expression reads or tests."""
    return frozenset(node.name for node in walk(tree) if isinstance(node, Attribute | Exists))


class Signature(NamedTuple):
    """An operation: the type of its `result`, its operands and what each is cast to, and what to `run`."""

    result: Type
    operands: Sequence[tuple[Node, Type]]
    run: Callable[..., AttributeValue]


def signature(node: Node) -> Signature:
    """Return the operation of `node`, an operator that evaluates all its operands, or a call."""
    match node:
        case Call():
            return _call(node)
        case Like():
            return Signature(Type.BOOLEAN, [(node.operand, Type.STRING)], operations.matcher(node.pattern))
        case LogicalNot():
            is_number = isinstance(node.operand, Literal) and node.operand.type is Type.INTEGER
            run = operations.refuse_integer if is_number else operations.invert
            return Signature(Type.BOOLEAN, [(node.operand, Type.ANY)], run)
        case Negate():
            return Signature(Type.INTEGER, [(node.operand, Type.INTEGER)], operations.negate)
        case Arithmetic() | Comparison():
            result, target, binary = operations.BINARY[node.operator]
            return Signature(result, [(node.left, target), (node.right, target)], binary)
        case _:
            among = [(each, Type.ANY) for each in children(node)]
            return Signature(Type.BOOLEAN, among, operations.contains)


def _call(node: Call) -> Signature:
    name, arity, found = node.name, len(node.arguments), node.function
    if found is not None:
        return Signature(found.result, [*zip(node.arguments, found.types(arity), strict=True)], found.run)

    def missing() -> AttributeValue:
        raise CesqlMissingFunctionError(name=name, arity=arity)

    return Signature(Type.BOOLEAN, (), missing)
