"""The types of CESQL, and how a value of one becomes a value of another (section 3.7)."""

from __future__ import annotations

import re
from enum import Enum

from eventplane.attributes import AttributeValue, attribute_text
from eventplane.cesql.errors import CesqlCastError
from eventplane.limits import MAX_INTEGER_TEXT

INTEGER_MIN = -(2**31)
INTEGER_MAX = 2**31 - 1
"""The range of Integer, 32 bit (section 3.1)."""

_INTEGER = re.compile(rf"[+-]?[0-9]{{1,{MAX_INTEGER_TEXT}}}")
_LONGEST_BOOLEAN = len("false")
_EXCERPT = 80


class Type(Enum):
    """What an expression gives, or an operation takes; ANY is known only when an event is there."""

    STRING = "String"
    INTEGER = "Integer"
    BOOLEAN = "Boolean"
    ANY = "Any"


ZERO: dict[Type, AttributeValue] = {Type.STRING: "", Type.INTEGER: 0, Type.BOOLEAN: False, Type.ANY: False}
"""The zero value of each type (section 3.1); what cannot be typed counts as Boolean (section 3.2)."""


def type_of(value: AttributeValue) -> Type:
    """The type of a value."""
    if isinstance(value, str):
        return Type.STRING
    return Type.BOOLEAN if isinstance(value, bool) else Type.INTEGER


def cast(value: AttributeValue, target: Type) -> AttributeValue:
    """`value` as a `target`; raises CesqlCastError when it cannot be."""
    if target is Type.STRING:
        return attribute_text(value)
    if target is Type.INTEGER:
        return to_integer(value)
    return to_boolean(value) if target is Type.BOOLEAN else value


def to_integer(value: AttributeValue) -> int:
    """The Integer that `value` stands for; raises CesqlCastError."""
    if not isinstance(value, str):
        return int(value)
    if _INTEGER.fullmatch(value):
        number = int(value)
        if INTEGER_MIN <= number <= INTEGER_MAX:
            return number
    raise CesqlCastError(f"{value[:_EXCERPT]!r} is not a 32 bit Integer; compare it as a String")


def to_boolean(value: AttributeValue) -> bool:
    """The Boolean that `value` stands for; raises CesqlCastError."""
    if not isinstance(value, str):
        return bool(value)
    word = value.lower() if len(value) <= _LONGEST_BOOLEAN else ""
    if word in ("true", "false"):
        return word == "true"
    raise CesqlCastError(f"{value[:_EXCERPT]!r} is not a Boolean; write true or false")
