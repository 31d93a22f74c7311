"""What an expression can come to when only some attributes are known: the ground on which `lint` stands."""

from __future__ import annotations

from itertools import product
from typing import Literal

from eventplane.attributes import REQUIRED
from eventplane.cesql import tree
from eventplane.cesql.casts import Type, cast
from eventplane.cesql.errors import CesqlCastError
from eventplane.cesql.evaluation import Attributes, evaluate
from eventplane.cesql.functions import Functions
from eventplane.cesql.tree import Node

Outcome = Literal["true", "false", "error"]

_ALL: frozenset[Outcome] = frozenset({"true", "false", "error"})
_NEGATION: dict[Outcome, Outcome] = {"true": "false", "false": "true", "error": "error"}


def outcomes(node: Node, known: Attributes, functions: Functions) -> frozenset[Outcome]:
    """Every outcome of `node` as a condition that some event with the `known` attributes could give.

    It may name one too many, never one too few: parts that share an unknown attribute count as independent.
    """
    if tree.names(node) <= known.keys():
        return frozenset({_exactly(node, known, functions)})
    match node:
        case tree.Not():
            return frozenset(_NEGATION[each] for each in outcomes(node.operand, known, functions))
        case tree.Logic():
            sides = outcomes(node.left, known, functions), outcomes(node.right, known, functions)
            return frozenset(_joined(node.operator, left, right) for left, right in product(*sides))
        case tree.Exists():
            return frozenset({"true"} if node.name in REQUIRED else {"true", "false"})
        case _:
            return frozenset({"error"}) if _must_err(node, known, functions) else _ALL


def bad_operands(node: Node, functions: Functions) -> list[tree.Literal]:
    """The literals under `node` that cannot be cast to what it needs."""
    return [
        each
        for each, target in _needs(node, functions)
        if isinstance(each, tree.Literal) and _stuck(each, target)
    ]


def _exactly(node: Node, known: Attributes, functions: Functions) -> Outcome:
    result = evaluate(node, known, functions)
    try:
        holds = cast(result.value, Type.BOOLEAN)
    except CesqlCastError:
        return "error"
    if result.errors:
        return "error"
    return "true" if holds else "false"


def _joined(operator: tree.LogicOperator, left: Outcome, right: Outcome) -> Outcome:
    if left == "error" or (operator, left) in {("AND", "false"), ("OR", "true")}:
        return left
    if right == "error" or operator != "XOR":
        return right
    return "false" if left == right else "true"


def _must_err(node: Node, known: Attributes, functions: Functions) -> bool:
    if tree.names(node) <= known.keys():
        return bool(evaluate(node, known, functions).errors)
    if isinstance(node, tree.Not | tree.Logic):
        return outcomes(node, known, functions) == {"error"}
    if isinstance(node, tree.Call) and functions.resolve(node.name, len(node.arguments)) is None:
        return True
    if bad_operands(node, functions):
        return True
    return any(_must_err(each, known, functions) for each in tree.children(node))


def _needs(node: Node, functions: Functions) -> list[tuple[Node, Type]]:
    """Operands with the type that each is cast to, where the operation alone decides it."""
    match node:
        case tree.Negate() | tree.Arithmetic() | tree.Comparison(operator="<" | "<=" | ">" | ">="):
            return [(each, Type.INTEGER) for each in tree.children(node)]
        case tree.Comparison(right=tree.Literal() as right):
            return [(node.left, right.type)]
        case tree.Logic() | tree.Not():
            return [(each, Type.BOOLEAN) for each in tree.children(node)]
        case tree.In(operand=tree.Literal() as operand):
            return [(each, operand.type) for each in node.elements]
        case tree.Call():
            function = functions.resolve(node.name, len(node.arguments))
            return (
                list(zip(node.arguments, function.types(len(node.arguments)), strict=True))
                if function
                else []
            )
        case _:
            return []


def _stuck(literal: tree.Literal, target: Type) -> bool:
    try:
        cast(literal.value, target)
    except CesqlCastError:
        return True
    return False
