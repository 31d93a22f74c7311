"""The CloudEvents type system: what each context attribute may hold (CloudEvents 1.0.2, section 3)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date

from eventplane.limits import MAX_ATTRIBUTE_NAME

AttributeValue = str | int | bool
"""String, URI, URI-reference, Timestamp, Binary are `str`; Integer is `int` (32 bit); Boolean is `bool`."""

REQUIRED = ("specversion", "id", "source", "type")

_NAME = re.compile(r"[a-z0-9]+")
# Control characters, surrogates and noncharacters may not stand in a CloudEvents String.
_FORBIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
    + "]"
)
# Possessive, so that a text that fails does so in one pass; percent-encoding stands by itself.
_URI_CHARACTERS = r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]++|%[0-9A-Fa-f]{2})++"
_URI_REFERENCE = re.compile(_URI_CHARACTERS)
_URI = re.compile(rf"[A-Za-z][A-Za-z0-9+\-.]*+:{_URI_CHARACTERS}")
_HOUR_MINUTE = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TIMESTAMP = re.compile(
    rf"\d{{4}}-\d\d-\d\d[Tt]{_HOUR_MINUTE}:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-]{_HOUR_MINUTE})", re.ASCII
)
_WORD = r"[\w!#$&^.+\-]+"
_MEDIA_TYPE = re.compile(
    rf"{_WORD}/{_WORD}(?:\s*;\s*{_WORD}=(?:{_WORD}|\"[^\"]*\"))*",
    re.ASCII,
)

_INT32 = range(-(2**31), 2**31)


def attribute_text(value: AttributeValue) -> str:
    """An attribute's canonical string: `true`/`false` for Booleans, decimal for Integers."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def name_problem(name: str) -> str | None:
    """Why `name` cannot name an attribute, or None."""
    if name in _STRING_RULES:
        return None
    if not _NAME.fullmatch(name):
        return "a name has lower-case letters a-z and digits only"
    if len(name) > MAX_ATTRIBUTE_NAME:
        return f"a name has at most {MAX_ATTRIBUTE_NAME} characters"
    return None


def value_problem(name: str, value: object) -> str | None:
    """Why `value` cannot be the value of attribute `name`, or None."""
    rule = _STRING_RULES.get(name)
    if isinstance(value, str):
        # Printable ASCII, which most values are, need not be searched.
        if not (value.isascii() and value.isprintable()) and _FORBIDDEN.search(value):
            return "a String has no control characters, lone surrogates or noncharacters"
        return None if rule is None or rule[0](value) else rule[1]
    if isinstance(value, bool):
        return "a Boolean stands where a String is needed" if rule else None
    if isinstance(value, int):
        if rule:
            return "an Integer stands where a String is needed"
        return None if value in _INT32 else "an Integer has 32 bits"
    return "a value is a String, an Integer or a Boolean"


def is_timestamp(value: str) -> bool:
    """Whether `value` is an RFC 3339 timestamp, of any precision; second 60 is a leap second."""
    if not _TIMESTAMP.fullmatch(value):
        return False
    try:
        date.fromisoformat(value[:10])
    except ValueError:  # there is no such day
        return False
    return True


_Rule = tuple[Callable[[str], object], str]
_NOT_EMPTY: _Rule = (bool, "it is empty")
_IS_TIMESTAMP: _Rule = (is_timestamp, "it is not an RFC 3339 timestamp")

# What the attributes that the specification knows must be, and what is said when they are not.
_STRING_RULES: dict[str, _Rule] = {
    "specversion": (frozenset({"1.0"}).__contains__, "this plane speaks specversion 1.0"),
    "id": _NOT_EMPTY,
    "source": (_URI_REFERENCE.fullmatch, "it is not a URI-reference (RFC 3986)"),
    "type": _NOT_EMPTY,
    "subject": _NOT_EMPTY,
    "time": _IS_TIMESTAMP,
    "expirytime": _IS_TIMESTAMP,
    "datacontenttype": (_MEDIA_TYPE.fullmatch, "it is not a media type (RFC 2046)"),
    "dataschema": (_URI.fullmatch, "it is not an absolute URI (RFC 3986)"),
    "sequence": _NOT_EMPTY,
    "partitionkey": _NOT_EMPTY,
    "traceparent": _NOT_EMPTY,
}

STRINGS = frozenset(_STRING_RULES)
"""The attributes that are a String in every event; what is not among them may be an Integer or a Boolean."""
