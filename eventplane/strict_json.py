"""JSON as RFC 8259 has it, without the liberties of Python's reader.

Refused: duplicate member names, NaN and Infinity, a byte order mark, bytes that are not UTF-8, lone
surrogates, nesting beyond `limits.MAX_DEPTH`. Each of them means different things to different readers.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from eventplane.errors import EventPlaneError
from eventplane.limits import MAX_DEPTH


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
    except ValueError as error:  # an integer with more digits than Python converts
        raise StrictJsonError("not_json", str(error)) from error
    # Counting brackets is a cheap upper bound of the depth: only suspicious texts are walked. To replace is
    # quicker than to count twice.
    if text.replace("[", "{").count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise _too_deep()
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


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_members, parse_constant=_refuse_constant)


def _too_deep() -> StrictJsonError:
    return StrictJsonError("too_deep", f"nested deeper than {MAX_DEPTH} levels")


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
