"""What Spark cannot evaluate as the routers do, and so refuses: a difference must never be silent."""

from __future__ import annotations

from eventplane.cesql import BUILTINS, Expression, tree
from eventplane.cesql.cost import nesting
from eventplane.limits import MAX_FILTER_NESTING
from glue_jobs.delivery_audit.errors import UnsupportedExpressionError


def check(expression: Expression) -> None:
    """Raises `UnsupportedExpressionError`."""
    try:
        expression.text.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedExpressionError(expression.text, "half a surrogate pair", "remove it") from error
    if nesting(expression.tree) > MAX_FILTER_NESTING:
        what = f"more than {MAX_FILTER_NESTING} functions and comparisons within each other"
        raise UnsupportedExpressionError(expression.text, what, "join parts with AND and OR instead")
    for node in tree.walk(expression.tree):
        if isinstance(node, tree.Call):
            called = node.name, len(node.arguments)
            if expression.functions.resolve(*called) is not BUILTINS.resolve(*called):
                what = f"a {node.name} of its own"
                raise UnsupportedExpressionError(expression.text, what, "use the built-in functions only")
