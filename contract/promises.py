"""Compare what two contracts promise: who may send what, which readers get it, how, and what channels keep.

All is decided from the contracts alone, for every event that there could be, so also for what is sent once a
week, or by cloud services, which no stage of a roll-out tries. A filter is narrower if there is an event that
only the other one takes (`filter_search`); where that is undecided it is not, and gates see its events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import inf
from typing import Final, NamedTuple

from contract.filter_search import Known, at_routers, completed, search
from contract.loader import payload_check
from contract.rehearsal import LIFETIME_S
from contract.rollout import StageFinding
from eventplane.account import inbox_of, reader_of
from eventplane.alarm_floor import floor_problems, weaknesses
from eventplane.attributes import Attributes, AttributeValue
from eventplane.contract import (
    AddressScope,
    Channel,
    Contract,
    DeliveryGuarantee,
    Forward,
    Ordering,
    Participant,
    Place,
    Priority,
    Route,
    SchemaCheck,
    Webhook,
    names_type,
)
from eventplane.contract.canonical import canonical_bytes
from eventplane.contract.mapping import TopicMapping
from eventplane.contract.possibilities import of_type, possible
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Sender, write_event
from eventplane.expiry import channel_expiry_ms
from eventplane.filters import All, Any, Filter
from eventplane.guarantee import guarantee_of_type
from eventplane.names import REPLY_TYPE, SENDER_DEVICE, SENDER_SERVICE
from eventplane.sending import SendingRights

RETENTION_S: Final = 86_400
"""The shortest retention that a queue may newly have, seconds. Ours: its readers come back the next day."""

GATHERING_MS: Final = 30_000
"""Events may newly wait twice as long for others, and so many milliseconds more. Ours."""

_ALWAYS: Final = All(())


def less_promised(old: Contract, new: Contract) -> list[StageFinding]:
    """Return what `new` promises less than `old`, each once."""
    gates = (
        _sent(old, new),
        _floor(old, new),
        _channels(old, new),
        _participants(old, new),
        _payloads(old, new),
    )
    return [*{each.key: each for gate in gates for each in gate}.values()]


# What is sent, and who reads it


class _Sent(NamedTuple):
    """The events of `type` that `sender` sends, which a router of `place` decides, under one contract."""

    contract: Contract
    sender: Participant
    type: str
    place: Place

    @property
    def priority(self) -> Priority:
        declared = self.contract.event_types.get(self.type)
        return (declared and declared.priority) or self.sender.outbox.priority

    @property
    def comes_up(self) -> bool:
        return self.sender.kind.is_on_device and self.place is Place.CLOUD

    @property
    def fixed(self) -> dict[str, AttributeValue | None]:
        """The attributes that all of them have; at home none has the device's name."""
        known: dict[str, AttributeValue | None] = {**of_type(self.type), SENDER_SERVICE: self.sender.name}
        return known if self.comes_up else {**known, SENDER_DEVICE: None}

    def readers(self) -> Mapping[str, list[Route]]:
        """Return the routes to each reader, of which the uplink is one."""
        found: defaultdict[str, list[Route]] = defaultdict(list)
        for route in self.contract.routes_at(self.place):
            is_retired = self.contract.participants[reader_of(route.destination)].retired
            if not is_retired and True in possible(route.filter, self.fixed):
                found[inbox_of(route.destination, route.name)].append(route)
        return found

    def comes(self) -> Filter:
        """Return the filter of those that come to the place; a forwarder's own reports always do."""
        if len(self.over) == 1 or self.sender is self.contract.device:
            return _ALWAYS
        before = Place.DEVICE if self.comes_up else Place.CLOUD
        to = self.over[-1].address
        return _either(each for each in self.contract.routes_at(before) if each.destination == to)

    @property
    def over(self) -> tuple[Channel, ...]:
        """The channels over which they come to the place."""
        device, outbox = self.contract.device, self.sender.outbox
        if self.sender.kind.is_on_device:
            return (outbox, device.outbox) if self.comes_up else (outbox,)
        return (outbox,) if self.place is Place.CLOUD else (outbox, device.inbox)

    def guarantee(self, routes: Sequence[Route]) -> DeliveryGuarantee:
        over = self.over[-1]
        kinds = {guarantee_of_type(self.contract, self.type, False, over, each) for each in routes}
        strong = DeliveryGuarantee.AT_LEAST_ONCE
        return strong if strong in kinds else DeliveryGuarantee.BEST_EFFORT

    def expiry_s(self, routes: Sequence[Route]) -> float:
        bound_ms = channel_expiry_ms(*self.over, self.contract.channel(routes[0].destination))
        return inf if bound_ms is None else bound_ms / 1_000


def _either(routes: Iterable[Route]) -> Filter:
    return Any(tuple(each.filter for each in routes))


def _sent(old: Contract, new: Contract) -> Iterator[StageFinding]:
    before, after = SendingRights(old), SendingRights(new)
    named = (name for each in old.participants.values() for name in each.named_types if name[-1] != "*")
    for type in dict.fromkeys((*old.event_types, *named)):
        # Everybody may send replies and dead letters: one stands for all.
        is_open = type in (DEAD_LETTER_TYPE, REPLY_TYPE)
        for sender in (old.device,) if is_open else before.senders(type):
            was = _Sent(old, sender, type, Place.DEVICE)
            is_alarm = was.priority is Priority.URGENT
            if not after.may_send(Sender(service=sender.name), type):
                text = f"{sender.name} may not send {type} any more"
                yield StageFinding(f"right:{type}:{sender.name}", text, is_alarm)
                continue
            becomes = _Sent(new, new.participants[sender.name], type, Place.DEVICE)
            if becomes.priority.rank > was.priority.rank:
                text = f"{type} of {sender.name} are {becomes.priority}, before {was.priority}"
                yield StageFinding(f"priority:{type}", text, is_alarm)
            for place in Place:
                yield from _less_read(was._replace(place=place), becomes._replace(place=place), is_alarm)


def _less_read(was: _Sent, becomes: _Sent, is_alarm: bool) -> Iterator[StageFinding]:
    type, ways = was.type, becomes.readers()
    if was.comes_up and ({*ways} - {*was.readers()}) & {was.contract.device.inbox.address}:
        yield StageFinding(f"down:{type}", f"{type} of devices would go down to devices, which are refused")
    for to, routes in was.readers().items():
        on = f"{type}:{to}"
        kept = ways.get(to, [])
        lost = _only_by(was, routes, kept)
        if lost is not None:
            lose = "do not all reach" if kept else "do not reach"
            such = ", ".join(
                f"{each} {value!r}" for each, value in sorted(lost.items()) if each not in was.fixed
            )
            text = f"{type} of {was.sender.name} {lose} {to} any more" + (such and f", if {such}")
            yield StageFinding(f"reader:{on}", text, is_alarm)
        if not kept:
            continue
        strong, weak = was.guarantee(routes), becomes.guarantee(kept)
        if strong is not weak is DeliveryGuarantee.BEST_EFFORT:
            yield StageFinding(f"guarantee:{on}", f"{type} for {to} are {weak}, before {strong}", is_alarm)
        before_s, after_s = was.expiry_s(routes), becomes.expiry_s(kept)
        if after_s < min(before_s, LIFETIME_S):
            text = f"{type} for {to} expire after {after_s:.0f} s, before after {before_s:.0f} s"
            yield StageFinding(f"expiry:{on}", text, is_alarm)
        down, goes_down = was.contract.downlink(type), becomes.contract.downlink(type)
        if to == was.contract.device.inbox.address and down is not goes_down:
            yield StageFinding(f"down:{type}", f"{type} go down as {goes_down}, before as {down}", is_alarm)


def _only_by(was: _Sent, routes: Sequence[Route], kept: Sequence[Route]) -> Attributes | None:
    """Return an event that `routes` take and `kept` do not; None for none, or where that is undecided."""
    comes, before, after = was.comes(), _either(routes), _either(kept)
    if {each.filter for each in routes} <= {each.filter for each in kept}:
        return None

    def answers(known: Known) -> frozenset[bool]:
        """Return whether an event keeps its reader, or had none."""
        at_home = {**known, SENDER_DEVICE: None}
        sides = possible(comes, at_home), possible(before, known), possible(after, known)
        return frozenset(not (a and b) or c for a in sides[0] for b in sides[1] for c in sides[2])

    def holds(event: Attributes) -> bool:
        if (seen := at_routers(event, comes_up=was.comes_up)) is None:
            return False
        at_home, there = seen
        return comes.matches(at_home) and before.matches(there) and not after.matches(there)

    return search((comes, before, after), answers, holds, was.fixed).event


# Channels and participants


_LIMITS: Final = ("max_receives", inf), ("receipts_percent", inf)


def _floor(old: Contract, new: Contract) -> Iterator[StageFinding]:
    """What a device refuses whose image has the contract of today."""
    for each in floor_problems(old, new):
        yield StageFinding(f"floor:{each.path}", f"devices refuse it: {each}", True)


def _channels(old: Contract, new: Contract) -> Iterator[StageFinding]:
    others = {each.address: each for each in new.channels}
    for before in old.channels:
        if (after := others.get(before.address)) is None:
            continue
        is_alarm = before.priority is Priority.URGENT
        for setting, text in _settings(before, after):
            yield StageFinding(f"setting:{before.address}:{setting}", f"{before.address}: {text}", is_alarm)


def _settings(before: Channel, after: Channel) -> Iterator[tuple[str, str]]:
    """Yield the settings by which a channel keeps less, and why; what deliveries have is not looked at."""
    for setting, text in weaknesses(before, after):
        is_less = setting in ("when_full", "priority") or (
            setting in ("ordering", "receipts") and bool(getattr(before, setting))
        )
        if is_less and getattr(before, setting) != Ordering.NONE:
            yield setting, text
    for setting, least in (("retention_s", RETENTION_S), ("give_up_after_s", LIFETIME_S), *_LIMITS):
        was, becomes = getattr(before, setting) or inf, getattr(after, setting) or inf
        if becomes < min(was, least):
            yield setting, f"{setting} is {becomes:g}, before {was:g}"
    if after.batching_delay_ms > 2 * before.batching_delay_ms + GATHERING_MS:
        yield (
            "batching_delay_ms",
            f"events wait {after.batching_delay_ms} ms, before {before.batching_delay_ms}",
        )
    if before.forward is Forward.ALL is not after.forward:
        yield "forward", "events that no reader is known to want stay in the home"
    yield from _posting(before.webhook, after.webhook)


def _posting(hook: Webhook | None, other: Webhook | None) -> Iterator[tuple[str, str]]:
    if hook is None or other is None:
        if hook is not other:
            yield "webhook", "another program reads it"
        return
    if hook.mode is not other.mode:
        yield "webhook.mode", f"events are posted {other.mode}, before {hook.mode}"
    for setting in ("timeout_s", "requests_per_minute"):
        was, becomes = getattr(hook, setting) or inf, getattr(other, setting) or inf
        if becomes < was:
            yield f"webhook.{setting}", f"{setting} is {becomes:g}, before {was:g}"


def _participants(old: Contract, new: Contract) -> Iterator[StageFinding]:
    for before in old.participants.values():
        if (after := new.participants.get(before.name)) is None:
            continue  # what it sends and reads is found
        name = before.name
        for each in before.asks:
            if not names_type(after.asks, each):
                yield StageFinding(f"right:{each}:{name}", f"{name} may not ask {each} any more")
        if not _addresses(before.may_address) <= _addresses(after.may_address):
            yield StageFinding(
                f"address:{name}", f"{name} may address {after.may_address}, before {before.may_address}"
            )
        own = (each for each in new.routes if each.destination == after.inbox.address)
        wide, narrow = before.may_subscribe, after.may_subscribe or _either(own)
        if wide and wide != narrow and any(_is_narrower(wide, narrow, each) for each in old.event_types):
            yield StageFinding(f"subscribe:{name}", f"{name} may subscribe to less")
        for mapping in before.mappings:
            is_alarm = mapping.is_urgent(old)
            for member, text in _mapped(mapping, after.mappings):
                key = f"mapping:{name}:{mapping.name}{member and f':{member}'}"
                yield StageFinding(key, f"messages {mapping.topic} of {name}: {text}", is_alarm)


_EVERYONE: Final = "*"


def _addresses(scope: AddressScope | tuple[str, ...]) -> frozenset[str]:
    """Return the groups that may be addressed; one device is none."""
    if isinstance(scope, tuple):
        return frozenset(scope)
    return frozenset({_EVERYONE} if scope is AddressScope.EVERYONE else ())


def _is_narrower(wide: Filter, narrow: Filter, type: str) -> bool:
    def answers(known: Known) -> frozenset[bool]:
        return frozenset(not a or b for a in possible(wide, known) for b in possible(narrow, known))

    def holds(event: Attributes) -> bool:
        event = completed(event)
        return wide.matches(event) and not narrow.matches(event)

    return search((wide, narrow), answers, holds, of_type(type)).event is not None


def _mapped(before: TopicMapping, others: Sequence[TopicMapping]) -> Iterator[tuple[str, str]]:
    """Yield what a mapping makes no more, or otherwise; what it makes besides is not looked at."""
    same = [each for each in others if each.filter == before.filter]
    if not same:
        yield "", "they become no events any more"
        return
    (after,) = same
    for member in ("type", "payload", "id", "when"):
        was, becomes = getattr(before, member), getattr(after, member)
        if _text(was) != _text(becomes):
            yield member, f"{member} is {_text(becomes)}, before {_text(was)}"
    if (before.data is None) is not (after.data is None):
        yield "data", "the whole payload is the data" if after.data is None else "the payload is not the data"
    for member in ("attributes", "data"):
        values, now = getattr(before, member) or {}, getattr(after, member) or {}
        for name, value in values.items():
            if name not in now or _text(now[name]) != _text(value):
                yield f"{member}.{name}", f"{name} is {_text(now.get(name))}, before {_text(value)}"


def _text(value: object) -> str:
    # To Python 1 is true.
    return canonical_bytes(value).decode()


# Payloads


_CHECKS: Final = (SchemaCheck.NONE, SchemaCheck.KNOWN, SchemaCheck.STRICT)


def _payloads(old: Contract, new: Contract) -> Iterator[StageFinding]:
    """Alarms that are checked more than before, and payloads that are examples in `old` and no more valid."""
    checks = payload_check(old), payload_check(new)
    for name, before in old.event_types.items():
        after = new.event_types.get(name)
        if after is None or after == before:
            continue
        if before.priority is Priority.URGENT and _CHECKS.index(after.schema_check) > _CHECKS.index(
            before.schema_check
        ):
            yield StageFinding(f"payload:{name}", f"payloads of {name} are checked that were not", True)
            continue
        for id, schema in before.schemas.items():
            # The first is that of events without a name of one.
            names = ({"dataschema": id}, {}) if id == next(iter(before.schemas)) else ({"dataschema": id},)
            for example, named in product(schema.get("examples", ()), names):
                event = write_event(completed({"type": name, **named}), example)
                if checks[0](event) is None and (wrong := checks[1](event)):
                    text = f"payloads of {name} are refused that were valid: {wrong.detail}"
                    yield StageFinding(f"payload:{name}", text, before.priority is Priority.URGENT)
