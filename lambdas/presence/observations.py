"""Statements about a device: read from queue messages, and taken into its state.

Late and repeated ones change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from eventplane.device_reports import HEARTBEAT, thing_of
from eventplane.envelope import Envelope, EnvelopeError, parse_event
from eventplane.errors import EventPlaneError
from eventplane.fleet import is_device_name
from eventplane.numbering import EPOCH, SEQUENCE
from eventplane.traffic import Traffic, read_traffic
from eventplane.whole_numbers import MAX_TIME_MS, whole_number
from lambdas.common.log import logger
from lambdas.common.rule_messages import read_rule_message
from lambdas.presence.state import DeviceState, Heartbeat, Line, Sighting

MAX_INTERVAL_S: Final = 86_400.0
"""The longest heartbeat interval that is believed, seconds: the longest that a device can be set to."""

_MAX_SECONDS: Final = 1e10
_MAX_VERSION: Final = 2**63 - 1

_CERTIFICATE = re.compile(r"[0-9a-f]{64}")

_REFUSED = "connect_failed"
"""The lifecycle message about a connection that never stood (AWS IoT Developer Guide, lifecycle events)."""


class UnreadableObservationError(EventPlaneError):
    """A queue message is none that its queue can have. It is retried, then ends in the dead-letter queue."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; see which rule or route feeds the queue")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Observation:
    """Something that was said of a device."""

    device: str
    said: Sighting | Heartbeat | Traffic

    def apply(self, state: DeviceState) -> DeviceState:
        """The state that knows this as well; the same one when it is no news."""
        if state.is_gone:
            return state
        match self.said:
            case Sighting() as seen if state.sighting is None or seen.is_newer_than(state.sighting):
                return replace(state, sighting=seen)
            case Traffic() as counted if state.traffic is None or counted.window > state.traffic.window:
                return replace(state, traffic=counted)
            case Traffic() as counted if counted.window == state.traffic.window:  # type: ignore[union-attr]
                return replace(state, traffic=state.traffic + counted)  # type: ignore[operator]
            case Heartbeat() as heard if state.heartbeat is None:
                return replace(state, heartbeat=heard)
            case Heartbeat() as heard if heard.is_newer_than(state.heartbeat):  # type: ignore[arg-type]
                return replace(state, heartbeat=heard)
            case _:
                return state


Reader = Callable[[str, int], Observation | None]
"""Reads a message's body, sent at a moment in Unix milliseconds; None when it is about no device."""


def read_presence(body: str, sent_at_ms: int) -> Observation | None:  # noqa: ARG001 - of the readers' shape
    """A lifecycle message of IoT Core, what the rule's error action made of one, or the archive writer's
    count of what a loud device sent.

    None for clients that are no devices: claims, renewals, and people at the console; and for connections
    that were refused, which say nothing of a line. Raises `UnreadableObservationError`.
    """
    try:
        members = read_rule_message(body)
        if counted := read_traffic(members):
            return Observation(*counted)
        if members["eventType"] == _REFUSED:
            return None
        device, principal = str(members["clientId"]), str(members["principalIdentifier"])
        if not is_device_name(device) or not _CERTIFICATE.fullmatch(principal):
            return None
        sighting = Sighting(
            line=Line(members["eventType"]),
            at_ms=whole_number(members["timestamp"], MAX_TIME_MS),
            version=whole_number(members["versionNumber"], _MAX_VERSION),
            session=str(members["sessionIdentifier"]),
            cause=str(members.get("disconnectReason", "")),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise UnreadableObservationError(f"not a lifecycle message of IoT Core: {error!r}") from error
    return Observation(device, sighting)


def read_heartbeat(body: str, sent_at_ms: int) -> Observation | None:
    """A forwarder's heartbeat. That it came is news enough: figures that cannot be read count as none.

    None for other events, and for a heartbeat that does not come from the device it is about. Raises
    `UnreadableObservationError`.
    """
    try:
        event = parse_event(body)
    except EnvelopeError as error:
        raise UnreadableObservationError(f"not an event: {error}") from error
    device = event.sender.device
    if event.type != HEARTBEAT or not is_device_name(device):
        return None
    if thing_of(event.source) != device:
        logger.warning("a heartbeat in another's name", device=device, event_source=event.source)
        return None
    data = _members(event.data())
    figures = _members(data.get("figures"))
    return Observation(
        device,
        Heartbeat(
            at_ms=sent_at_ms,
            interval_s=min(_seconds(data, "interval_s"), MAX_INTERVAL_S),
            oldest_urgent_s=_seconds(figures, "oldest_urgent_s"),
            oldest_normal_s=_seconds(figures, "oldest_normal_s"),
            epoch=_attribute(event, EPOCH),
            sequence=_attribute(event, SEQUENCE),
        ),
    )


def _members(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _seconds(members: Mapping[str, Any], name: str) -> float:
    value = members.get(name)
    # A comparison also sorts out NaN, and numbers that no float can hold.
    return float(value) if isinstance(value, int | float) and 0 <= value <= _MAX_SECONDS else 0.0


def _attribute(event: Envelope, name: str) -> str:
    return str(event.attributes.get(name, ""))
