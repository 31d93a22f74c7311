"""The events that the cloud wants of its devices: a state whose data is a list of filters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from eventplane.attributes import AttributeValue
from eventplane.contract import Contract, Place, Problem
from eventplane.contract.canonical import canonical_bytes
from eventplane.contract.filter_reader import MixedLogic, read_interest
from eventplane.device_reports import UPLINK_INTEREST_TYPE, UPLINK_KEY
from eventplane.envelope import Envelope, write_event
from eventplane.errors import EventPlaneError
from eventplane.filter_texts import to_document
from eventplane.filters import Filter
from eventplane.limits import MAX_DOWNLINK_EVENT_BYTES

OPERATIONS: Final = "operations"
"""The participant through whose outbox it is sent."""

VERSION: Final = 1
"""The version of the data's format. Another one is refused: half understood, it would hold back events."""


class UplinkInterestError(EventPlaneError):
    """An event does not hold the filters of what the cloud wants."""

    problem: str
    message = "{problem}; publish it by `eventplane interest publish`"


class TooManyFiltersError(EventPlaneError):
    """The filters take `size` bytes, more than the `most` that one event towards a device may have."""

    size: int
    most: int
    message = (
        "the filters take {size} bytes, an event towards a device {most}; "
        "combine subscriptions into one route; until then devices send up everything"
    )


def uplink_filters(*contracts: Contract) -> list[object]:
    """Return the filters of all routes in the cloud by any of `contracts`, as documents.

    Announced interest is not among them: it lapses with its lease, and events that devices did not send are
    lost.
    """
    routes = (route for each in contracts for route in each.routes_at(Place.CLOUD))
    filters = {canonical_bytes(to_document(route.filter)) for route in routes}
    return [json.loads(each) for each in sorted(filters)]


def uplink_interest_event(
    filters: Sequence[object] | None, *, id: str, time: str, device: str, source: str = "/operations"
) -> Envelope:
    """Return the event that makes `device` (`*`: all) send only what passes one of `filters` (None: all).

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
    """Return what the cloud wants as one filter. Raises `UplinkInterestError`."""
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
    # Routers still use the contract or the subscription that has it.
    problems = [each for each in problems if not isinstance(each, MixedLogic)]
    if problems or interest is None:
        raise UplinkInterestError("; ".join(map(str, problems)) or "it has no `filters`")
    return interest
