"""The events that the runs publish. An id above a billion is a time of sending."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

EARLIEST_NS = 10**9
"""An id beyond it is the nanosecond of sending, of the machine's monotonic clock."""

ALARM = "org.eventplane.alarm.keyword.v1"
READING = "org.eventplane.health.reading.v1"

REALISTIC = 349
"""Bytes of an average reading as a CloudEvent, of the fleet's real data."""


def event(number: int, size: int, type: str = READING) -> bytes:
    """Return an event of `size` bytes whose id is `number`. Its payload does not compress to nothing."""
    head = (
        f'{{"specversion":"1.0","id":"{number}","source":"/homes/1/health-service","type":"{type}",'
        '"subject":"/homes/1/persons/1","time":"2026-01-01T00:00:00.000Z",'
        '"datacontenttype":"application/json","data":{"property":"heart_rate",'
        f'"value":{number % 97 + 40}.{number % 1_000:03},"unit":"bpm","text":"'
    )
    fill = size - len(head) - 3
    digits = f"{number * 2_654_435_761 % 2**64:020d}" * (fill // 20 + 1)
    return f'{head}{digits[: max(0, fill)]}"}}}}'.encode()


def events(numbers: Sequence[int], size: int, type: str = READING) -> Iterable[bytes]:
    """Return an event for each of `numbers`, made when it is asked for."""
    return (event(number, size, type) for number in numbers)
