"""Types, casts and operators of CESQL, with the patterns of LIKE (sections 3.1, 3.4 and 3.7)."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Any

from eventplane.attributes import AttributeValue, attribute_text
from eventplane.cesql.errors import CesqlCastError, CesqlMathError
from eventplane.limits import MAX_INTEGER_TEXT

INTEGER_MIN = -(2**31)
INTEGER_MAX = 2**31 - 1
"""The range of Integer, 32 bit (section 3.1)."""

_INTEGER = re.compile(rf"[+-]?[0-9]{{1,{MAX_INTEGER_TEXT}}}")
_LONGEST_BOOLEAN = len("false")
_EXCERPT = 80


class Type(Enum):
    """The type of a result or an operand; ANY is known only for an event."""

    STRING = "String"
    INTEGER = "Integer"
    BOOLEAN = "Boolean"
    ANY = "Any"


ZERO: dict[Type, AttributeValue] = {Type.STRING: "", Type.INTEGER: 0, Type.BOOLEAN: False, Type.ANY: False}
"""The zero value of each type (section 3.1); an unknown type counts as Boolean (section 3.2)."""


def type_of(value: AttributeValue) -> Type:
    """Return the type of a value."""
    if isinstance(value, str):
        return Type.STRING
    return Type.BOOLEAN if isinstance(value, bool) else Type.INTEGER


def cast(value: AttributeValue, target: Type) -> AttributeValue:
    """Return `value` as a `target`; raises CesqlCastError."""
    if target is Type.STRING:
        return attribute_text(value)
    if target is Type.INTEGER:
        return to_integer(value)
    return to_boolean(value) if target is Type.BOOLEAN else value


def to_integer(value: AttributeValue) -> int:
    """Return `value` as an Integer; raises CesqlCastError."""
    if not isinstance(value, str):
        return int(value)
    if _INTEGER.fullmatch(value):
        number = int(value)
        if INTEGER_MIN <= number <= INTEGER_MAX:
            return number
    raise CesqlCastError(f"{value[:_EXCERPT]!r} is not a 32 bit Integer; compare it as a String")


def to_boolean(value: AttributeValue) -> bool:
    """Return `value` as a Boolean; raises CesqlCastError."""
    if not isinstance(value, str):
        return bool(value)
    word = value.lower() if len(value) <= _LONGEST_BOOLEAN else ""
    if word in ("true", "false"):
        return word == "true"
    raise CesqlCastError(f"{value[:_EXCERPT]!r} is not a Boolean; write true or false")


def divide(left: int, right: int) -> int:
    """Return the quotient, rounded towards zero; raises CesqlMathError."""
    if right == 0:
        raise CesqlMathError("division by zero; test the divisor first")
    quotient = abs(left) // abs(right)
    return checked(quotient if (left < 0) == (right < 0) else -quotient)


def remainder(left: int, right: int) -> int:
    """Return the remainder of that division, with the sign of `left`; raises CesqlMathError."""
    if right == 0:
        raise CesqlMathError("remainder of a division by zero; test the divisor first")
    rest = abs(left) % abs(right)
    return rest if left >= 0 else -rest


def checked(number: int) -> int:
    """Return `number` if it has 32 bits; raises CesqlMathError. The specification leaves overflow open."""
    if INTEGER_MIN <= number <= INTEGER_MAX:
        return number
    raise CesqlMathError(f"the result {number} is not a 32 bit Integer")


def negate(number: int) -> int:
    """Return -number; raises CesqlMathError for the one Integer without an opposite."""
    return checked(-number)


def invert(value: AttributeValue) -> bool:
    """Return NOT `value`, cast to a Boolean; raises CesqlCastError, whose value is true."""
    try:
        return not to_boolean(value)
    except CesqlCastError as error:
        error.value = True
        raise


def refuse_integer(value: AttributeValue) -> bool:
    """Raise CesqlCastError for NOT of an Integer literal: the official case "Invalid int cast" wants it.

    The text (3.7) casts every Integer, as `invert` does; the case has a literal.
    """
    raise CesqlCastError(f"NOT of the Integer literal {value}; write TRUE or FALSE", value=True)


def equal(left: AttributeValue, right: AttributeValue) -> bool:
    """Return whether `left`, cast to the type of `right`, equals it; raises CesqlCastError."""
    return cast(left, type_of(right)) == right


def contains(value: AttributeValue, *elements: AttributeValue) -> bool:
    """Return whether an element, cast to the type of `value`, equals it; raises CesqlCastError.

    Every element is cast, also after an equal one: a Set has no order, so the answer must not depend on it.
    """
    target = type_of(value)
    return value in [cast(element, target) for element in elements]


BINARY: dict[str, tuple[Type, Type, Callable[[Any, Any], AttributeValue]]] = {
    "=": (Type.BOOLEAN, Type.ANY, equal),
    "!=": (Type.BOOLEAN, Type.ANY, lambda left, right: not equal(left, right)),
    "<": (Type.BOOLEAN, Type.INTEGER, operator.lt),
    "<=": (Type.BOOLEAN, Type.INTEGER, operator.le),
    ">": (Type.BOOLEAN, Type.INTEGER, operator.gt),
    ">=": (Type.BOOLEAN, Type.INTEGER, operator.ge),
    "*": (Type.INTEGER, Type.INTEGER, lambda left, right: checked(left * right)),
    "/": (Type.INTEGER, Type.INTEGER, divide),
    "%": (Type.INTEGER, Type.INTEGER, remainder),
    "+": (Type.INTEGER, Type.INTEGER, lambda left, right: checked(left + right)),
    "-": (Type.INTEGER, Type.INTEGER, lambda left, right: checked(left - right)),
}
"""By operator: the type of the result, the type that both operands are cast to, and what to run."""


class Wildcard(Enum):
    ONE = "_"
    MANY = "%"


Pattern = tuple[str | Wildcard, ...]
"""Literal texts and wildcards; no two texts and no two MANY are neighbours."""

# Any other backslash is an ordinary character, as in the conformance cases.
_PIECE = re.compile(r"\\[%_]|[%_]|[^\\%_]+|\\", re.DOTALL)


def read(pattern: str) -> Pattern:
    """Split a pattern (section 3.4.3): `%` is any text, `_` one character, a backslash quotes them."""
    pieces: list[str | Wildcard] = []
    for piece in _PIECE.findall(pattern):
        if piece in ("%", "_"):
            wildcard = Wildcard(piece)
            if wildcard is Wildcard.ONE or pieces[-1:] != [Wildcard.MANY]:
                pieces.append(wildcard)
            continue
        text = piece[-1] if piece[-1] in "%_" else piece
        if pieces and isinstance(pieces[-1], str):
            pieces[-1] += text
        else:
            pieces.append(text)
    return tuple(pieces)


def parts(pattern: str) -> tuple[Pattern, ...]:
    """Return the parts between the `%` of a pattern; the first and the last may be empty."""
    found: list[list[str | Wildcard]] = [[]]
    for piece in read(pattern):
        if piece is Wildcard.MANY:
            found.append([])
        else:
            found[-1].append(piece)
    return tuple(map(tuple, found))


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether a text matches `pattern`.

    The ends are compared in place and each part between is searched once, from the end of the one before: the
    first place where a part fits is as good as any later one.
    """
    first, *others = map(_Part, parts(pattern))
    if not others:
        return lambda text: len(text) == first.length and first.fits(text, 0)
    *middle, last = others
    least = first.length + last.length

    def matches(text: str) -> bool:
        end = len(text) - last.length
        if len(text) < least or not first.fits(text, 0) or not last.fits(text, end):
            return False
        at = first.length
        for part in middle:
            found = part.find(text, at, end)
            if found < 0:
                return False
            at = found + part.length
        return True

    return matches


class _Part:
    """A part of a pattern without `%`: all texts that fit it have the same `length`, characters."""

    __slots__ = ("find", "fits", "length")

    def __init__(self, pieces: Pattern) -> None:
        self.length = sum(1 if isinstance(each, Wildcard) else len(each) for each in pieces)
        self.find: Callable[[str, int, int], int]
        """The first position of the part between two positions of a text, or -1."""
        self.fits: Callable[[str, int], bool]
        """Whether the part is at a position of a text that is long enough for it."""
        if Wildcard.ONE not in pieces:
            literal = "".join(each for each in pieces if isinstance(each, str))
            self.find = lambda text, start, end: text.find(literal, start, end)
            self.fits = lambda text, at: text.startswith(literal, at)
            return
        compiled = re.compile(_expression(pieces), re.DOTALL)

        def find(text: str, start: int, end: int) -> int:
            found = compiled.search(text, start, end)
            return found.start() if found else -1

        self.find = find
        self.fits = lambda text, at: compiled.match(text, at) is not None


def _expression(pieces: Pattern) -> str:
    return "".join("." if isinstance(each, Wildcard) else re.escape(each) for each in pieces)
