"""Participants: names, what they send and ask, rights of cloud services, channels and routes of replies.

The compiler writes the routes of replies into the compiled form; routers, ledger and audit treat them as any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from eventplane.contract import REPLIES, AddressScope, Participant, ParticipantKind, Place, Route
from eventplane.contract.canonical import replies_channel
from eventplane.contract.channels import read_channel
from eventplane.contract.filter_reader import read_filter
from eventplane.contract.mapping_reader import Mappings
from eventplane.contract.reader import Flag, Only, Section, Setting, Text, Types
from eventplane.filters import All, Exact
from eventplane.names import DOWNLINK, REPLY_TO, REPLY_TYPE
from eventplane.topics import GROUP, is_group_name


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOf(Setting):
    """A setting that is a filter."""

    default: Any = None

    def read(self, name: str, section: Section, default: Any = None) -> Any:
        document = section.raw(name)
        return (
            default if document is None else read_filter(document, f"{section.path}.{name}", section.problems)
        )

    def schema(self) -> dict[str, Any]:
        return {"$ref": "#/$defs/filter"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceScope(Setting):
    """A setting that is a scope of devices: a word, or a list of groups, which is read sorted."""

    default: Any = None

    def read(self, name: str, section: Section, default: Any = None) -> Any:
        value = section.raw(name)
        if not isinstance(value, list):
            return default if value is None else section.choice(name, AddressScope, AddressScope.ONE)
        if not value:
            section.fault(name, "the list is empty", "name groups, or write `one` or `everyone`")
        for at, each in enumerate(value):
            if not isinstance(each, str) or not is_group_name(each):
                problem = f"{each!r} is not the name of a group"
                section.fault(f"{name}[{at}]", problem, "use up to 100 letters, digits and '._~-'")
        return tuple(sorted({each for each in value if isinstance(each, str)}))

    def schema(self) -> dict[str, Any]:
        groups = {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "pattern": f"^{GROUP.pattern}$"},
        }
        return {"anyOf": [{"enum": list(AddressScope)}, groups]}


_CLOUD: Final = (ParticipantKind.CLOUD_SERVICE,)

PARTICIPANT: Final[dict[str, Setting]] = {
    "description": Text(meaning="one sentence for people"),
    "sends": Types(
        default=None,
        meaning="the types of its events, `org.example.*` for a family, `[]` for none; without it, the types "
        "that no participant names",
    ),
    "asks": Types(
        default=(),
        meaning="the types of its requests; it gets a channel for their replies",
        only=Only(
            (ParticipantKind.DEVICE_SERVICE, *_CLOUD),
            "",
            "a device asks nothing by itself",
            "let a service on it ask",
        ),
    ),
    "retired": Flag(
        default=False,
        meaning="it only empties its queues; no route leads to it",
        only=Only(_CLOUD, "", "only a cloud service has queues that could hold events", "just remove it"),
    ),
    "may_subscribe": FilterOf(
        meaning="the events that it may subscribe to; without it, those of its routes",
        only=Only(_CLOUD, "", "only a cloud service subscribes", "remove it: add a route instead"),
    ),
    "may_address": DeviceScope(
        meaning="the devices that it may send to: `one` at a time (default), a list of groups, or `everyone`",
        only=Only(
            _CLOUD,
            "",
            "only a cloud service sends events to devices",
            "remove it: only cloud services address devices",
        ),
    ),
    "mappings": Mappings(
        meaning="how messages of programs that know no CloudEvents, on their own topics, become its events",
        only=Only(
            (ParticipantKind.DEVICE_SERVICE,),
            "",
            "only programs at the home's broker are mapped",
            "give them to a device_service",
        ),
    ),
}
"""The members of a participant beside its kind and its channels, by name."""


def read_participant(name: str, section: Section) -> Participant:
    """Return the participant of `section`; faults go where the section's faults go."""
    kind = section.choice("kind", ParticipantKind, None)
    if kind is None:
        if section.raw("kind") is None:
            section.fault("kind", "it is missing", "write where the participant runs: device_service, ...")
        kind = ParticipantKind.CLOUD_SERVICE
    values = {each: setting.read_of(each, section, kind) for each, setting in PARTICIPANT.items()}
    values["may_address"] = values["may_address"] or AddressScope.ONE
    participant = Participant(
        name=name,
        kind=kind,
        inbox=read_channel(name, kind, section.section("inbox")),
        outbox=read_channel(name, kind, section.section("outbox")),
        replies=replies_channel(name, kind) if values["asks"] else None,
        **values,
    )
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
