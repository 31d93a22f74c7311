"""Why an event passes a CESQL expression, or does not: its conditions, each judged by itself."""

from __future__ import annotations

from eventplane.cesql import CesqlCastError, CesqlGenericError, Expression, tree, write
from eventplane.cesql.expression import Result, evaluate
from eventplane.cesql.functions import Functions
from eventplane.cesql.operations import Type, cast
from eventplane.cesql.tree import Node
from eventplane.explain import Term
from eventplane.filters import Attributes


def explain_sql(expression: Expression, attributes: Attributes) -> Term:
    """The expression with its value and errors; below it what AND and OR join.

    Each condition is judged as if it stood alone, also where the whole was decided before its turn; the
    errors of the whole are those that counted.
    """
    result = expression.evaluate(attributes)
    text = f"sql {' '.join(expression.text.split())}"
    return _term(text, expression.tree, result, attributes, expression.functions)


def _term(text: str, node: Node, result: Result, attributes: Attributes, functions: Functions) -> Term:
    joined = _joined(node)
    names = () if joined else sorted(tree.names(node))
    return Term(
        text,
        result.passes,
        {name: attributes.get(name) for name in names},
        result.value,
        tuple(f"{each.kind}: {each}" for each in result.errors),
        tuple(_condition(each, attributes, functions) for each in joined),
    )


def _condition(node: Node, attributes: Attributes, functions: Functions) -> Term:
    result = evaluate(node, attributes, functions)
    if not result.errors:
        # AND and OR cast what they join, so that 'true' holds here, which alone would not pass.
        try:
            result = Result(cast(result.value, Type.BOOLEAN))
        except CesqlCastError as error:
            result = Result(result.value, (error,))
    return _term(_text(node), node, result, attributes, functions)


def _joined(node: Node) -> list[Node]:
    """What one AND or OR joins, in the order of the text; nothing for any other condition."""
    if not isinstance(node, tree.Logic) or node.operator == "XOR":
        return []
    operator, parts = node.operator, []
    left: Node = node
    # `a AND b AND c` is ((a AND b) AND c): three parts of one list.
    while isinstance(left, tree.Logic) and left.operator == operator:
        parts.append(left.right)
        left = left.left
    return [left, *reversed(parts)]


def _text(node: Node) -> str:
    try:
        return write(node)
    except CesqlGenericError:
        # A text that no literal can hold, which only a LIKE pattern can be.
        return "(cannot be written)"
