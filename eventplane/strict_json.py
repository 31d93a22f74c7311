"""JSON as RFC 8259 has it, without the liberties of Python's reader.

Refused: duplicate member names, NaN and Infinity, a byte order mark, bytes that are not UTF-8, lone
surrogates, nesting beyond `limits.MAX_DEPTH`, numbers beyond `limits.MAX_NUMBER_CHARACTERS`. Each of them
means different things to different readers.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from eventplane.errors import EventPlaneError
from eventplane.limits import MAX_DEPTH, MAX_NUMBER_CHARACTERS


class StrictJsonError(EventPlaneError):
    """A text is not strict JSON. `reason` is a stable word for a dead letter, `detail` is for people."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def decode_text(raw: bytes) -> str:
    """UTF-8 bytes as text. Raises `StrictJsonError` (`not_utf8`)."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StrictJsonError("not_utf8", f"byte {error.start} is not UTF-8") from error


def loads(text: str) -> Any:
    """The value of a strict JSON text. Raises `StrictJsonError`."""
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        if text.startswith("\ufeff"):
            remedy = "the text starts with a byte order mark; send plain UTF-8"
            raise StrictJsonError("byte_order_mark", remedy) from error
        raise StrictJsonError("not_json", f"{error.msg} at character {error.pos}") from error
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # an integer with more digits than Python converts
        raise _too_long() from None
    # Counting brackets is a cheap upper bound of the depth: only suspicious texts are walked. To replace is
    # quicker than to count twice.
    if text.replace("[", "{").count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise _too_deep()
    if len(text) > MAX_NUMBER_CHARACTERS and _may_have_long_number(text):
        _LENGTHS.decode(text)
    # Most texts escape nothing, and one character is found much faster than two.
    if "\\" in text and "\\u" in text:
        _refuse_lone_surrogates(value)
    return value


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise StrictJsonError("duplicate_key", f"member {twice!r} appears more than once")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise StrictJsonError("not_json", f"{name} is not a JSON number")


def _refuse_long_number(number: str) -> None:
    if len(number) > MAX_NUMBER_CHARACTERS:
        raise _too_long()


_LENGTHS = json.JSONDecoder(parse_int=_refuse_long_number, parse_float=_refuse_long_number)
_STRETCH = MAX_NUMBER_CHARACTERS // 2
_NUMBER_STRETCH = re.compile(rf"[-+.0-9eE]{{{_STRETCH}}}")


def _may_have_long_number(text: str) -> bool:
    # Wherever a longer number stands, one of these places begins a stretch within it.
    return any(_NUMBER_STRETCH.match(text, at) for at in range(0, len(text), _STRETCH))


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_members, parse_constant=_refuse_constant)


def _too_deep() -> StrictJsonError:
    return StrictJsonError("too_deep", f"nested deeper than {MAX_DEPTH} levels")


def _too_long() -> StrictJsonError:
    return StrictJsonError(
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
        raise StrictJsonError("lone_surrogate", "an escape stands for half a surrogate pair") from error
