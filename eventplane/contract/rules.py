"""Check what people write in a contract. A compiled one is read without: what is in force stays so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from eventplane.contract import Channel, DeliveryGuarantee, EventType, Participant, ParticipantKind, Route
from eventplane.contract.reader import Section
from eventplane.device_reports import PLANE_TYPES
from eventplane.names import OWN_SERVICES, PLANE, SUBSCRIBERS

MAX_PARTICIPANT_NAME: Final = 26
"""Characters of a name that is part of the names of functions and queues. AWS Lambda allows 64 for the
longest, `eventplane-<environment>-router-<device>-urgent`, and an environment has up to 12."""

RESERVED_NAMES: Final = frozenset(
    {"device", "device-inbox", "device-urgent", "ingest", "ingest-errors", "replay", "services", "tables"}
    | {"tap", "urgent-ingest"}
)
"""Names of the plane's own resources, which no cloud service can have."""


def check_names(participants: Mapping[str, Participant], top: Section) -> None:
    """Record in `top` every name that AWS would refuse, or whose resource would have the name of another."""
    taken = {_id(each): "the plane itself" for each in RESERVED_NAMES}
    for each in participants.values():
        if each.kind is ParticipantKind.DEVICE:
            taken[_id(f"{each.name}-urgent")] = "the queue of urgent events"
        if each.kind is not ParticipantKind.DEVICE_SERVICE and len(each.name) > MAX_PARTICIPANT_NAME:
            top.fault(
                f"participants.{each.name}",
                f"the name has {len(each.name)} characters",
                f"give it at most {MAX_PARTICIPANT_NAME}: it is part of the names of functions and queues",
            )
        if each.name == PLANE:
            top.fault(
                f"participants.{PLANE}",
                "the plane itself sends events by this name",
                "choose another name",
            )
    for each in participants.values():
        for name in _resources(each):
            owner = taken.setdefault(_id(name), repr(each.name))
            if owner != repr(each.name):
                top.fault(
                    f"participants.{each.name}",
                    f"its resource {name!r} in AWS would be that of {owner}",
                    "choose another name; two names differ by more than hyphens",
                )


def _resources(participant: Participant) -> Iterator[str]:
    if participant.kind is ParticipantKind.CLOUD_SERVICE:
        yield participant.name
        if participant.replies is not None:
            yield f"{participant.name}-replies"
        if participant.inbox.webhook or participant.name == SUBSCRIBERS:
            yield f"{participant.name}-webhook"


def _id(name: str) -> str:
    # CloudFormation's ids have no hyphens (stacks/names.py).
    return name.replace("-", "")


def check_delays(participants: Mapping[str, Participant], top: Section) -> None:
    """Report each `batching_delay_ms` that has no effect, or lets events expire.

    A compiled contract may have such: they were valid before format 8.
    """
    for each in participants.values():
        for channel in each.channels:
            path = f"participants.{channel.address}.batching_delay_ms"
            if not channel.batching_delay_ms:
                continue
            if channel.box != "outbox" or each.kind is ParticipantKind.CLOUD_SERVICE:
                top.fault(
                    path,
                    "only events that leave a device wait for a batch",
                    "set it on the outbox of the device or of a device_service",
                )
            elif channel.expiry_s is not None and channel.expiry_s * 1_000 <= channel.batching_delay_ms:
                top.fault(
                    path,
                    f"an event expires after {channel.expiry_s} s, before it has waited "
                    f"{channel.batching_delay_ms} ms",
                    "make it shorter than `expiry_s`",
                )


def check_guarantees(
    participants: Mapping[str, Participant],
    event_types: Mapping[str, EventType],
    routes: Iterable[Route],
    top: Section,
) -> None:
    """Refuse a promise that a channel breaks, and best effort where every delivery is kept anyway."""
    for path, why in chain(_kept_channels(participants), _kept_types(event_types)):
        _refuse_best_effort(top, path, why)
    channels = {each.address: each for one in participants.values() for each in one.channels}
    for route in routes:
        path, destination = f"routes.{route.name}", channels.get(route.destination)
        if destination is None:
            continue
        if route.delivery_guarantee is _BEST_EFFORT:
            if _leads_down(destination, participants):
                _refuse_best_effort(top, path, _DOWN)
        elif route.delivery_guarantee and destination.delivery_guarantee is _BEST_EFFORT:
            top.fault(
                f"{path}.delivery_guarantee",
                f"{destination.address} is a best-effort channel, and no route makes it more reliable",
                "make the channel `at_least_once`, or remove the setting from the route",
            )


_BEST_EFFORT: Final = DeliveryGuarantee.BEST_EFFORT
_DOWN: Final = "what goes down to devices is kept until the device acknowledges it"
_REPORT: Final = "the plane's own reports are delivered at least once, whatever is declared"


def _kept_channels(participants: Mapping[str, Participant]) -> Iterator[tuple[str, str]]:
    """The best-effort channels on which nothing can be dropped: the path of each, and why."""
    for participant in participants.values():
        is_own = participant.name in OWN_SERVICES - {SUBSCRIBERS}
        for channel in participant.channels:
            if channel.delivery_guarantee is not _BEST_EFFORT:
                continue
            if _leads_down(channel, participants):
                yield f"participants.{channel.address}", _DOWN
            elif is_own:
                yield f"participants.{channel.address}", _REPORT


def _kept_types(event_types: Mapping[str, EventType]) -> Iterator[tuple[str, str]]:
    """The best-effort types whose events cannot be dropped: the path of each, and why."""
    for event_type in event_types.values():
        if event_type.delivery_guarantee is not _BEST_EFFORT:
            continue
        if event_type.name in PLANE_TYPES:
            yield f"event_types.{event_type.name}", _REPORT
        elif event_type.downlink:
            yield f"event_types.{event_type.name}", _DOWN


def _leads_down(channel: Channel, participants: Mapping[str, Participant]) -> bool:
    return channel.box == "inbox" and participants[channel.participant].kind is ParticipantKind.DEVICE


def _refuse_best_effort(top: Section, path: str, why: str) -> None:
    top.fault(f"{path}.delivery_guarantee", f"best effort means nothing here: {why}", "remove the setting")
