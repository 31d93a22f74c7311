"""Participants: names, what they send and ask, rights of cloud services, channels and routes of replies.

The compiler writes the routes of replies into the compiled form; routers, ledger and audit treat them as any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eventplane.contract.canonical import replies_channel
from eventplane.contract.channels import read_channel
from eventplane.contract.filter_reader import read_filter
from eventplane.contract.model import REPLIES, AddressScope, Participant, ParticipantKind, Place, Route
from eventplane.contract.reader import Section
from eventplane.filters import All, Exact, Filter
from eventplane.names import DOWNLINK, REPLY_TO, REPLY_TYPE
from eventplane.topics import is_group_name


def read_may_subscribe(kind: ParticipantKind, section: Section) -> Filter | None:
    """Return the filter under `may_subscribe`; None where the participant has none."""
    document = section.raw("may_subscribe")
    if document is None:
        return None
    if kind is not ParticipantKind.CLOUD_SERVICE:
        section.fault("may_subscribe", f"a {kind} cannot subscribe", "remove it: add a route instead")
    return read_filter(document, f"{section.path}.may_subscribe", section.problems)


def read_may_address(kind: ParticipantKind, section: Section) -> AddressScope | tuple[str, ...]:
    """Return the scope under `may_address`, or sorted names of groups; `AddressScope.ONE` by default."""
    value = section.raw("may_address")
    if value is None:
        return AddressScope.ONE
    if kind is not ParticipantKind.CLOUD_SERVICE:
        section.fault(
            "may_address",
            f"a {kind} cannot send events to devices",
            "remove it: only cloud services address devices",
        )
    if not isinstance(value, list):
        return section.choice("may_address", AddressScope, AddressScope.ONE) or AddressScope.ONE
    if not value:
        section.fault("may_address", "the list is empty", "name groups, or write `one` or `everyone`")
    for at, each in enumerate(value):
        if not isinstance(each, str) or not is_group_name(each):
            section.fault(
                f"may_address[{at}]",
                f"{each!r} is not the name of a group",
                "use up to 100 letters, digits and '._~-'",
            )
    return tuple(sorted({each for each in value if isinstance(each, str)}))


def read_sends(section: Section) -> tuple[str, ...] | None:
    """Return the sorted types under `sends`; None when it is missing."""
    return _read_types("sends", section)


def read_asks(section: Section) -> tuple[str, ...]:
    """Return the sorted types under `asks`."""
    return _read_types("asks", section) or ()


def _read_types(name: str, section: Section) -> tuple[str, ...] | None:
    listed = section.raw(name)
    if listed is None:
        return None
    if not isinstance(listed, list):
        section.fault(name, "it is not a list", "list the types of its events, or `[]` for none")
        return None
    for at, each in enumerate(listed):
        if not isinstance(each, str) or not each:
            section.fault(f"{name}[{at}]", f"{each!r} is not a type", "name the `type` of events")
        elif "*" in each.removesuffix(".*"):
            section.fault(f"{name}[{at}]", f"{each!r}: it contains `*`", "write `.*` at the end only")
    return tuple(sorted({each for each in listed if isinstance(each, str)}))


def read_participant(name: str, section: Section) -> Participant:
    """Return the participant of `section`; faults go where the section's faults go."""
    kind = section.choice("kind", ParticipantKind, None)
    if kind is None:
        if section.raw("kind") is None:
            section.fault("kind", "it is missing", "write where the participant runs: device_service, ...")
        kind = ParticipantKind.CLOUD_SERVICE
    asks = read_asks(section)
    participant = Participant(
        name=name,
        kind=kind,
        description=section.text("description"),
        inbox=read_channel(name, kind, section.section("inbox")),
        outbox=read_channel(name, kind, section.section("outbox")),
        sends=read_sends(section),
        retired=section.boolean("retired", default=False),
        asks=asks,
        replies=replies_channel(name, kind) if asks else None,
        may_subscribe=read_may_subscribe(kind, section),
        may_address=read_may_address(kind, section),
    )
    if asks and kind is ParticipantKind.DEVICE:
        section.fault("asks", "a device asks nothing by itself", "let a service on it ask")
    if participant.retired and kind is not ParticipantKind.CLOUD_SERVICE:
        section.fault("retired", f"a {kind} has no queues that could hold events", "just remove it")
    section.finish()
    return participant


def with_reply_routes(
    routes: tuple[Route, ...], participants: Mapping[str, Participant], top: Section
) -> tuple[Route, ...]:
    """Return `routes` with those that bring replies; faults go to `top`."""
    written = {each.name: each for each in routes}
    added = reply_routes(participants)
    for name, route in added.items():
        if written.get(name, route) != route:
            top.fault(f"routes.{name}", "the compiler writes this route", "give yours another name")
    for name, route in written.items():
        if route.destination.endswith(f".{REPLIES}") and name not in added:
            top.fault(
                f"routes.{name}.to",
                f"only the compiler leads routes to {route.destination}",
                "lead to an inbox; list the types of requests under `asks`",
            )
    return tuple(each for _, each in sorted({**written, **added}.items()))


def reply_routes(participants: Mapping[str, Participant]) -> dict[str, Route]:
    """Return the routes that the compiler writes, by name."""
    return {each.name: each for each in _reply_routes(participants)}


def _reply_routes(participants: Mapping[str, Participant]) -> Iterator[Route]:
    device = next((each for each in participants.values() if each.kind is ParticipantKind.DEVICE), None)
    for asker in participants.values():
        if asker.replies is None or asker.retired:
            continue
        name = f"replies-to-{asker.name}"
        filter = All((Exact("type", REPLY_TYPE), Exact(REPLY_TO, asker.name)))
        in_cloud = asker.kind is ParticipantKind.CLOUD_SERVICE
        yield Route(name, filter, asker.replies.address, Place.CLOUD if in_cloud else Place.DEVICE)
        if device is None:
            continue
        if in_cloud:
            yield Route(f"{name}-up", filter, device.outbox.address, Place.DEVICE)
        elif leads_down(participants):
            yield Route(f"{name}-down", filter, device.inbox.address, Place.CLOUD)


def leads_down(participants: Mapping[str, Participant]) -> bool:
    """Return whether events go down to devices in a contract with these `participants`."""
    downlink = participants.get(DOWNLINK)
    return downlink is not None and not downlink.retired
