"""The setting `delivery_guarantee` of channels, routes and event types, and where it can promise nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from eventplane.contract.model import Channel, EventType, Participant, Route
from eventplane.contract.reader import Section
from eventplane.contract.vocabulary import DeliveryGuarantee, ParticipantKind
from eventplane.names import OWN_SERVICES, SUBSCRIBERS

SETTING: Final = "delivery_guarantee"


def read_guarantee(section: Section) -> DeliveryGuarantee | None:
    """Return what the section declares, None where nothing; faults go where the section's faults go."""
    if section.raw(SETTING) != "exactly_once":
        return section.choice(SETTING, DeliveryGuarantee, None)
    section.fault(
        SETTING,
        "no transport delivers exactly once",
        "write `at_least_once`; a reader that drops repeated `source` and `id` handles each event once",
    )
    return None


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
                f"{path}.{SETTING}",
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
    # Not above: the module reads contracts, which this package brings.
    from eventplane.sending import PLANE_TYPES

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
    top.fault(f"{path}.{SETTING}", f"best effort means nothing here: {why}", "remove the setting")
