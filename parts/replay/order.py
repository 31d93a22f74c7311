"""The orders in the queue `REPLAY`, and the mark of the copies that are sent.

An order names one file of the tap, which has the events' exact text. It is written by the operator's command
and carried out by the function.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeVar

from eventplane.envelope import Envelope, EventKey
from eventplane.errors import EventPlaneError
from eventplane.ledger import TAP
from eventplane.limits import MAX_EVENT_BYTES, MAX_ORIGINAL_BYTES
from eventplane.names import REPLAYED_TIME
from eventplane.values import timestamp_of_ms

MAX_ORDER_RECEIVES: Final = 20
"""Deliveries of an order before the queue's dead-letter queue gets it. Ours: they bridge an hour's outage;
an order that fails may have sent its events each time."""

MAX_ORDER_BYTES: Final = MAX_ORIGINAL_BYTES
"""Largest order, bytes. Ours: a dead letter can hold it whole, and it is far below what SQS takes."""


class OrderError(EventPlaneError):
    """A message of the queue is not an order. `problem` says why."""

    problem: str
    message = "not an order to replay: {problem}; send what `eventplane replay` makes"


@dataclass(frozen=True, slots=True)
class Owed:
    """A delivery that an audit reports lost: the event, the `route` that `contract_version` gives it, and
    when IoT Core accepted it (`entered_at_ms`, Unix milliseconds)."""

    sender: str
    source: str
    id: str
    route: str
    contract_version: str
    entered_at_ms: int

    @property
    def key(self) -> EventKey:
        """The event's identity."""
        return self.sender, self.source, self.id


@dataclass(frozen=True, slots=True)
class OwedOrder:
    """Repeat the deliveries `owed`, all of events in the tap's `file`."""

    file: str
    owed: tuple[Owed, ...]


@dataclass(frozen=True, slots=True)
class WindowOrder:
    """Send what is in the tap's `file`, accepted from `from_ms` up to `to_ms` (Unix milliseconds), over the
    routes in force now: those that lead to the inbox of `participant`, or the one called `route`."""

    file: str
    from_ms: int
    to_ms: int
    participant: str | None = None
    route: str | None = None


Order = OwedOrder | WindowOrder


def order_text(order: Order) -> str:
    """Return the message body of an order."""
    return json.dumps(asdict(order), ensure_ascii=False, separators=(",", ":"))


def parse_order(body: str) -> Order:
    """Return the order in a message's body. Raises `OrderError`."""
    try:
        members = json.loads(body)
        if "owed" in members:
            owed = tuple(_record(Owed, each) for each in members.pop("owed"))
            order: Order = _record(OwedOrder, {**members, "owed": owed})
        else:
            order = _record(WindowOrder, members)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise OrderError(repr(error)) from error
    if not order.file.startswith(f"{TAP}/"):
        raise OrderError(f"{order.file!r} is not a file of the tap")
    if isinstance(order, WindowOrder) and (order.participant is None) is (order.route is None):
        raise OrderError("it does not name exactly one of participant and route")
    return order


def orders_of(file: str, owed: Iterable[Owed]) -> Iterator[OwedOrder]:
    """Yield what is `owed` of one file, as orders of up to `MAX_ORDER_BYTES`."""
    empty = len(order_text(OwedOrder(file, ())).encode())
    chunk: list[Owed] = []
    size = empty
    for each in owed:
        more = len(json.dumps(asdict(each), ensure_ascii=False, separators=(",", ":")).encode()) + 1
        if chunk and size + more > MAX_ORDER_BYTES:
            yield OwedOrder(file, tuple(chunk))
            chunk, size = [], empty
        chunk.append(each)
        size += more
    if chunk:
        yield OwedOrder(file, tuple(chunk))


def marked(event: Envelope, now_ms: int) -> Envelope:
    """Return `event` with `REPLAYED_TIME`, the rest of its text unchanged.

    One so large that there is no room for the mark comes without: better unmarked than lost.
    """
    copy = event.with_attributes({REPLAYED_TIME: timestamp_of_ms(now_ms)})
    return copy if copy.bytes <= MAX_EVENT_BYTES else event


_R = TypeVar("_R", Owed, OwedOrder, WindowOrder)
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "str": str,
    "int": int,
    "str | None": (str, type(None)),
    "tuple[Owed, ...]": tuple,
}


def _record(kind: type[_R], members: dict[str, Any]) -> _R:
    """Return the record with exactly these members, each of its type."""
    record = kind(**members)
    for field in fields(record):
        value = getattr(record, field.name)
        if not isinstance(value, _TYPES[str(field.type)]) or isinstance(value, bool):
            raise TypeError(f"{field.name} is {value!r:.100}")
    return record
