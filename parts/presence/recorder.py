"""The functions that record statements about devices, and arm their timers; a `PresenceJudge` decides.

A statement is read from a queue message and applied to the state of its device; late and repeated ones change
nothing.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.device_reports import HEARTBEAT, thing_of
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.names import EPOCH, SEQUENCE
from eventplane.presence import Heartbeat, Line, PresenceItem, Sighting
from eventplane.topics import is_device_name
from eventplane.traffic import Traffic, read_traffic
from eventplane.values import MAX_TIME_MS, whole_number
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.log import logger
from lambdas.common.queue import Invocation, QueueMessage, read_rule_message
from lambdas.common.queue_function import QueueReader, handle_each, queue_function
from parts.presence.settings import PresenceSource, RecorderSettings
from parts.presence.table import PAGE
from parts.presence.timer_queue import Timer
from parts.presence.wiring import PresenceParts, wired

MAX_INTERVAL_S: Final = 86_400.0
"""The longest heartbeat interval that is believed, seconds: the longest that a device can be set to."""

_MAX_SECONDS: Final = 1e10
_MAX_VERSION: Final = 2**63 - 1

_CERTIFICATE = re.compile(r"[0-9a-f]{64}")

MOST_COUNTED: Final = 100
"""Names of reports of one window that are remembered. Ours: copies come within seconds, fewer reports do."""

_REFUSED = "connect_failed"
"""The lifecycle message about a connection that never stood (AWS IoT Developer Guide, lifecycle events)."""


class UnreadableObservationError(EventPlaneError):
    """A queue message is none that its queue can have. It is retried, then ends in the dead-letter queue."""

    problem: str
    message = "{problem}; see which rule or route feeds the queue"


@dataclass(frozen=True, slots=True)
class Observation:
    """Something that was said of a device. Copies of a count have the same `report`; "" where it has none."""

    device: str
    said: Sighting | Heartbeat | Traffic
    report: str = ""

    def apply(self, state: PresenceItem) -> PresenceItem:
        """The state that knows this as well; the same one when it is no news."""
        if state.is_gone:
            return state
        match self.said:
            case Sighting() as seen if state.sighting is None or seen.is_newer_than(state.sighting):
                return replace(state, sighting=seen)
            case Heartbeat() as heard if state.heartbeat is None or heard.is_newer_than(state.heartbeat):
                return replace(state, heartbeat=heard)
            case Traffic() as traffic:
                return self._count(state, traffic)
            case _:
                return state

    def _count(self, state: PresenceItem, traffic: Traffic) -> PresenceItem:
        reports = (self.report,) if self.report else ()
        before = state.traffic
        if before is None or traffic.window > before.window:
            return replace(state, traffic=traffic, counted=reports)
        if traffic.window < before.window or self.report in state.counted:
            return state
        counted = (*state.counted, *reports)[-MOST_COUNTED:]
        return replace(state, traffic=before + traffic, counted=counted)


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


RESERVE_MS: Final = 3 * WORST_CALL_MS
"""No page of devices is begun with less time left, milliseconds: the reading, one write and one batch of
timers at their worst."""

_TRIES: Final = 5
"""How often a device is tried when another function is faster or AWS refuses; then messages come again."""

Noted = tuple[QueueMessage, Observation]


class Recorder:
    """Writes what `read` finds in the messages of one queue, and arms timers."""

    def __init__(self, read: Reader, parts: PresenceParts) -> None:
        self._read = read
        self._parts = parts

    def process(self, messages: Sequence[QueueMessage], invocation: Invocation) -> frozenset[str]:
        """Record `messages`; return the ids of those that have to come again, also for want of time."""
        noted, failed = self._observations(messages)
        waiting = noted
        for number in range(_TRIES):
            if not waiting:
                break
            left: dict[str, list[Noted]] = {}
            for at in range(0, len(waiting), PAGE):
                page = dict(list(waiting.items())[at : at + PAGE])
                again, unarmed = self._take(page, invocation.remaining_ms, is_first=number == 0)
                left |= again
                # Only a redelivered message arms again what is written already.
                failed |= {message.id for device in unarmed for message, _ in noted[device]}
            waiting = left
        if waiting:
            logger.warning("devices have to come again", devices=sorted(waiting)[:PAGE])
        failed |= {message.id for those in waiting.values() for message, _ in those}
        logger.info("recorded", messages=len(messages), devices=len(noted), failed=len(failed))
        return frozenset(failed)

    def _observations(self, messages: Iterable[QueueMessage]) -> tuple[dict[str, list[Noted]], set[str]]:
        noted: defaultdict[str, list[Noted]] = defaultdict(list)

        def note(message: QueueMessage) -> bool:
            observation = self._read(message.body, message.sent_at_ms)
            if observation is not None:
                noted[observation.device].append((message, observation))
            return True

        failed = handle_each(messages, note)
        return dict(noted), set(failed)

    def _take(
        self, noted: dict[str, list[Noted]], remaining_ms: Callable[[], int], *, is_first: bool
    ) -> tuple[dict[str, list[Noted]], frozenset[str]]:
        """Write the states of up to a page of devices, and arm their timers.

        If this is not the first try, one before may have written them without an answer. Returns those that
        have to be tried again, and the devices that are written and not armed.
        """
        if remaining_ms() < RESERVE_MS:
            return noted, frozenset()
        states = self._parts.table.read(noted)
        again: dict[str, list[Noted]] = {}
        timers: list[Timer] = []
        for device, those in noted.items():
            in_time = remaining_ms() >= 2 * WORST_CALL_MS
            known = states.get(device)
            stored = self._write(known, those) if known and in_time else None
            if known is None or stored is None:
                again[device] = those
            elif stored.due_ms is not None and (
                stored.due_ms != known.due_ms or not is_first or _is_repeated(known, those)
            ):
                timers.append(Timer(device, stored.due_ms))
        return again, self._parts.timers.arm(timers, self._parts.clock())

    def _write(self, known: PresenceItem, those: Iterable[Noted]) -> PresenceItem | None:
        """The state as it is stored now; None when it has to be tried again."""
        state = known
        for _, observation in those:
            state = observation.apply(state)
        if state == known:
            return known
        due_ms = self._parts.watch.due_ms(state)
        if known.due_ms is not None and not _is_last_before(known.due_ms, known, state):
            due_ms = min(known.due_ms, due_ms or known.due_ms)
        try:
            return self._parts.table.write(state, due_ms)
        except (ClientError, BotoCoreError):
            logger.exception("not written", device=known.device)
            return None


def _is_last_before(due_ms: int, known: PresenceItem, state: PresenceItem) -> bool:
    """Whether a heartbeat came after which no other is expected before `due_ms`.

    A deadline moves with that one. With each it would cost an index's write and a timer; with none the judge
    would look at every healthy device, and each timer would come from the one before: AWS Lambda ends such a
    chain at 16 (recursive loop detection).
    """
    beat = state.heartbeat
    return beat is not None and beat != known.heartbeat and due_ms <= beat.at_ms + 1_500 * beat.interval_s


def _is_repeated(known: PresenceItem, noted: Iterable[Noted]) -> bool:
    """Whether a run before this one may have ended between the write and the timer.

    The count of receives does not tell: it begins again when an operator sends a dead letter back.
    """
    return any(observation.apply(known) is known for _, observation in noted)


_READERS: Final[Mapping[PresenceSource, Reader]] = {
    PresenceSource.CONNECTIONS: read_presence,
    PresenceSource.HEARTBEATS: read_heartbeat,
}


def service() -> QueueReader:
    """Return the recorder of the function's source. Raises `SettingsError`."""
    settings = RecorderSettings.read(os.environ)
    return QueueReader(Recorder(_READERS[settings.source], wired(settings)).process)


handle = queue_function(service)
