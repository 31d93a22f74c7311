"""From text to tree: a Pratt parser. Each token is looked at once; nothing is tried twice."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NoReturn, cast

from eventplane.cesql import tree
from eventplane.cesql.errors import CesqlParseError
from eventplane.cesql.lexer import KEYWORDS, Token, integer_value, string_value, tokens
from eventplane.cesql.tree import Node

MAX_EXPRESSION_DEPTH = 100
"""Deepest tree and nesting of parentheses, levels. Ours: keeps walks far from Python's recursion limit."""

# How tightly an operator holds its left operand (section 3.6). AND, OR, XOR share one level, left to right.
_LOGIC, _COMPARISON, _SUM, _PRODUCT, _IN, _LIKE, PREFIX = range(1, 8)
POWERS = {
    **dict.fromkeys(("AND", "OR", "XOR"), _LOGIC),
    **dict.fromkeys(("=", "!=", "<>", "<", "<=", ">", ">="), _COMPARISON),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "%"), _PRODUCT),
    "IN": _IN,
    "LIKE": _LIKE,
}

_ATTRIBUTE = re.compile(r"[A-Za-z0-9]+")
_FUNCTION = re.compile(r"[A-Za-z][A-Za-z_]*")
_FLAT = "join alternatives with IN, or use several routes"


def parse_tree(text: str) -> Node:
    """The tree of an expression; raises CesqlParseError and nothing else."""
    parser = _Parser(text)
    node = parser.expression(0)
    parser.finish()
    _check_depth(node, text)
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0

    def expression(self, power: int) -> Node:
        """An operand and every operator after it that holds at least as tightly as `power`."""
        self._depth += 1
        if self._depth > MAX_EXPRESSION_DEPTH:
            self._fail(f"nested deeper than {MAX_EXPRESSION_DEPTH} levels", _FLAT)
        left = self._operand()
        while True:
            negated = self._token.text == "NOT" and self._tokens[self._at + 1].text in ("LIKE", "IN")
            operator = self._tokens[self._at + negated]
            held = POWERS.get(operator.text, 0)
            if held == 0 or held < power:
                break
            self._at += negated + 1
            left = self._operation(left, operator, held)
            if negated:
                left = tree.Not(left, position=operator.position)
        self._depth -= 1
        return left

    def finish(self) -> None:
        token = self._token
        if token.kind == "end":
            return
        if token.kind == "integer" and token.text[0] in "+-":
            sign, digits = token.text[0], token.text[1:]
            self._fail("a sign that touches a number belongs to it", f"write {sign} {digits} with a space")
        if token.text == ")":
            self._fail("this parenthesis closes nothing", "remove it or open one")
        self._fail("an operator is missing here", "join the parts, as with AND, or remove this one")

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _fail(self, reason: str, remedy: str) -> NoReturn:
        raise CesqlParseError(reason, remedy, self._text, self._token.position)

    def _operand(self) -> Node:
        token = self._token
        if token.kind == "integer":
            return tree.Literal(integer_value(self._take(), self._text), position=token.position)
        if token.kind == "string":
            return tree.Literal(string_value(self._take().text), position=token.position)
        if token.kind == "word":
            return self._word()
        if token.text == "(":
            return self._group()
        if token.text == "-":
            self._at += 1
            return tree.Negate(self.expression(PREFIX), position=token.position)
        if token.kind == "end":
            return self._fail("the expression ends where a value is needed", "complete it")
        return self._fail(
            f"{token.text!r} stands where a value is needed", "put an attribute or a literal before it"
        )

    def _word(self) -> Node:
        token = self._token
        if token.text in ("TRUE", "FALSE"):
            return tree.Literal(self._take().text == "TRUE", position=token.position)
        if token.text == "NOT":
            self._at += 1
            return tree.Not(self.expression(PREFIX), position=token.position)
        if token.text == "EXISTS":
            self._at += 1
            return tree.Exists(self._attribute_name(), position=token.position)
        if self._tokens[self._at + 1].text == "(" and token.text not in KEYWORDS:
            return self._call()
        return tree.Attribute(self._attribute_name(), position=token.position)

    def _attribute_name(self) -> str:
        token = self._token
        if token.kind != "word" or token.text in KEYWORDS:
            self._fail("the name of an attribute is needed here", "name a context attribute")
        if not _ATTRIBUTE.fullmatch(token.text):
            self._fail(
                f"{token.text!r} is no attribute",
                "a name has letters and digits only; a function needs (...)",
            )
        return self._take().text.lower()

    def _call(self) -> Node:
        token = self._token
        if not _FUNCTION.fullmatch(token.text):
            self._fail(f"{token.text!r} is no function", "a function's name has letters and underscores only")
        self._at += 2
        if self._token.text == ")":
            self._at += 1
            return tree.Call(token.text.upper(), (), position=token.position)
        return tree.Call(token.text.upper(), self._list(), position=token.position)

    def _group(self) -> Node:
        self._at += 1
        inner = self.expression(0)
        self._close()
        return replace(inner, grouped=True)

    def _list(self) -> tuple[Node, ...]:
        """`expression, expression, ...)`: at least one, and the parenthesis after them."""
        parts = [self.expression(0)]
        while self._token.text == ",":
            self._at += 1
            parts.append(self.expression(0))
        self._close()
        return tuple(parts)

    def _close(self) -> None:
        if self._token.text == ")":
            self._at += 1
        elif self._token.kind == "end":
            self._fail("a parenthesis is not closed", "add )")
        else:
            self.finish()

    def _operation(self, left: Node, operator: Token, held: int) -> Node:
        word, position = operator.text, operator.position
        if word == "LIKE":
            if self._token.kind != "string":
                self._fail("LIKE needs a pattern in quotes", "write it as a string literal")
            return tree.Like(left, string_value(self._take().text), position=position)
        if word == "IN":
            if self._token.text != "(":
                self._fail("IN needs a list", "write it in parentheses: x IN ('a', 'b')")
            self._at += 1
            return tree.In(left, self._list(), position=position)
        right = self.expression(held + 1)
        if held == _LOGIC:
            return tree.Logic(cast(tree.LogicOperator, word), left, right, position=position)
        if held == _COMPARISON:
            word = "!=" if word == "<>" else word
            return tree.Comparison(cast(tree.ComparisonOperator, word), left, right, position=position)
        return tree.Arithmetic(cast(tree.ArithmeticOperator, word), left, right, position=position)


def _check_depth(node: Node, text: str) -> None:
    """A chain of operators is a deep tree too, though nothing in it is nested."""
    level = [node]
    for _ in range(MAX_EXPRESSION_DEPTH):
        level = [child for parent in level for child in tree.children(parent)]
        if not level:
            return
    raise CesqlParseError(
        f"more than {MAX_EXPRESSION_DEPTH} operators in a chain",
        f"{_FLAT}, or put halves in parentheses",
        text,
        level[0].position,
    )
