"""Expressions that are correct and say something else than their author meant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eventplane.cesql import tree
from eventplane.cesql.casts import Type
from eventplane.cesql.errors import CesqlGenericError, caret
from eventplane.cesql.expression import Expression
from eventplane.cesql.functions import Functions
from eventplane.cesql.outcomes import bad_operands, outcomes
from eventplane.cesql.printer import write
from eventplane.cesql.tree import Node


@dataclass(frozen=True, slots=True)
class LintWarning:
    """What looks wrong at `position` (characters from 0), what to do, and the place with a caret under it."""

    position: int
    message: str
    remedy: str
    excerpt: str

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}\n{self.excerpt}"


def lint(expression: Expression) -> list[LintWarning]:
    """What is doubtful about `expression` as a filter, in the order of the text."""
    found = [
        *_misread(expression.tree),
        *_unknown_calls(expression.tree, expression.functions),
        *_impossible_casts(expression.tree, expression.functions),
        *_constant(expression),
    ]
    return [_warning(expression, each) for each in sorted(found, key=lambda each: each[0])]


def missing_functions(expression: Expression) -> list[LintWarning]:
    """The calls that no function answers: a contract refuses them, since its filter could only err there."""
    return [_warning(expression, each) for each in _unknown_calls(expression.tree, expression.functions)]


_Finding = tuple[int, str, str]


def _warning(expression: Expression, finding: _Finding) -> LintWarning:
    position, message, remedy = finding
    return LintWarning(position, message, remedy, caret(expression.text, position))


def _misread(root: Node) -> Iterator[_Finding]:
    """Precedence that few expect."""
    for node in tree.walk(root):
        if isinstance(node, tree.Logic):
            inner = node.left
            if isinstance(inner, tree.Logic) and not inner.grouped and inner.operator != node.operator:
                yield (
                    node.position,
                    f"{inner.operator} and {node.operator} bind equally and are read from left to right",
                    f"write parentheses: {_written(node)}",
                )
        elif isinstance(node, tree.Comparison | tree.Arithmetic | tree.Like | tree.In):
            inner = tree.children(node)[0]
            # `x NOT LIKE p` is a Not as well, but stands behind its operand.
            if isinstance(inner, tree.Not) and not inner.grouped and inner.position < _start(inner.operand):
                yield (
                    inner.position,
                    "NOT binds to the next word only",
                    f"this means {_written(node)}; group it",
                )


def _unknown_calls(root: Node, functions: Functions) -> Iterator[_Finding]:
    for node in tree.walk(root):
        if isinstance(node, tree.Call) and functions.resolve(node.name, len(node.arguments)) is None:
            yield (
                node.position,
                f"there is no function {node.name} of {len(node.arguments)} argument(s)",
                "use one of the table in docs/cesql.md",
            )


def _impossible_casts(root: Node, functions: Functions) -> Iterator[_Finding]:
    """Literals that make every event err."""
    for node in tree.walk(root):
        for literal in bad_operands(node, functions):
            yield (
                literal.position,
                f"{_written(literal)} cannot be cast to what is needed here, so this always errs",
                "compare with = or LIKE, or give a literal of the right type",
            )


def _constant(expression: Expression) -> Iterator[_Finding]:
    """Filters, or parts of one, that no event can change."""
    root, functions = expression.tree, expression.functions
    start = _start(root)
    kind = _result(root, functions)
    reachable = outcomes(root, {}, functions)
    if kind not in (Type.BOOLEAN, Type.ANY):
        yield (
            start,
            f"this gives a value of type {kind.value}, and only true passes",
            "compare it with something",
        )
    elif "true" not in reachable:
        yield start, "no event passes this filter", "remove the route or correct the condition"
    elif reachable == {"true"}:
        yield start, "every event passes this filter", "narrow it, or leave the condition out"
    else:
        yield from _constant_parts(root, functions)


def _constant_parts(root: Node, functions: Functions) -> Iterator[_Finding]:
    for node in tree.walk(root):
        if not isinstance(node, tree.Logic):
            continue
        for operand in (node.left, node.right):
            reachable = outcomes(operand, {}, functions)
            if reachable in ({"true"}, {"false"}):
                yield _start(operand), f"this part is always {next(iter(reachable))}", "remove it"


def _result(node: Node, functions: Functions) -> Type:
    match node:
        case tree.Literal():
            return node.type
        case tree.Attribute():
            return Type.ANY
        case tree.Negate() | tree.Arithmetic():
            return Type.INTEGER
        case tree.Call():
            function = functions.resolve(node.name, len(node.arguments))
            return function.result if function else Type.BOOLEAN
        case _:
            return Type.BOOLEAN


def _start(node: Node) -> int:
    """Where the text of `node` begins: an operator's own position is behind its left operand."""
    return min(each.position for each in tree.walk(node))


def _written(node: Node) -> str:
    """The node as text. What was parsed can be written; a pattern put together by hand perhaps not."""
    try:
        return write(node)
    except CesqlGenericError:
        return "it with parentheses"
