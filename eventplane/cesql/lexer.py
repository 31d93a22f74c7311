"""An expression as tokens, after the lexical rules of CESQL v1.0.0 (section 2.2 and the official grammar)."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from eventplane.cesql.casts import INTEGER_MAX, INTEGER_MIN
from eventplane.cesql.errors import CesqlParseError

MAX_EXPRESSION_LENGTH = 16_384
"""Longest expression, characters. Ours: room for an IN of some hundred names, and a bound to the work."""

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
    """`text` as it is written, except a keyword, which is in upper case."""

    kind: Kind
    text: str
    position: int


def tokens(text: str) -> list[Token]:
    """The tokens of `text`, an `end` last; raises CesqlParseError."""
    if len(text) > MAX_EXPRESSION_LENGTH:
        raise CesqlParseError(
            f"the expression has {len(text)} characters, more than {MAX_EXPRESSION_LENGTH}",
            "use several routes or a shorter condition",
            text,
            MAX_EXPRESSION_LENGTH,
        )
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
    """The text that a quoted literal stands for: its own quote loses the backslash, all else stays."""
    quote = literal[0]
    return _ESCAPE.sub(lambda escape: quote if escape[1] == quote else escape[0], literal[1:-1])


def integer_value(token: Token, text: str) -> int:
    """The number of an integer token; raises CesqlParseError when 32 bits cannot hold it."""
    digits = token.text.lstrip("+-").lstrip("0") or "0"
    if len(digits) <= _DIGITS:
        value = -int(digits) if token.text.startswith("-") else int(digits)
        if INTEGER_MIN <= value <= INTEGER_MAX:
            return value
    raise CesqlParseError(
        "an Integer has 32 bits",
        f"give {INTEGER_MIN} to {INTEGER_MAX}, or compare as a String",
        text,
        token.position,
    )


def _token(match: re.Match[str]) -> Token:
    text = match[0]
    kind: Kind = match.lastgroup  # type: ignore[assignment]  # the groups are named after the kinds
    if kind == "word" and text.upper() in KEYWORDS:
        text = text.upper()
    return Token(kind, text, match.start())


def _stray(text: str, position: int) -> CesqlParseError:
    character = text[position]
    if character in "'\"":
        return CesqlParseError(
            "this string is not closed",
            f"close it with {character}; inside, write \\{character}",
            text,
            position,
        )
    return CesqlParseError(
        f"the character {character!r} has no meaning here",
        "remove it, or put texts in quotes",
        text,
        position,
    )
