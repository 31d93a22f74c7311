"""Messages that can never be delivered, each kind with the reason that its dead letter must give.

All but one are malformed; that one is of a type that its sender does not declare. Every message has a number,
so that each can be found by its digest.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from eventplane.batch import pack
from eventplane.envelope import Envelope, write_event
from eventplane.limits import MAX_DEPTH, MAX_EVENT_BYTES
from eventplane.names import EPOCH
from eventplane.reasons import Reason

TYPE = "org.eventplane.health.reading.v1"
"""What the messages would be, were they events: something that routes ask for."""


SCHEMAS = (
    "https://schemas.eventplane.org/reading.v1.json",
    "https://schemas.eventplane.org/reading.v1.1.json",
)
"""Versions of its payload, which are in use side by side."""


@dataclass(frozen=True, slots=True)
class Poison:
    """One malformed message, and the `reason` word with which it must be refused."""

    kind: str
    reason: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class CloudPayload:
    """A payload that a device publishes straight to the cloud, past its forwarder.

    `good` are the events in it, which must arrive all the same; `poison` are its malformed items, each with
    the bytes that its dead letter must keep.
    """

    kind: str
    payload: bytes
    good: tuple[Envelope, ...] = ()
    poison: tuple[Poison, ...] = ()


def poison(number: int, source: str) -> Poison:
    """The malformed message `number` as a service would send it from `source`; the kinds take turns."""
    kind, reason, payload = _KINDS[number % len(_KINDS)]
    return Poison(kind, reason, payload(_members(source, f"poison-{number}")))


def cloud_payloads(source: str) -> list[CloudPayload]:
    """Return payloads of a broken or a simple client to the cloud; the events come from `source`."""
    good = [_reading(source, n, version) for n, version in enumerate((None, None, 0, 1))]
    wrong = write_event(
        {"id": "wrong-payload", "source": source, "type": TYPE, "dataschema": SCHEMAS[1]},
        {**_DATA, "value": "seventy-two", "origin": "entered"},
    ).json.encode()
    no_json = Poison("not_json", "not_json", f"not JSON either, from {source}".encode())
    truncated = Poison("truncated_batch", "not_zlib", pack(good)[:-7])
    no_id = Poison("missing_id", "missing_attribute", _without_id(_members(source, "poison-in-batch")))
    batch = b"[" + b",".join([good[0].json.encode(), no_id.payload, good[1].json.encode()]) + b"]"
    return [
        CloudPayload("not_json", no_json.payload, poison=(no_json,)),
        CloudPayload("truncated_batch", truncated.payload, poison=(truncated,)),
        CloudPayload("batch_with_a_bad_item", batch, good=(good[0], good[1]), poison=(no_id,)),
        CloudPayload("single_event", good[2].json.encode(), good=(good[2],)),
        CloudPayload("batch", pack([good[3]]), good=(good[3],)),
        CloudPayload(
            "wrong_payload", wrong, poison=(Poison("wrong_payload", Reason.PAYLOAD_INVALID, wrong),)
        ),
    ]


def _reading(source: str, number: int, version: int | None) -> Envelope:
    """A good event by one of the schema's versions, or of a sender from before there were any."""
    names = {} if version is None else {"dataschema": SCHEMAS[version]}
    data = {**_DATA, "origin": "measured"} if version == 1 else _DATA
    return write_event({"id": f"simple-{number}", "source": source, "type": TYPE, **names}, data)


Members = dict[str, object]

_DATA = {"quantity": "heart-rate", "value": 72, "unit": "/min"}


def _members(source: str, id_: str) -> Members:
    return {"specversion": "1.0", "id": id_, "source": source, "type": TYPE, "data": _DATA}


def _written(members: Members) -> bytes:
    return json.dumps(members, separators=(",", ":")).encode("utf-8")


def _too_deep() -> object:
    data: object = "deep"
    for _ in range(MAX_DEPTH):
        data = [data]
    return data


def _without_id(members: Members) -> bytes:
    rest = {name: value for name, value in members.items() if name != "id"}
    return _written({**rest, "data": {"number": members["id"]}})


_KINDS: tuple[tuple[str, str, Callable[[Members], bytes]], ...] = (
    ("not_json", "not_json", lambda m: f"{m['source']} {m['id']}: certainly not JSON".encode()),
    ("missing_id", "missing_attribute", _without_id),
    ("bad_time", "attribute_value", lambda m: _written({**m, "time": "yesterday"})),
    ("duplicate_key", "duplicate_key", lambda m: _written(m).replace(b"{", b'{"id":"another",', 1)),
    ("invalid_utf8", "not_utf8", lambda m: _written(m).replace(b"heart-rate", b"heart\xff\xferate")),
    ("lone_surrogate", "lone_surrogate", lambda m: _written({**m, "data": "half a character: \ud83d"})),
    ("reserved_attribute", "reserved_attribute", lambda m: _written({**m, EPOCH: "mine"})),
    ("too_deep", "too_deep", lambda m: _written({**m, "data": _too_deep()})),
    ("nested_attribute", "attribute_value", lambda m: _written({**m, "nested": {"is": "no scalar"}})),
    (
        "undeclared_type",
        Reason.SENDER_NOT_ALLOWED,
        lambda m: _written({**m, "type": "org.example.none.v1"}),
    ),
    ("too_large", "too_large", lambda m: _written({**m, "data": "x" * MAX_EVENT_BYTES})),
)
"""Kind, reason and maker of each."""
