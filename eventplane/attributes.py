"""The CloudEvents type system: what each context attribute may hold (CloudEvents 1.0.2, section 3)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, Literal

from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_ATTRIBUTE_NAME, MAX_SENDER_CHARACTERS
from eventplane.names import SENDER_DEVICE, SENDER_SERVICE
from eventplane.reasons import Reason
from eventplane.values import is_timestamp

AttributeValue = str | int | bool
"""String, URI, URI-reference, Timestamp, Binary are `str`; Integer is `int` (32 bit); Boolean is `bool`."""

Attributes = Mapping[str, AttributeValue]
"""The context attributes of an event by name."""

_DATA_MEMBERS = frozenset({"data", "data_base64"})

REQUIRED = ("specversion", "id", "source", "type")

NAME = re.compile(r"[a-z0-9]+")
_NAME_OF_TYPE = r"[\w!#$&^.+\-]+"
_PARAMETER = r"[\w!#$%&'*+.^`{|}~\-]+"
_MEDIA_TYPE = re.compile(
    rf"{_NAME_OF_TYPE}/{_NAME_OF_TYPE}(?:\s*;\s*{_PARAMETER}=(?:{_PARAMETER}|\"(?:[^\"\\]|\\.)*\"))*",
    re.ASCII,
)

_INT32 = range(-(2**31), 2**31)

# URI and URI-reference by the grammar of RFC 3986 (appendix A). Internationalised characters have to be
# percent-encoded, as the RFC wants them. An address in brackets is checked for its characters only.
_PLAIN = r"A-Za-z0-9\-._~!$&'()*+,;=%"
_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")

# Possessive quantifiers, so that a mismatch takes one pass.
_SCHEME = "[A-Za-z][A-Za-z0-9+\\-.]*+:"
_BRACKETS = rf"\[(?:[0-9A-Fa-f:.]++|[vV][0-9A-Fa-f]++\.[{_PLAIN}:]++)\]"
_AUTHORITY = rf"//(?:[{_PLAIN}:]*+@)?(?:{_BRACKETS}|[{_PLAIN}]*+)(?::[0-9]*+)?(?=[/?#]|\Z)"
# Without an authority a path may not look like one.
_REST = rf"(?:{_AUTHORITY}|(?!//))[{_PLAIN}:@/]*+"
_QUERY = rf"(?:\?[{_PLAIN}:@/?]*+)?"
_FRAGMENT = rf"(?:\#[{_PLAIN}:@/?]*+)?"
# Without a scheme, a colon in the first segment would make one.
_REFERENCE = re.compile(rf"(?!\Z)(?:{_SCHEME}|(?![^/?#]*:)){_REST}{_QUERY}{_FRAGMENT}")
_ABSOLUTE = re.compile(rf"{_SCHEME}(?!\Z){_REST}{_QUERY}")

_IDS_AND_FLAGS = "(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
# Version 00 ends after the flags, a later one may say more after a further hyphen, ff is none.
_TRACEPARENT = re.compile(f"(?:00-{_IDS_AND_FLAGS}|(?!00|ff)[0-9a-f]{{2}}-{_IDS_AND_FLAGS}(?:-.*)?)")
_TRACEPARENT_CHARACTERS = 55
"""Of version 00, and of what a later one has in common with it."""

SEVERITY_NUMBERS = range(1, 25)
"""From TRACE (1 to 4) over DEBUG, INFO, WARN and ERROR to FATAL (21 to 24)."""

_INFO, _ERROR = 9, 17


@cache
def _forbidden() -> re.Pattern[str]:
    # Control characters, surrogates and noncharacters. Not at import: only unprintable values are searched.
    noncharacters = "".join(
        f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000)
    )
    return re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{noncharacters}]")


def attribute_text(value: AttributeValue) -> str:
    """Return an attribute's canonical string: `true`/`false` for Booleans, decimal for Integers."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def name_problem(name: str) -> str | None:
    """Return why `name` cannot name an attribute, or None."""
    if not NAME.fullmatch(name):
        return "a name has lower-case letters a-z and digits only"
    if len(name) > MAX_ATTRIBUTE_NAME:
        return f"a name has at most {MAX_ATTRIBUTE_NAME} characters"
    return None


def value_problem(name: str, value: object) -> str | None:
    """Return why `value` cannot be the value of attribute `name`, or None."""
    if isinstance(value, str):
        # Printable strings, as most are, have none of them and need not be searched.
        if not value.isprintable() and _forbidden().search(value):
            return "a String has no control characters, lone surrogates or noncharacters"
    elif not isinstance(value, int):
        return "a value is a String, an Integer or a Boolean"
    elif value not in _INT32:
        return "an Integer has 32 bits"
    rule = RULES.get(name)
    if rule is None:
        return None
    needed, holds, problem = rule
    if value.__class__ is not needed:
        return f"{_TYPE_NAMES[value.__class__]} is given, {_TYPE_NAMES[needed]} is needed"
    return None if holds(value) else problem


def checked_attributes(members: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Return the attributes among the `members` of an event. Raises `EnvelopeError`."""
    attributes: dict[str, AttributeValue] = {}
    for name, value in members.items():
        # A null attribute is an unset one (CloudEvents JSON format, section 2.2).
        if name in _DATA_MEMBERS or value is None:
            continue
        if name not in KNOWN and (problem := name_problem(name)):
            raise EnvelopeError(Reason.ATTRIBUTE_NAME, f"attribute {name!r}: {problem}")
        if problem := value_problem(name, value):
            raise EnvelopeError(Reason.ATTRIBUTE_VALUE, f"attribute {name!r}: {problem}")
        attributes[name] = value
    for name in REQUIRED:
        if name not in attributes:
            raise EnvelopeError(Reason.MISSING_ATTRIBUTE, f"attribute {name!r} is required")
    if "data_base64" in members:
        if "data" in members:
            raise EnvelopeError(Reason.DATA_TWICE, "an event has data or data_base64, not both")
        if problem := base64_problem(members["data_base64"]):
            raise EnvelopeError(Reason.DATA_BASE64, f"data_base64 is not base64: {problem}")
    return attributes


def base64_problem(value: Any) -> str | None:
    """Return why `value` cannot be `data_base64`, or None."""
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        return str(error)
    return None


def is_uri_reference(value: str) -> bool:
    """Return whether `value` is a URI-reference; an empty one is refused, as it identifies no source."""
    return _REFERENCE.fullmatch(value) is not None and _escapes(value)


def is_uri(value: str) -> bool:
    """Return whether `value` is an absolute URI (section 4.3): a scheme, more than that, and no fragment."""
    return _ABSOLUTE.fullmatch(value) is not None and _escapes(value)


def _escapes(value: str) -> bool:
    return "%" not in value or _BAD_ESCAPE.search(value) is None


def is_traceparent(value: str) -> bool:
    """Return whether `value` names a trace and a span, as version 00 or a later one that starts alike."""
    return _TRACEPARENT.fullmatch(value) is not None


def in_short(value: str) -> str:
    """Return the `traceparent` without what later versions add after its flags, at any length."""
    return value[:_TRACEPARENT_CHARACTERS]


def priority_of(severitynumber: int) -> Literal["urgent", "normal", "low"]:
    """Return the contract's `Priority` for a severity: ERROR and above are urgent, below INFO is low."""
    if severitynumber >= _ERROR:
        return "urgent"
    return "normal" if severitynumber >= _INFO else "low"


_Rule = tuple[type[AttributeValue], Callable[[Any], object], str]
_TYPE_NAMES: dict[type, str] = {str: "a String", int: "an Integer", bool: "a Boolean"}
_NOT_EMPTY: _Rule = (str, bool, "it is empty")
_NAMES_SENDER: _Rule = (
    str,
    re.compile(f".{{1,{MAX_SENDER_CHARACTERS}}}", re.DOTALL).fullmatch,
    f"a sender's name has 1 to {MAX_SENDER_CHARACTERS} characters",
)
_IS_TIMESTAMP: _Rule = (str, is_timestamp, "it is not an RFC 3339 timestamp")

RULES: Final[dict[str, _Rule]] = {
    "specversion": (str, frozenset({"1.0"}).__contains__, "this plane speaks specversion 1.0"),
    "id": _NOT_EMPTY,
    "source": (str, is_uri_reference, "it is not a URI-reference (RFC 3986)"),
    "type": _NOT_EMPTY,
    "subject": _NOT_EMPTY,
    "time": _IS_TIMESTAMP,
    "datacontenttype": (str, _MEDIA_TYPE.fullmatch, "it is not a media type (RFC 2046)"),
    "dataschema": (
        str,
        is_uri,
        "it is not an absolute URI (RFC 3986, section 4.3): no fragment",
    ),
    "expirytime": _IS_TIMESTAMP,
    "recordedtime": _IS_TIMESTAMP,
    "replayedtime": _IS_TIMESTAMP,
    "senttime": _IS_TIMESTAMP,
    "deliverby": _IS_TIMESTAMP,
    "uptimelimit": _NOT_EMPTY,
    "sequence": _NOT_EMPTY,
    "partitionkey": _NOT_EMPTY,
    "orderin": _NOT_EMPTY,
    "orderepoch": _NOT_EMPTY,
    "replyto": _NOT_EMPTY,
    "replydevice": _NOT_EMPTY,
    "correlationid": _NOT_EMPTY,
    "causationid": _NOT_EMPTY,
    SENDER_DEVICE: _NAMES_SENDER,
    SENDER_SERVICE: _NAMES_SENDER,
    "traceparent": (str, is_traceparent, "it is not a W3C trace context: 00-<trace id>-<span id>-<flags>"),
    "tracestate": (str, lambda _: True, ""),
    "routerhops": (int, range(2**31).__contains__, "it is counted from 0 by the plane; leave it as it came"),
    # As in `eventplane.guarantee`, which reads events.
    "deliveryguarantee": (
        str,
        frozenset({"best_effort"}).__contains__,
        "an event can only ask for less than its channels give: write `best_effort`, or leave it out",
    ),
    "severitytext": _NOT_EMPTY,
    "severitynumber": (
        int,
        SEVERITY_NUMBERS.__contains__,
        "a severity is 1 (TRACE) to 24 (FATAL); leave an unspecified one out",
    ),
}
"""The attributes of the specification and of known extensions: type, check, and error text."""

KNOWN = frozenset(RULES)
"""The attributes that the specification or an extension defines; their names need no check."""

STRINGS = frozenset(name for name, (needed, _, _) in RULES.items() if needed is str)
"""The attributes that are a String in every event; others may be an Integer or a Boolean."""

# The form and the days that most timestamps have; the others take longer.
_USUAL_TIMESTAMP = re.compile(
    "(?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T"
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\\.[0-9]{3}Z"
)


def _is_any(value: object) -> bool:
    kind = value.__class__
    return kind is str or kind is bool or (kind is int and value in _INT32)


def _is_severity(value: object) -> bool:
    return value.__class__ is int and value in SEVERITY_NUMBERS


# They refuse values of another type, or raise TypeError; `bool` and `len` alone would not.
_QUICK: Final[dict[object, Callable[[Any], object]]] = {
    bool: str.__len__,
    is_timestamp: _USUAL_TIMESTAMP.fullmatch,
    is_traceparent: _TRACEPARENT.fullmatch,
    SEVERITY_NUMBERS.__contains__: _is_severity,
}


def quick_check(name: str) -> Callable[[Any], object]:
    """Return a check that most valid values of attribute `name` pass, and no invalid one.

    It may raise TypeError. It does not look for forbidden characters.
    """
    if name not in RULES:
        return _is_any
    holds = RULES[name][1]
    if isinstance(getattr(holds, "__self__", None), re.Pattern | frozenset):
        return holds
    if holds in _QUICK:
        return _QUICK[holds]
    return lambda value: value_problem(name, value) is None


COSTLY: Final = frozenset({"source", "datacontenttype", "dataschema"})
"""The attributes whose check takes longer than a look-up of values that were checked before."""

USUAL_FORMS: Final = {
    "specversion": r"1\.0",
    "severitynumber": "1[0-9]?|2[0-4]?|[3-9]",
    "traceparent": f"00-{_IDS_AND_FLAGS}",
    **{name: _USUAL_TIMESTAMP.pattern for name, (_, holds, _) in RULES.items() if holds is is_timestamp},
}
"""Patterns that most values match, without groups, quotation marks and backslashes. What matches is valid."""
