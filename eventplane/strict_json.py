"""JSON as RFC 8259 has it, without the liberties of Python's reader.

Refused: duplicate member names, NaN and Infinity, a byte order mark, bytes that are not UTF-8, lone
surrogates, nesting beyond `limits.MAX_DEPTH`, numbers beyond `limits.MAX_NUMBER_CHARACTERS` or a double's
range. Each of them means different things to different readers. Of an event that was read, members can be
found, put in and taken out, and the rest of its text is kept.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator
from typing import Any, NoReturn

from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_DEPTH, MAX_NUMBER_CHARACTERS

_READER = json.JSONDecoder()
_WHITESPACE = " \t\n\r"


def decode_text(raw: bytes) -> str:
    """UTF-8 bytes as text. Raises `EnvelopeError` (`not_utf8`)."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EnvelopeError("not_utf8", f"byte {error.start} is not UTF-8") from error


def loads(text: str) -> Any:
    """The value of a strict JSON text. Raises `EnvelopeError`."""
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        if text.startswith("\ufeff"):
            remedy = "the text starts with a byte order mark; send plain UTF-8"
            raise EnvelopeError("byte_order_mark", remedy) from error
        raise EnvelopeError("not_json", f"{error.msg} at character {error.pos}") from error
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # an integer with more digits than Python converts
        raise _too_long() from None
    # Counting brackets is a cheap upper bound of the depth: only suspicious texts are walked. To replace is
    # quicker than to count twice.
    if text.replace("[", "{").count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise _too_deep()
    if len(text) > MAX_NUMBER_CHARACTERS and may_have_long_number(text):
        _LENGTHS.decode(text)
    # Most texts escape nothing, and one character is found much faster than two.
    if "\\" in text and "\\u" in text:
        _refuse_lone_surrogates(value)
    return value


def member_spans(event: str) -> Iterator[tuple[str, int, int]]:
    """The name of each member of an event, which was checked before, and where its value begins and ends.

    The whitespace around a value belongs to it: of JSON that came as bytes, nothing is lost.
    """
    at = _skip(event, 0)
    while event[at] != "}":
        name, at = _READER.raw_decode(event, _skip(event, at + 1))
        start = _skip(event, at) + 1
        _, end = _READER.raw_decode(event, _skip(event, start))
        at = _skip(event, end)
        yield name, start, at


def with_member(event: str, name: str, value: str) -> str:
    """The text of an event with the member `name` (JSON text `value`): in its place, or else in front."""
    for each, start, end in member_spans(event):
        if each == name:
            return f"{event[:start]}{value}{event[end:]}"
    return f'{{"{name}":{value},{event.lstrip()[1:]}'


def without_members(event: str, names: Collection[str]) -> str:
    """The text of an event without the members `names`."""
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
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise EnvelopeError("duplicate_key", f"member {twice!r} appears more than once")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise EnvelopeError("not_json", f"{name} is not a JSON number")


def _refuse_long_number(number: str) -> None:
    if len(number) > MAX_NUMBER_CHARACTERS:
        raise _too_long()


_LENGTHS = json.JSONDecoder(parse_int=_refuse_long_number, parse_float=_refuse_long_number)
_QUOTED = 40
"""Of a number that is refused, so many characters are quoted."""
_STRETCH = MAX_NUMBER_CHARACTERS // 2
_NUMBER_STRETCH = re.compile(rf"[-+.0-9eE]{{{_STRETCH}}}")


def may_have_long_number(text: str) -> bool:
    """Return whether there may be a number of more than `MAX_NUMBER_CHARACTERS`."""
    # Wherever a longer number stands, one of these places begins a stretch within it.
    return any(_NUMBER_STRETCH.match(text, at) for at in range(0, len(text), _STRETCH))


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise EnvelopeError(
            "number_too_large",
            f"{number[:_QUOTED]} is beyond 1.8e308, the largest number of most readers; send it as a string",
        )
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_members, parse_float=_finite, parse_constant=_refuse_constant
)


def _too_deep() -> EnvelopeError:
    return EnvelopeError("too_deep", f"nested deeper than {MAX_DEPTH} levels")


def _too_long() -> EnvelopeError:
    return EnvelopeError(
        "number_too_long", f"a number has at most {MAX_NUMBER_CHARACTERS} characters; send it as a string"
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
        raise EnvelopeError("lone_surrogate", "an escape stands for half a surrogate pair") from error


def _skip(text: str, at: int) -> int:
    while text[at] in _WHITESPACE:
        at += 1
    return at
