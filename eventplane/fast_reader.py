"""A fast reader of valid events; the strict reader decides on all others.

It returns the attributes of an event, exactly as the strict reader would, or None: the event may be malformed
or unusual. So it never gives a reason. Property tests and the fuzzer compare both readers.

It needs a proof that no name of a member appears twice, which readers of JSON do not report:

- The standard library's scanner gives the members of each object as pairs; a dictionary of them is as long.
- With another reader and writer of JSON (`use_json`): if the writer returns the very same bytes, nothing was
  dropped, rounded or replaced on the way.

Values of attributes whose check takes long are remembered once they were valid, in bounded sets.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from operator import call
from typing import Any, Final, NamedTuple, NoReturn

from eventplane.attributes import (
    COSTLY,
    KNOWN,
    REQUIRED,
    AttributeValue,
    name_problem,
    quick_check,
    value_problem,
)
from eventplane.limits import (
    MAX_DEPTH,
    MAX_NUMBER_CHARACTERS,
    MAX_REMEMBERED_CHARACTERS,
    MAX_REMEMBERED_NAMES,
    MAX_REMEMBERED_SHAPES,
    MAX_REMEMBERED_VALUES,
)
from eventplane.strict_json import may_have_long_number

_REQUIRED: Final = frozenset(REQUIRED)
_FINITE_CHARACTERS: Final = 300
"""A number of so many digits, and no exponent, is finite: 1e308 is."""

_MAX_AT_ONCE: Final = 1024 * 1024
"""Largest batch that is decoded at once, bytes. Ours: the values of a hostile one take twenty times that."""

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape that may be half a pair, which may not be: the strict reader looks for the other half."""

_UNREADABLE: Final = (ValueError, TypeError, StopIteration, RecursionError)
"""What readers raise for a text that is not JSON, and what follows from a value of the wrong type."""

Attributes = dict[str, AttributeValue]
Item = tuple[str, Attributes | None]
"""The text of an item of a batch, and its attributes; None where the strict reader has to decide."""

_JsonReader = Callable[[bytes], Any]
_JsonWriter = Callable[[Any], bytes]


class _Scanner(NamedTuple):
    """A scanner of the standard library, and where it puts members of objects and texts of fractions."""

    scan: Callable[[str, int], tuple[object, int]]
    objects: list[list[tuple[str, Any]]]
    fractions: list[str]


_valid_values: Final[dict[str, set[str]]] = {name: set() for name in COSTLY}
_checks: Final[dict[tuple[str, ...], tuple[Callable[[Any], object], ...]]] = {}
"""What to check of events that have attributes of these names, in this order."""
_idle: Final[list[_Scanner]] = []
_json: list[tuple[_JsonReader, _JsonWriter]] = []


def use_json(loads: _JsonReader, dumps: _JsonWriter) -> None:
    """Read events with another reader and writer of JSON (orjson's), for speed alone."""
    _json[:] = [(loads, dumps)]


def use_standard_json() -> None:
    """Undo `use_json`."""
    _json.clear()


def attributes_of(raw: bytes, text: str) -> Attributes | None:
    """Return the attributes of the event `text`, in UTF-8 `raw`; None where the strict reader decides."""
    if _json:
        loads, dumps = _json[0]
        try:
            members = loads(raw)
            if dumps(members) == raw:
                return _attributes(members, text)
        except _UNREADABLE:
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
    except _UNREADABLE:
        return None
    if b"[" + b",".join(texts) + b"]" != raw:
        return None
    return [
        (text, _attributes(item, text)) for item, text in zip(items, map(bytes.decode, texts), strict=True)
    ]


def scanned(text: str, position: int) -> tuple[Attributes | None, int]:
    """Return the attributes of the event that begins at `position`, and where it ends (-1: unknown).

    The attributes are None where the strict reader decides.
    """
    scanner = _idle.pop() if _idle else _new_scanner()
    scan, objects, fractions = scanner
    end = -1
    try:
        _, end = scan(text, position)
        event = text[position:end]
        if event[0] != "{" or len(objects) + _lists(event) > MAX_DEPTH:
            return None, end
        # The outermost object is complete last. Scanned values are None where objects and fractions were.
        for pairs in objects:
            members = dict(pairs)
            if len(members) != len(pairs):
                return None, end
        if fractions and not _are_finite(fractions):
            return None, end
        if "\\" in event and _SURROGATE.search(event):
            return None, end
        if len(event) > MAX_NUMBER_CHARACTERS and may_have_long_number(event):
            return None, end
        return _checked(members, event), end
    except _UNREADABLE:
        return None, end
    finally:
        objects.clear()
        fractions.clear()
        _idle.append(scanner)


def _new_scanner() -> _Scanner:
    objects: list[list[tuple[str, Any]]] = []
    fractions: list[str] = []
    decoder: Any = json.JSONDecoder(
        object_pairs_hook=objects.append, parse_float=fractions.append, parse_constant=_refuse
    )
    return _Scanner(decoder.scan_once, objects, fractions)


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _attributes(members: Any, text: str) -> Attributes | None:
    """Return the attributes of an event whose `members` are proven to be what `text` says."""
    if members.__class__ is not dict or text.count("{") + _lists(text) > MAX_DEPTH:
        return None
    return _checked(members, text)


def _lists(text: str) -> int:
    """Return how many lists there are at most; one is quicker to see than to count."""
    return 1 if text.find("[") == text.rfind("[") else text.count("[")


def _are_finite(fractions: list[str]) -> bool:
    joined = "".join(fractions)
    if len(joined) <= _FINITE_CHARACTERS and "e" not in joined and "E" not in joined:
        return True
    return all(map(math.isfinite, map(float, fractions)))


def _checked(members: dict[str, Any], text: str) -> Attributes | None:
    """Return the `members` of an event's `text` without the data, if they are certainly its attributes."""
    has_data = "data" in members
    if has_data:
        del members["data"]
    if "data_base64" in members and (has_data or not _is_base64(members.pop("data_base64"))):
        return None
    checks = _checks.get(tuple(members))
    if checks is None or not all(map(call, checks, members.values())):
        return _learned(members)
    if text.isascii() and "\\" not in text and "\x7f" not in text:
        # No string in it can have a character that attributes may not have.
        return members
    is_printable = all(map(str.isprintable, filter(_is_text, members.values())))
    return members if is_printable else _learned(members)


def _learned(members: dict[str, Any]) -> Attributes | None:
    """Check the attributes one by one, and remember names and values that save time."""
    for name, value in members.items():
        # A null is an attribute that is not set: the strict reader leaves it out.
        if value is None or (name not in KNOWN and name_problem(name)) or value_problem(name, value):
            return None
        if name in COSTLY and len(value) <= MAX_REMEMBERED_CHARACTERS:
            values = _valid_values[name]
            if len(values) >= MAX_REMEMBERED_VALUES:
                values.clear()
            values.add(value)
    if not members.keys() >= _REQUIRED:
        return None
    names = tuple(members)
    if names not in _checks and len(names) <= MAX_REMEMBERED_NAMES:
        if len(_checks) >= MAX_REMEMBERED_SHAPES:
            _checks.clear()
        _checks[names] = tuple(
            _valid_values[name].__contains__ if name in COSTLY else quick_check(name) for name in names
        )
    return members


def _is_text(value: object) -> bool:
    return value.__class__ is str


def _is_base64(value: Any) -> bool:
    if value.__class__ is not str:
        return False
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
