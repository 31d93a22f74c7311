"""Batches: an item keeps its exact text, and one bad item costs no other."""

import json
import zlib
from typing import Any

import pytest

from eventplane import batch, other_json
from eventplane.batch import pack, unpack
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_BATCH_BYTES, MAX_BATCH_EVENTS

ONE = '{"specversion":"1.0","id":"1","source":"/a","type":"t","data":1.00}'
TWO = '{ "specversion":"1.0", "id":"é]","source":"/a","type":"t" }'


def test_a_batch_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [parse_event(text) for text in (ONE, TWO, ONE)]
    payload = pack(events)

    def again(_: object) -> Envelope:
        raise AssertionError("an item is decoded twice")

    monkeypatch.setattr(batch, "parse_event", again)
    assert list(unpack(payload)) == events


def test_another_reader_decodes_a_batch_once() -> None:
    decoded: list[bytes] = []

    def read(raw: bytes) -> Any:
        decoded.append(raw)
        return json.loads(raw)

    texts = [ONE.replace("1.00", "[]"), ONE.replace("1.00", "null")]
    other_json.use_json(read, lambda value: json.dumps(value, separators=(",", ":")).encode())
    try:
        found = list(unpack(f"[{','.join(texts)}]".encode()))
    finally:
        other_json.use_standard_json()
    assert found == [parse_event(text) for text in texts]
    assert len(decoded) == 1


@pytest.mark.parametrize(
    ("payload", "texts"),
    [
        (b"[]", []),
        (b" [ \n] ", []),
        (pack([]), []),
        (ONE.encode(), [ONE]),
        (f" [ {ONE} ,{TWO}]\n".encode(), [ONE, TWO]),
    ],
)
def test_simpler_clients_send_one_event_or_a_plain_batch(payload: bytes, texts: list[str]) -> None:
    assert list(unpack(payload)) == [parse_event(each) for each in texts]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"id":"x","id":"y"}', "duplicate_key"),
        ('{"id":' + "9" * 5_000 + "}", "number_too_long"),
        ('{"id":NaN}', "not_json"),
        ("[" * 5_000 + '"]",{"\\"}":"["}' + "]" * 5_000, "too_deep"),
        ('{"a":' * 5_000 + "1" + "}" * 5_000, "too_deep"),
        ("7", "not_an_object"),
    ],
)
def test_a_bad_item_is_refused_alone_with_its_bytes(bad: str, reason: str) -> None:
    first, second, third = unpack(f"[{ONE},{bad},{TWO}]".encode())
    assert first == parse_event(ONE)
    assert third == parse_event(TWO)
    assert isinstance(second, tuple)
    assert second[0] == bad.encode()
    assert second[1].reason == reason


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"[1", "not_json"),
        (b"[1 2]", "not_json"),
        (b"[1,]", "not_json"),
        (b"[] x", "not_json"),
        (b"[" * 90_000, "not_json"),
        (b'[{"a":' + b"[" * 5_000 + b'"', "not_json"),
        (b"[\xff]", "not_utf8"),
        (b"\x78\x9cnonsense", "not_zlib"),
        (zlib.compress(b"[1]")[:-1], "not_zlib"),
        (zlib.compress(b"[]") + b"more", "not_zlib"),
        (zlib.compress(b"[" + b" " * MAX_BATCH_BYTES + b"]"), "too_large"),
        (b"[" + b",".join([b"1"] * (MAX_BATCH_EVENTS + 1)) + b"]", "too_many"),
        # What is behind the last event that may be there is not read: a million would take memory and time.
        (b"[" + b",".join([b"1"] * (MAX_BATCH_EVENTS + 1)) + b" and more", "too_many"),
    ],
)
def test_a_payload_that_cannot_be_read_is_refused_whole(payload: bytes, reason: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        list(unpack(payload))
    assert caught.value.reason == reason
