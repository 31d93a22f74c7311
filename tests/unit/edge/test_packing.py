from __future__ import annotations

import random

from edge.packing import pack_first
from eventplane.batch import unpack
from eventplane.envelope import Envelope, write_event
from eventplane.limits import MAX_EVENT_BYTES, MAX_PAYLOAD_BYTES


def texts(count: int, noise: int) -> list[str]:
    dice = random.Random(7)
    return [
        write_event({"id": str(n), "source": "/s", "type": "t"}, dice.randbytes(noise).hex()).json
        for n in range(count)
    ]


def ids(payload: bytes) -> list[str]:
    return [each.id for each in unpack(payload) if isinstance(each, Envelope)]


def test_all_that_fits_goes_together() -> None:
    payload, count = pack_first(texts(100, 10), MAX_PAYLOAD_BYTES)
    assert count == 100
    assert ids(payload) == [str(n) for n in range(100)]


def test_a_batch_that_does_not_compress_is_cut_to_the_limit() -> None:
    waiting = texts(100, 4_000)
    payload, count = pack_first(waiting, MAX_PAYLOAD_BYTES)
    assert len(payload) <= MAX_PAYLOAD_BYTES
    assert 20 < count < 40
    assert ids(payload) == [str(n) for n in range(count)]


def test_a_batch_stays_readable_however_well_it_compresses() -> None:
    waiting = [
        write_event({"id": str(n), "source": "/s", "type": "t"}, "\N{BELL}" * 20_000).json for n in range(99)
    ]
    payload, count = pack_first(waiting, MAX_PAYLOAD_BYTES)
    assert 40 < count < 60
    assert len(ids(payload)) == count


def test_the_largest_event_fits_the_smallest_limit_alone() -> None:
    dice = random.Random(7)
    letters = "".join(chr(dice.randrange(0x20, 0x7F)) for _ in range(MAX_EVENT_BYTES)).replace("\\", "/")
    head = '{"specversion":"1.0","id":"0","source":"/s","type":"t","data":"'
    text = head + letters.replace('"', "'")[: MAX_EVENT_BYTES - len(head) - 2] + '"}'
    assert len(text) == MAX_EVENT_BYTES
    payload, count = pack_first([text, text], MAX_EVENT_BYTES + 1024)
    assert len(payload) <= MAX_EVENT_BYTES + 1024
    assert count >= 1
