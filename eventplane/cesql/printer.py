"""A tree as text again: what it writes parses to an equal tree, and is hard to misread."""

from __future__ import annotations

from eventplane.cesql import tree
from eventplane.cesql.errors import CesqlGenericError, CesqlParseError
from eventplane.cesql.lexer import string_value, tokens
from eventplane.cesql.parser import POWERS, PREFIX
from eventplane.cesql.tree import Node

_ATOM = PREFIX + 1


def write(node: Node) -> str:
    """`node` in CESQL; raises CesqlGenericError for a text that no string literal can hold."""
    return _write(node)[0]


def quote(text: str) -> str:
    """`text` as a string literal; raises CesqlGenericError when there is none for it.

    A backslash has no escape of its own, so a text that ends in one, for example, cannot be written.
    """
    for mark in "'\"":
        literal = mark + text.replace(mark, f"\\{mark}") + mark
        try:
            (token, _) = tokens(literal)
        except (CesqlParseError, ValueError):
            continue
        if token.text == literal and string_value(literal) == text:
            return literal
    raise CesqlGenericError(f"CESQL has no literal for {text!r}; use LIKE with _ for the backslash")


def _write(node: Node) -> tuple[str, int]:
    """The text of `node`, and how tightly it holds together."""
    match node:
        case tree.Literal() | tree.Attribute() | tree.Call():
            return _atom(node), _ATOM
        case tree.Exists():
            return f"EXISTS {node.name}", PREFIX
        case tree.Not(operand=tree.Like() | tree.In() as operand):
            return _membership(operand, "NOT ")
        case tree.Like() | tree.In():
            return _membership(node)
        case tree.Not():
            return f"NOT {_within(node.operand, PREFIX)}", PREFIX
        case tree.Negate():
            text = _within(node.operand, PREFIX)
            # A minus that touches digits would become part of the literal.
            return f"-{' ' if text[0].isdigit() else ''}{text}", PREFIX
        case _:
            return _binary(node)


def _atom(node: tree.Literal | tree.Attribute | tree.Call) -> str:
    match node:
        case tree.Literal(value=str(text)):
            return quote(text)
        case tree.Literal():
            return str(node.value).upper()
        case tree.Attribute():
            return node.name
        case _:
            return f"{node.name}({_list(node.arguments)})"


def _membership(node: tree.Like | tree.In, negation: str = "") -> tuple[str, int]:
    word = "LIKE" if isinstance(node, tree.Like) else "IN"
    right = quote(node.pattern) if isinstance(node, tree.Like) else f"({_list(node.elements)})"
    return f"{_apart(node.operand, POWERS[word])} {negation}{word} {right}", POWERS[word]


def _binary(node: tree.Arithmetic | tree.Comparison | tree.Logic) -> tuple[str, int]:
    power = POWERS[node.operator]
    if not isinstance(node, tree.Logic):
        return f"{_apart(node.left, power)} {node.operator} {_apart(node.right, power + 1)}", power
    left = _within(node.left, power)
    if isinstance(node.left, tree.Logic) and node.left.operator != node.operator:
        left = f"({left})"
    return f"{left} {node.operator} {_within(node.right, power + 1)}", power


def _list(nodes: tuple[Node, ...]) -> str:
    return ", ".join(_write(each)[0] for each in nodes)


def _within(node: Node, power: int) -> str:
    """`node` as an operand of something that holds with `power`."""
    text, held = _write(node)
    return f"({text})" if held < power else text


def _apart(node: Node, power: int) -> str:
    """The same where a NOT would be misread: `(NOT a) = b`."""
    return f"({_write(node)[0]})" if isinstance(node, tree.Not) else _within(node, power)
