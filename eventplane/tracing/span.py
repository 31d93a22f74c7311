"""A span, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

AttributeValue = str | int | bool


class Kind(IntEnum):
    """What a span is, by OTLP's numbers."""

    INTERNAL = 1
    PRODUCER = 4
    CONSUMER = 5


@dataclass(frozen=True, slots=True)
class Span:
    """What `service` did from `start_ms` to `end_ms`, Unix milliseconds. `error` says why it failed.

    `links` are (trace id, span id) of what it belongs to besides.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: Kind
    service: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    state: str = ""
    error: str | None = None
    links: tuple[tuple[str, str], ...] = ()
