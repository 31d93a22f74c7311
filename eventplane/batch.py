"""Many events in one payload: the CloudEvents JSON batch, compressed with zlib.

MQTT has no batched content mode, so this is the plane's own convention around
`application/cloudevents-batch+json`. A payload says by its first byte what it is: `{` one event, `[` a
batch, 0x78 a compressed batch; simpler clients send the first two.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice

from eventplane import fast_reader, strict_json
from eventplane.envelope import Envelope, certain_event, parse_event
from eventplane.errors import EnvelopeError
from eventplane.fast_reader import Item
from eventplane.limits import MAX_BATCH_BYTES, MAX_BATCH_EVENTS

ZLIB_LEVEL = 6
"""zlib's own default; 100 readings shrink from 349 to 41 bytes an event."""

_ZLIB_MAGIC = 0x78
_WHITESPACE = " \t\n\r"
# Whether a number is one is for the event to say: here it must not stop the others.
_SPLITTER = json.JSONDecoder(parse_int=str, parse_float=str)
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


def pack(events: Iterable[Envelope]) -> bytes:
    """A compressed JSON batch of `events`, each in its exact text."""
    return pack_texts(event.json for event in events)


def pack_texts(texts: Iterable[str]) -> bytes:
    """As `pack`, for events that were checked before and are held as their texts."""
    return zlib.compress(("[" + ",".join(texts) + "]").encode("utf-8"), ZLIB_LEVEL)


def unpack(payload: bytes) -> Iterator[Envelope | tuple[bytes, EnvelopeError]]:
    """The events of a payload, one by one; an item that is no event comes as its bytes and its error.

    Raises `EnvelopeError` when the payload as a whole cannot be read: then it is one item.
    """
    text = payload
    if payload[:1] == bytes([_ZLIB_MAGIC]):
        text = inflate(payload)
    if text.lstrip(_WHITESPACE.encode())[:1] != b"[":
        yield _parsed(text)
        return
    for item, attributes in _items(text):
        yield certain_event(item, attributes) or _parsed(item)


def split(raw: bytes) -> list[str]:
    """The texts of the items of a JSON array, untouched. Raises `EnvelopeError`."""
    return [text for text, _ in _items(raw)]


def _parsed(item: bytes | str) -> Envelope | tuple[bytes, EnvelopeError]:
    try:
        return parse_event(item)
    except EnvelopeError as error:
        return (item if isinstance(item, bytes) else item.encode("utf-8", "surrogatepass")), error


def _items(raw: bytes) -> list[Item]:
    """The items of a JSON array. Raises `EnvelopeError`."""
    items = fast_reader.items_of(raw)
    if items is None:
        try:
            # Not all of them: four kilobytes may hold a million, which are a second and 130 MiB.
            items = list(islice(_array_items(strict_json.decode_text(raw)), MAX_BATCH_EVENTS + 1))
        except ValueError as error:
            raise EnvelopeError("not_json", f"not a JSON array of events: {error}") from error
    if len(items) > MAX_BATCH_EVENTS:
        raise EnvelopeError("too_many", f"a batch has at most {MAX_BATCH_EVENTS} events")
    return items


def _array_items(text: str) -> Iterator[Item]:
    """Slices of `text`: an item keeps its exact characters. Raises ValueError where it is no array."""
    position = _skip_whitespace(text, 0) + 1
    position = _skip_whitespace(text, position)
    if text[position : position + 1] == "]":
        _expect_end(text, position + 1)
        return
    while True:
        attributes, end = fast_reader.scanned(text, position)
        if end < 0:
            try:
                _, end = _SPLITTER.raw_decode(text, position)
            except RecursionError:
                end = _closing(text, position)
        yield text[position:end], attributes
        position = _skip_whitespace(text, end)
        mark = text[position : position + 1]
        if mark == "]":
            _expect_end(text, position + 1)
            return
        if mark != ",":
            raise ValueError(f"expected ',' or ']' at character {position}")
        position = _skip_whitespace(text, position + 1)


def _closing(text: str, position: int) -> int:
    """Where the item that opens at `position` closes, for one nested too deep to be read."""
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
        raise EnvelopeError("not_zlib", f"the compressed batch cannot be read: {error}") from error
    if inflater.unconsumed_tail:
        raise EnvelopeError("too_large", f"a batch has at most {MAX_BATCH_BYTES} bytes decompressed")
    if not inflater.eof or inflater.unused_data:
        raise EnvelopeError("not_zlib", "the compressed batch is cut short or has bytes behind its end")
    return text
