"""The envelope: a CloudEvent's attributes, strictly checked; the event's text passes through untouched.

Structured content mode, JSON format (CloudEvents 1.0.2). A consumer gets the text that the producer wrote,
character for character; the plane only puts attributes of its own in front (`Envelope.stamped`).
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from eventplane import fast_reader, strict_json
from eventplane.attributes import AttributeValue, checked_attributes
from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_EVENT_BYTES
from eventplane.names import PLANE, PLANE_CLIENT, SENDER_DEVICE, SENDER_SERVICE
from eventplane.reasons import Reason
from eventplane.strict_json import with_member, without_members

EventKey = tuple[str, str, str]
"""The identity of an event: sender, `source`, `id`."""

_quoted = json.encoder.encode_basestring_ascii


class Sender(NamedTuple):
    """The sender of an event: `device` and `service` as far as the transport knows them, else ''.

    `source` is a claim of the event. The sender is not: the forwarder stamps the service whose outbox a
    message lay in, and the cloud's router the device whose connection brought a frame. No participant can set
    either.
    """

    device: str = ""
    service: str = ""

    def __str__(self) -> str:
        """Return `home-1/voice-service`, `home-1/` (the device as a whole), `carers`, or '' (unknown)."""
        return f"{self.device}/{self.service}" if self.device else self.service

    @property
    def attributes(self) -> dict[str, str]:
        """The reserved attributes that name this sender."""
        named = {SENDER_DEVICE: self.device, SENDER_SERVICE: self.service}
        return {name: value for name, value in named.items() if value}


THE_PLANE: Final = Sender(service=PLANE)
"""The sender of what the cloud's routers write themselves."""


def sender_of(attributes: Mapping[str, object]) -> Sender:
    """Return the sender that an event's stamped `attributes` name."""
    # Raw members may have null for an attribute that is not set.
    return Sender(str(attributes.get(SENDER_DEVICE) or ""), str(attributes.get(SENDER_SERVICE) or ""))


def parse_sender(text: str) -> Sender:
    """Return the sender whose text this is: the inverse of `str`."""
    device, slash, service = text.partition("/")
    return Sender(device, service) if slash else Sender(service=text)


def sender_in_frame(client_id: str, attributes: Mapping[str, object]) -> Sender:
    """Return the sender of an event in a frame of `client_id`: the device, and the service it vouches for."""
    if client_id == PLANE_CLIENT:
        return THE_PLANE
    return Sender(client_id, sender_of(attributes).service)


@dataclass(frozen=True, slots=True)
class Envelope:
    """One CloudEvent.

    `attributes` are its context attributes, extensions included; `json` is the text of the whole event.
    """

    attributes: Mapping[str, AttributeValue] = field(hash=False)
    json: str

    @property
    def id(self) -> str:
        return str(self.attributes["id"])

    @property
    def source(self) -> str:
        return str(self.attributes["source"])

    @property
    def type(self) -> str:
        return str(self.attributes["type"])

    @property
    def claim(self) -> tuple[str, str]:
        """The claim of the event: `source` and `id`. They identify nothing, as any sender can write them."""
        return self.source, self.id

    @property
    def sender(self) -> Sender:
        """The sender, as far as a hop of the plane has stamped it."""
        return sender_of(self.attributes)

    @property
    def key(self) -> EventKey:
        """The identity of an event: sender, `source` and `id`.

        CloudEvents 1.0.2 treats events with equal `source` and `id` as duplicates. Both are claims, so the
        plane does so for the events of one sender only.
        """
        return str(self.sender), self.source, self.id

    def data(self) -> Any:
        """Return the payload: the JSON value of `data`, the bytes of `data_base64`, or None."""
        members = json.loads(self.json)
        if "data_base64" in members:
            return base64.b64decode(members["data_base64"])
        return members.get("data")

    def stamped(self, **extensions: str) -> Envelope:
        """Return this event with extension attributes of the plane in front, the rest of its text unchanged.

        Raises `EnvelopeError` (`reserved_attribute`) when the event already carries one of them.
        """
        for name in extensions:
            if name in self.attributes:
                raise reserved(name)
        return self.with_attributes(extensions)

    def with_attributes(self, attributes: dict[str, Any]) -> Envelope:
        """Return this event with valid `attributes`, in their places or in front; the rest stays as it is."""
        text = self.json
        for name, value in reversed(attributes.items()):
            text = _with_attribute(text, name, _quoted(value) if isinstance(value, str) else str(value))
        return _envelope({**self.attributes, **attributes}, text)

    @property
    def bytes(self) -> int:
        """The size of the whole event, bytes of UTF-8."""
        return _utf8_size(self.json)

    def without(self, names: Collection[str]) -> Envelope:
        """Return this event without the attributes `names`, the rest of its text unchanged."""
        if self.attributes.keys().isdisjoint(names):
            return self
        present = [name for name in names if name in self.attributes]
        kept = {name: value for name, value in self.attributes.items() if name not in present}
        return Envelope(kept, without_members(self.json, present))


_new = object.__new__
_set_attributes, _set_json = (vars(Envelope)[name].__set__ for name in ("attributes", "json"))


def _envelope(attributes: Mapping[str, AttributeValue], text: str) -> Envelope:
    # In half the time of the constructor, which a frozen dataclass makes slow.
    envelope = _new(Envelope)
    _set_attributes(envelope, attributes)
    _set_json(envelope, text)
    return envelope


def reserved(name: str) -> EnvelopeError:
    """Return the error for an event that carries the attribute `name`, which only the plane sets."""
    return EnvelopeError(
        Reason.RESERVED_ATTRIBUTE, f"only the plane sets the attribute {name!r}; send the event without it"
    )


def parse_event(raw: bytes | str) -> Envelope:
    """Return the envelope of one event in JSON format. Raises `EnvelopeError`."""
    if len(raw) <= MAX_EVENT_BYTES:
        try:
            text, encoded = (raw, raw.encode()) if isinstance(raw, str) else (raw.decode(), raw)
        except UnicodeError:
            return parse_strictly(raw)
        attributes = fast_reader.attributes_of(encoded, text)
        if attributes is not None and len(encoded) <= MAX_EVENT_BYTES:
            return _envelope(attributes, text)
    return parse_strictly(raw)


def certain_event(text: str, attributes: dict[str, AttributeValue] | None) -> Envelope | None:
    """Return the envelope of an item of a batch; None where `parse_event` has to decide."""
    if attributes is None or len(text) > MAX_EVENT_BYTES or _utf8_size(text) > MAX_EVENT_BYTES:
        return None
    return _envelope(attributes, text)


def parse_strictly(raw: bytes | str) -> Envelope:
    """Return the envelope as `parse_event` does, by the strict reader alone. Raises `EnvelopeError`."""
    size = len(raw) if isinstance(raw, bytes) else _utf8_size(raw)
    if size > MAX_EVENT_BYTES:
        raise EnvelopeError(Reason.TOO_LARGE, f"{size} bytes; an event has at most {MAX_EVENT_BYTES}")
    text = strict_json.decode_text(raw) if isinstance(raw, bytes) else raw
    members = strict_json.loads(text)
    if not isinstance(members, dict):
        raise EnvelopeError(
            Reason.NOT_AN_OBJECT, f"an event is a JSON object, not a {type(members).__name__}"
        )
    return Envelope(checked_attributes(members), text)


def write_event(attributes: Mapping[str, AttributeValue], data: Any = None) -> Envelope:
    """Return a new event with JSON `data` (None: no payload). Raises `EnvelopeError` for wrong attributes."""
    members: dict[str, Any] = {"specversion": "1.0", **attributes}
    if data is not None:
        members.setdefault("datacontenttype", "application/json")
        members["data"] = data
    return parse_event(json.dumps(members, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


ZLIB_LEVEL: Final = 6
"""zlib's own default; 100 readings shrink from 349 to 41 bytes an event."""


def pack_texts(texts: Iterable[str]) -> bytes:
    """Return a compressed JSON batch (`eventplane.batch`) of the texts of valid events."""
    return zlib.compress(("[" + ",".join(texts) + "]").encode("utf-8"), ZLIB_LEVEL)


def _with_attribute(text: str, name: str, value: str) -> str:
    # The text may have the attribute as null, or its name with escapes. If it has neither, the members need
    # not be read. Most texts have no backslash, and one character is found thirty times as fast as two.
    if f'"{name}"' in text or ("\\" in text and "\\u" in text):
        return with_member(text, name, value)
    return f'{{"{name}":{value},{text.lstrip()[1:]}'


def _utf8_size(text: str) -> int:
    # ASCII texts, and those with too many characters, need not be encoded.
    if text.isascii() or len(text) > MAX_EVENT_BYTES:
        return len(text)
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise EnvelopeError(Reason.LONE_SURROGATE, f"character {error.start} is half a pair") from error
