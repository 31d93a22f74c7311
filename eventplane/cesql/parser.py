"""Expressions as text: `parse_tree` reads one, `write` writes one.

A tokenizer (section 2.2 and the official grammar) and a Pratt parser: each token is read once. What `write`
returns parses to an equal tree.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal, NamedTuple, NoReturn, cast

from eventplane.cesql import tree
from eventplane.cesql.errors import CesqlGenericError, CesqlParseError
from eventplane.cesql.functions import Functions
from eventplane.cesql.operations import INTEGER_MAX, INTEGER_MIN
from eventplane.cesql.tree import Node

MAX_EXPRESSION_LENGTH = 16_384
"""Longest expression, characters. Ours: room for an IN of some hundred names."""

Kind = Literal["integer", "string", "word", "symbol", "end"]

KEYWORDS = frozenset({"AND", "OR", "XOR", "NOT", "LIKE", "IN", "EXISTS", "TRUE", "FALSE"})

# A sign that touches digits belongs to them: `a-1` is two values side by side, as in the official grammar.
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<integer>[+-][0-9]+|[0-9]+(?![A-Za-z0-9_]))
    |(?P<word>[A-Za-z0-9_]+)
    |(?P<string>'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")
    |(?P<symbol><>|<=|>=|!=|[-+*/%=<>(),])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_DIGITS = len(str(INTEGER_MAX))


class Token(NamedTuple):
    """A token; `text` is as written, but keywords are in upper case."""

    kind: Kind
    text: str
    position: int


def tokens(text: str) -> list[Token]:
    """Return the tokens of `text`, an `end` last; raises CesqlParseError."""
    if len(text) > MAX_EXPRESSION_LENGTH:
        reason = f"the expression has {len(text)} characters, more than {MAX_EXPRESSION_LENGTH}"
        raise _error(text, MAX_EXPRESSION_LENGTH, reason, "use several routes or a shorter condition")
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _stray(text, position)
        if match.lastgroup != "space":
            found.append(_token(match))
        position = match.end()
    found.append(Token("end", "", position))
    return found


def string_value(literal: str) -> str:
    """Return the text of a quoted literal: a backslash is removed before its own quote only."""
    quote = literal[0]
    return _ESCAPE.sub(lambda escape: quote if escape[1] == quote else escape[0], literal[1:-1])


def integer_value(token: Token, text: str) -> int:
    """Return the number of an integer token; raises CesqlParseError beyond 32 bits."""
    digits = token.text.lstrip("+-").lstrip("0") or "0"
    if len(digits) <= _DIGITS:
        value = -int(digits) if token.text.startswith("-") else int(digits)
        if INTEGER_MIN <= value <= INTEGER_MAX:
            return value
    remedy = f"give {INTEGER_MIN} to {INTEGER_MAX}, or compare as a String"
    raise _error(text, token.position, "an Integer has 32 bits", remedy)


def _token(match: re.Match[str]) -> Token:
    text = match[0]
    kind: Kind = match.lastgroup  # type: ignore[assignment]  # the groups are named after the kinds
    if kind == "word" and text.upper() in KEYWORDS:
        text = text.upper()
    return Token(kind, text, match.start())


def _stray(text: str, position: int) -> CesqlParseError:
    character = text[position]
    if character in "'\"":
        remedy = f"close it with {character}; inside, write \\{character}"
        return _error(text, position, "this string is not closed", remedy)
    reason = f"the character {character!r} has no meaning here"
    return _error(text, position, reason, "remove it, or put texts in quotes")


def _error(text: str, position: int, reason: str, remedy: str) -> CesqlParseError:
    return CesqlParseError(reason, position, remedy=remedy, text=text)


MAX_EXPRESSION_DEPTH = 100
"""Deepest tree and nesting of parentheses, levels. Ours: keeps walks far from Python's recursion limit."""

# How tightly an operator binds (section 3.6). AND, OR, XOR share one level, left to right.
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


def parse_tree(text: str, functions: Functions) -> Node:
    """Return the tree of an expression; raises CesqlParseError and nothing else."""
    parser = _Parser(text, functions)
    node = parser.expression(0)
    parser.finish()
    _check_depth(node, text)
    return node


class _Parser:
    def __init__(self, text: str, functions: Functions) -> None:
        self._text = text
        self._functions = functions
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0

    def expression(self, power: int) -> Node:
        """Return an operand with every operator after it that binds at least as tightly as `power`."""
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
                left = tree.LogicalNot(left, position=operator.position)
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
        raise _error(self._text, self._token.position, reason, remedy)

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
        return self._fail(f"a value is needed before {token.text!r}", "put an attribute or a literal there")

    def _word(self) -> Node:
        token = self._token
        if token.text in ("TRUE", "FALSE"):
            return tree.Literal(self._take().text == "TRUE", position=token.position)
        if token.text == "NOT":
            self._at += 1
            return tree.LogicalNot(self.expression(PREFIX), position=token.position)
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
                f"{token.text!r} is not the name of an attribute",
                "a name has letters and digits only; a function needs (...)",
            )
        return self._take().text.lower()

    def _call(self) -> Node:
        token = self._token
        if not _FUNCTION.fullmatch(token.text):
            self._fail(
                f"{token.text!r} is not the name of a function",
                "a function's name has letters and underscores only",
            )
        self._at += 2
        name, is_empty = token.text.upper(), self._token.text == ")"
        self._at += is_empty
        arguments = () if is_empty else self._list()
        function = self._functions.resolve(name, len(arguments))
        return tree.Call(name, arguments, function, position=token.position)

    def _group(self) -> Node:
        self._at += 1
        inner = self.expression(0)
        self._close()
        return replace(inner, grouped=True)

    def _list(self) -> tuple[Node, ...]:
        """Read `expression, expression, ...)`: at least one, and the closing parenthesis."""
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
    """Raise CesqlParseError for a tree that is too deep: a long chain of operators is deep as well."""
    level = [node]
    for _ in range(MAX_EXPRESSION_DEPTH):
        level = [child for parent in level for child in tree.children(parent)]
        if not level:
            return
    reason = f"more than {MAX_EXPRESSION_DEPTH} operators in a chain"
    raise _error(text, level[0].position, reason, f"{_FLAT}, or put halves in parentheses")


_ATOM = PREFIX + 1


def write(node: Node) -> str:
    """Return `node` in CESQL; raises CesqlGenericError for a text that no string literal can hold."""
    return _write(node)[0]


def quote(text: str) -> str:
    """Return `text` as a string literal; raises CesqlGenericError if there is none.

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
    """Return the text of `node`, and how tightly it binds."""
    match node:
        case tree.Literal() | tree.Attribute() | tree.Call():
            return _atom(node), _ATOM
        case tree.Exists():
            return f"EXISTS {node.name}", PREFIX
        case tree.LogicalNot(operand=tree.Like() | tree.In() as operand):
            return _membership(operand, "NOT ")
        case tree.Like() | tree.In():
            return _membership(node)
        case tree.LogicalNot():
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
    """Return `node` as an operand of an operator of `power`."""
    text, held = _write(node)
    return f"({text})" if held < power else text


def _apart(node: Node, power: int) -> str:
    """Do the same where a NOT would be misread: `(NOT a) = b`."""
    return f"({_write(node)[0]})" if isinstance(node, tree.LogicalNot) else _within(node, power)
