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
_URI_REFERENCE = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+\-.]*:.+")
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.\d+)?(?:[Zz]|[+-](\d{2}):(\d{2}))", re.ASCII
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
    if not _NAME.fullmatch(name):
        return "a name has lower-case letters a-z and digits only"
    if len(name) > MAX_ATTRIBUTE_NAME:
        return f"a name has at most {MAX_ATTRIBUTE_NAME} characters"
    return None


def value_problem(name: str, value: object) -> str | None:
    """Why `value` cannot be the value of attribute `name`, or None."""
    if isinstance(value, bool):
        return "a Boolean stands where a String is needed" if name in _STRING_CHECKS else None
    if isinstance(value, int):
        if name in _STRING_CHECKS:
            return "an Integer stands where a String is needed"
        return None if value in _INT32 else "an Integer has 32 bits"
    if not isinstance(value, str):
        return "a value is a String, an Integer or a Boolean"
    if _FORBIDDEN.search(value):
        return "a String has no control characters, lone surrogates or noncharacters"
    check = _STRING_CHECKS.get(name)
    return check(value) if check else None


def is_timestamp(value: str) -> bool:
    """Whether `value` is an RFC 3339 timestamp, of any precision; second 60 is a leap second."""
    match = _TIMESTAMP.fullmatch(value)
    if match is None:
        return False
    year, month, day, hour, minute, second, *offset = (int(part) for part in match.groups(default="0"))
    try:
        date(year, month, day)
    except ValueError:
        return False
    return hour <= 23 and minute <= 59 and second <= 60 and offset[0] <= 23 and offset[1] <= 59


def _not_empty(value: str) -> str | None:
    return None if value else "it is empty"


def _is_version(value: str) -> str | None:
    return None if value == "1.0" else "this plane speaks specversion 1.0"


def _is_uri_reference(value: str) -> str | None:
    return None if _URI_REFERENCE.fullmatch(value) else "it is not a URI-reference (RFC 3986)"


def _is_uri(value: str) -> str | None:
    if _URI_REFERENCE.fullmatch(value) and _URI.fullmatch(value):
        return None
    return "it is not an absolute URI (RFC 3986)"


def _is_timestamp(value: str) -> str | None:
    return None if is_timestamp(value) else "it is not an RFC 3339 timestamp"


def _is_media_type(value: str) -> str | None:
    return None if _MEDIA_TYPE.fullmatch(value) else "it is not a media type (RFC 2046)"


_STRING_CHECKS: dict[str, Callable[[str], str | None]] = {
    "specversion": _is_version,
    "id": _not_empty,
    "source": _is_uri_reference,
    "type": _not_empty,
    "subject": _not_empty,
    "time": _is_timestamp,
    "expirytime": _is_timestamp,
    "datacontenttype": _is_media_type,
    "dataschema": _is_uri,
    "sequence": _not_empty,
    "partitionkey": _not_empty,
    "traceparent": _not_empty,
}

STRINGS = frozenset(_STRING_CHECKS)
"""The attributes that are a String in every event; what is not among them may be an Integer or a Boolean."""
