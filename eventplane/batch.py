"""Many events in one payload: the CloudEvents JSON batch, compressed with zlib.

MQTT has no batched content mode, so this is the plane's own convention around
`application/cloudevents-batch+json`. The first byte of a payload tells its kind: `{` one event, `[` a
batch, 0x78 a compressed batch; simpler clients send the first two.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from eventplane import fast_reader, other_json, strict_json
from eventplane.envelope import Envelope, certain_event, pack_texts, parse_event
from eventplane.errors import EnvelopeError
from eventplane.fast_reader import Attributes
from eventplane.limits import MAX_BATCH_BYTES, MAX_BATCH_EVENTS
from eventplane.other_json import Item
from eventplane.reasons import Reason

_ZLIB_MAGIC = 0x78
_WHITESPACE = " \t\n\r"
# A number is checked with its event; here it must not stop the others.
_SPLITTER = json.JSONDecoder(parse_int=str, parse_float=str)
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


def pack(events: Iterable[Envelope]) -> bytes:
    """Return a compressed JSON batch of `events`, each in its exact text."""
    return pack_texts(event.json for event in events)


def unpack(payload: bytes) -> Iterator[Envelope | tuple[bytes, EnvelopeError]]:
    """Yield the events of a payload; for a malformed item its bytes and its error.

    Raises `EnvelopeError` if the payload as a whole cannot be read.
    """
    text = payload
    if payload[:1] == bytes([_ZLIB_MAGIC]):
        text = inflate(payload)
    if text.lstrip(_WHITESPACE.encode())[:1] != b"[":
        yield _parsed(text)
        return
    for item, attributes in _bounded(other_json.items_of(text) or _array_items(text, _event_and_end)):
        yield certain_event(item, attributes) or _parsed(item)


def split(raw: bytes) -> list[str]:
    """Return the texts of the items of a JSON array, untouched. Raises `EnvelopeError`."""
    return [text for text, _ in _bounded(_array_items(raw, _end))]


def _parsed(item: bytes | str) -> Envelope | tuple[bytes, EnvelopeError]:
    try:
        return parse_event(item)
    except EnvelopeError as error:
        return (item if isinstance(item, bytes) else item.encode("utf-8", "surrogatepass")), error


def _bounded(found: Iterable[Item]) -> list[Item]:
    """Return the items of an array. Raises `EnvelopeError`."""
    try:
        # One more than allowed: four kilobytes may hold a million, which take a second and 130 MiB.
        items = list(islice(found, MAX_BATCH_EVENTS + 1))
    except ValueError as error:
        raise EnvelopeError(Reason.NOT_JSON, f"not a JSON array of events: {error}") from error
    if len(items) > MAX_BATCH_EVENTS:
        raise EnvelopeError(Reason.TOO_MANY, f"a batch has at most {MAX_BATCH_EVENTS} events")
    return items


_ReadAt = Callable[[str, int], tuple[Attributes | None, int]]


def _array_items(raw: bytes, read_at: _ReadAt) -> Iterator[Item]:
    """Yield the items of an array, each in its exact characters, with the attributes that `read_at` returns.

    Raises `EnvelopeError`, or ValueError where it is not an array.
    """
    text = strict_json.decode_text(raw)
    position = _skip_whitespace(text, 0) + 1
    position = _skip_whitespace(text, position)
    if text[position : position + 1] == "]":
        _expect_end(text, position + 1)
        return
    while True:
        attributes, end = read_at(text, position)
        yield text[position:end], attributes
        position = _skip_whitespace(text, end)
        mark = text[position : position + 1]
        if mark == "]":
            _expect_end(text, position + 1)
            return
        if mark != ",":
            raise ValueError(f"expected ',' or ']' at character {position}")
        position = _skip_whitespace(text, position + 1)


def _event_and_end(text: str, position: int) -> tuple[Attributes | None, int]:
    attributes, end = fast_reader.scanned(text, position)
    return (attributes, end) if end >= 0 else _end(text, position)


def _end(text: str, position: int) -> tuple[None, int]:
    try:
        return None, _SPLITTER.raw_decode(text, position)[1]
    except RecursionError:
        return None, _closing(text, position)


def _closing(text: str, position: int) -> int:
    """Return where the item that opens at `position` closes, if it is nested too deeply to be read."""
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text, position):
        if found[0] in "[{":
            depth += 1
        elif found[0] in "]}":
            depth -= 1
            if depth == 0:
                return found.end()
    raise ValueError(f"the brackets that open at character {position} do not close")


def _skip_whitespace(text: str, position: int) -> int:
    while text[position : position + 1] and text[position] in _WHITESPACE:
        position += 1
    return position


def _expect_end(text: str, position: int) -> None:
    if text[position:].strip(_WHITESPACE):
        raise ValueError(f"text after the array at character {position}")


def inflate(payload: bytes, wbits: int = zlib.MAX_WBITS) -> bytes:
    """Decompress a batch of at most MAX_BATCH_BYTES; `wbits` are as zlib has them. Raises `EnvelopeError`."""
    inflater = zlib.decompressobj(wbits)
    try:
        text = inflater.decompress(payload, MAX_BATCH_BYTES)
    except zlib.error as error:
        raise EnvelopeError(Reason.NOT_ZLIB, f"the compressed batch cannot be read: {error}") from error
    if inflater.unconsumed_tail:
        raise EnvelopeError(Reason.TOO_LARGE, f"a batch has at most {MAX_BATCH_BYTES} bytes decompressed")
    if not inflater.eof or inflater.unused_data:
        raise EnvelopeError(Reason.NOT_ZLIB, "the compressed batch is cut short or has bytes behind its end")
    return text
