"""Where the members of an event stand in its text, so that one can be read or replaced and the rest kept."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

_READER = json.JSONDecoder()
_WHITESPACE = " \t\n\r"


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


def _skip(text: str, at: int) -> int:
    while text[at] in _WHITESPACE:
        at += 1
    return at
