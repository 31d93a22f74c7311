"""Read events faster with another reader and writer of JSON (orjson's), in functions and jobs.

If the writer returns the very same bytes, nothing was dropped, rounded or replaced on the way. That proves
that no name of a member appears twice, as `eventplane.fast_reader` must know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from eventplane.fast_reader import UNREADABLE, Attributes, by_other_json, checked, in_form, scanned
from eventplane.limits import MAX_DEPTH

_MAX_AT_ONCE: Final = 1024 * 1024
"""Largest batch that is decoded at once, bytes. Ours: the values of a hostile one take twenty times that."""

Item = tuple[str, Attributes | None]
"""The text of an item of a batch, and its attributes; None where the strict reader has to decide."""

_json: Final[list[tuple[Callable[[bytes], Any], Callable[[Any], bytes]]]] = []


def use_json(loads: Callable[[bytes], Any], dumps: Callable[[Any], bytes]) -> None:
    """Read events with another reader and writer of JSON (orjson's), for speed alone."""
    _json[:] = [(loads, dumps)]
    by_other_json[:] = [_attributes_of]


def use_standard_json() -> None:
    """Undo `use_json`."""
    by_other_json.clear()
    _json.clear()


def _attributes_of(raw: bytes, text: str) -> Attributes | None:
    loads, dumps = _json[0]
    try:
        attributes, end = in_form(text, 0)
        if attributes is not None and text[end - 1] == "}":
            return attributes if end == len(text) else None
        # The attributes are ASCII, so that their characters are as many as their bytes.
        written = raw if attributes is None else raw[end:-1]
        members = loads(written)
        if dumps(members) == written and text[-1] == "}":
            if attributes is None:
                return _attributes(members, text)
            is_flat = text.count("{", end) + text.count("[", end) < MAX_DEPTH
            return attributes if is_flat else None
    except UNREADABLE:
        return None
    attributes, end = scanned(text, 0)
    return attributes if end == len(text) else None


def items_of(raw: bytes) -> list[Item] | None:
    """Return the items of a JSON array; None where another reader has to find them."""
    if not _json or len(raw) > _MAX_AT_ONCE or raw[:2] != b"[{":
        return None
    loads, dumps = _json[0]
    try:
        items = loads(raw)
        texts = [dumps(item) for item in items]
    except UNREADABLE:
        return None
    if b"[" + b",".join(texts) + b"]" != raw:
        return None
    return [
        (text, _attributes(item, text)) for item, text in zip(items, map(bytes.decode, texts), strict=True)
    ]


def _attributes(members: Any, text: str) -> Attributes | None:
    """Return the attributes of an event whose `members` are proven to be what `text` says."""
    if members.__class__ is not dict or _at_most("{", text, 0) + _at_most("[", text, 0) > MAX_DEPTH:
        return None
    return checked(members, text)


def _at_most(bracket: str, text: str, start: int) -> int:
    """Return how many of a bracket there are from `start` on, at most: two are found faster than counted."""
    first, last = text.find(bracket, start), text.rfind(bracket, start)
    if first == last or text.find(bracket, first + 1) == last:
        return 2
    return text.count(bracket, start)
