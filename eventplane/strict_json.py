"""JSON by RFC 8259, stricter than Python's reader.

Refused: duplicate member names, NaN and Infinity, a byte order mark, bytes that are not UTF-8, lone
surrogates, nesting beyond `limits.MAX_DEPTH`, numbers beyond `limits.MAX_NUMBER_CHARACTERS` or a double's
range. Readers differ on each of them. Members of an event that was read can be found, set and removed; the
rest of its text is kept.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, NoReturn

from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_DEPTH, MAX_NUMBER_CHARACTERS
from eventplane.reasons import Reason

_READER = json.JSONDecoder()
_WHITESPACE = " \t\n\r"


def decode_text(raw: bytes) -> str:
    """Decode UTF-8 bytes. Raises `EnvelopeError` (`not_utf8`)."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EnvelopeError(Reason.NOT_UTF8, f"byte {error.start} is not UTF-8") from error


def loads(text: str) -> Any:
    """Return the value of a strict JSON text. Raises `EnvelopeError`."""
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        if text.startswith("\ufeff"):
            remedy = "the text starts with a byte order mark; send plain UTF-8"
            raise EnvelopeError(Reason.BYTE_ORDER_MARK, remedy) from error
        raise EnvelopeError(Reason.NOT_JSON, f"{error.msg} at character {error.pos}") from error
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # an integer with more digits than Python converts
        raise _too_long() from None
    # The number of brackets bounds the depth, so that few values are walked. Replacing is faster than
    # counting twice.
    if text.replace("[", "{").count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise _too_deep()
    if len(text) > MAX_NUMBER_CHARACTERS and may_have_long_number(text):
        _LENGTHS.decode(text)
    # Most texts have no backslash, and one character is found much faster than two.
    if "\\" in text and "\\u" in text:
        _refuse_lone_surrogates(value)
    return value


def member_spans(event: str) -> Iterator[tuple[str, int, int]]:
    """Yield the name of each member of a valid event, and where its value begins and ends.

    The whitespace around a value belongs to it, so that no character is lost.
    """
    at = _skip(event, 0)
    while event[at] != "}":
        name, at = _READER.raw_decode(event, _skip(event, at + 1))
        start = _skip(event, at) + 1
        _, end = _READER.raw_decode(event, _skip(event, start))
        at = _skip(event, end)
        yield name, start, at


def with_member(event: str, name: str, value: str) -> str:
    """Return an event's text with the member `name` (JSON text `value`), in its place or else in front."""
    for each, start, end in member_spans(event):
        if each == name:
            return f"{event[:start]}{value}{event[end:]}"
    return f'{{"{name}":{value},{event.lstrip()[1:]}'


def without_members(event: str, names: Collection[str]) -> str:
    """Return an event's text without the members `names`."""
    kept: list[str] = []
    position = event.index("{") + 1
    for name, _, end in member_spans(event):
        if name not in names:
            kept.append(event[position:end])
        position = end + 1
    return "{" + ",".join(kept) + event[position - 1 :]


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise EnvelopeError(Reason.DUPLICATE_KEY, f"member {twice!r} appears more than once")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise EnvelopeError(Reason.NOT_JSON, f"{name} is not a JSON number")


def _refuse_long_number(number: str) -> None:
    if len(number) > MAX_NUMBER_CHARACTERS:
        raise _too_long()


_LENGTHS = json.JSONDecoder(parse_int=_refuse_long_number, parse_float=_refuse_long_number)
_QUOTED = 40
"""Characters of a refused number that its error quotes."""
_STRETCH = MAX_NUMBER_CHARACTERS // 2
_NUMBER_STRETCH = re.compile(rf"[-+.0-9eE]{{{_STRETCH}}}")


def may_have_long_number(text: str) -> bool:
    """Return whether there may be a number of more than `MAX_NUMBER_CHARACTERS`."""
    # A longer number, wherever it is, contains such a stretch from one of these positions on.
    return any(_NUMBER_STRETCH.match(text, at) for at in range(0, len(text), _STRETCH))


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise EnvelopeError(
            Reason.NUMBER_TOO_LARGE,
            f"{number[:_QUOTED]} is beyond 1.8e308, the largest number of most readers; send it as a string",
        )
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_members, parse_float=_finite, parse_constant=_refuse_constant
)


def _too_deep() -> EnvelopeError:
    return EnvelopeError(Reason.TOO_DEEP, f"nested deeper than {MAX_DEPTH} levels")


def _too_long() -> EnvelopeError:
    return EnvelopeError(
        Reason.NUMBER_TOO_LONG,
        f"a number has at most {MAX_NUMBER_CHARACTERS} characters; send it as a string",
    )


def _depth(value: Any) -> int:
    deepest = 0
    level = [value]
    while level:
        containers = [item for item in level if isinstance(item, dict | list)]
        if containers:
            deepest += 1
        level = [
            child
            for container in containers
            for child in (container.values() if isinstance(container, dict) else container)
        ]
    return deepest


def _refuse_lone_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise EnvelopeError(Reason.LONE_SURROGATE, "an escape is half a surrogate pair") from error


def _skip(text: str, at: int) -> int:
    while text[at] in _WHITESPACE:
        at += 1
    return at
