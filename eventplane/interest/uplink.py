"""What the cloud wants of its devices, as it goes down to them: a state whose data is a list of filters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from eventplane.attributes import AttributeValue
from eventplane.contract import Contract, Place, Problem
from eventplane.contract.canonical import canonical_bytes
from eventplane.contract.filter_reader import read_interest
from eventplane.envelope import Envelope, write_event
from eventplane.errors import EventPlaneError
from eventplane.filters import Filter, to_document
from eventplane.limits import MAX_DOWNLINK_EVENT_BYTES

UPLINK_KEY: Final = "interest/plane/uplink"
"""The key of the state."""

UPLINK_INTEREST_TYPE: Final = "org.eventplane.device.interest.v1"

OPERATIONS: Final = "operations"
"""The participant through whose outbox it is sent."""

VERSION: Final = 1
"""Of the data's form. Another one is refused: half understood, it would hold back events."""


class UplinkInterestError(EventPlaneError):
    """An event does not say what the cloud wants."""

    def __init__(self, problem: object) -> None:
        super().__init__(f"{problem}; publish it by `python -m eventplane interest --publish`")


class TooManyFiltersError(EventPlaneError):
    """What the cloud wants takes `size` bytes, more than the `most` that go down to a device in one event."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(
            f"the filters take {size} bytes, an event towards a device {most}; "
            "lead subscriptions into one route, until then devices have to send up everything"
        )
        self.size = size


def uplink_filters(contract: Contract) -> list[object]:
    """What the cloud wants of its devices: what a route takes, whatever its reader announced that it handles.

    An announcement lapses with its lease, and what devices were not told to send is gone.
    """
    filters = {canonical_bytes(to_document(route.filter)) for route in contract.routes_at(Place.CLOUD)}
    return [json.loads(each) for each in sorted(filters)]


def uplink_interest_event(
    filters: Sequence[object] | None, *, id: str, time: str, device: str, source: str = "/operations"
) -> Envelope:
    """Tells `device` (`*`: all) that the cloud wants what passes one of `filters` (None: everything).

    `time` is RFC 3339: of two events the later one counts. Raises `TooManyFiltersError`.
    """
    attributes: dict[str, AttributeValue] = {
        "id": id,
        "source": source,
        "type": UPLINK_INTEREST_TYPE,
        "time": time,
        "todevice": device,
        "statekey": UPLINK_KEY,
    }
    if filters is None:
        return write_event(attributes | {"statedelete": True})
    event = write_event(attributes, {"version": VERSION, "filters": list(filters)})
    size = len(event.json.encode())
    if size > MAX_DOWNLINK_EVENT_BYTES:
        raise TooManyFiltersError(size, MAX_DOWNLINK_EVENT_BYTES)
    return event


def read_uplink_interest(event: Envelope) -> Filter:
    """What the cloud wants, as one filter. Raises `UplinkInterestError`."""
    if event.type != UPLINK_INTEREST_TYPE:
        raise UplinkInterestError(f"its type is {event.type!r:.100}, not {UPLINK_INTEREST_TYPE}")
    try:
        data = event.data()
    except ValueError as error:
        raise UplinkInterestError(f"its data cannot be read: {error}") from error
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise UplinkInterestError(f"its data is not of version {VERSION}")
    problems: list[Problem] = []
    # A list that is missing is not an empty one, which would hold back everything.
    interest = read_interest(data.get("filters"), "filters", problems)
    if problems or interest is None:
        raise UplinkInterestError("; ".join(map(str, problems)) or "it has no `filters`")
    return interest
