"""Rehearse a contract on events that there were: what changes for each inbox if it replaces another one.

Both contracts judge the same events, in the order of the routers' checks and by the same functions: the
sender's rights, the payload, the routes, interest, expiry. What no contract decides, such as when an event
was decided, is taken from the records. Of events that devices sent the archive has the text, so that all is
known. Of those of cloud services it has the ledger's rows: what a filter asks beside them is not known.

Most events of a day differ in nothing that a route depends on: each combination of the values that filters
look at is judged once (docs/adr/0057-routes-by-the-core.md).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from eventplane.account import inbox_of
from eventplane.attributes import KNOWN, AttributeValue
from eventplane.contract import (
    Channel,
    Contract,
    DeliveryGuarantee,
    Ordering,
    Place,
    Priority,
    Route,
    SchemaCheck,
)
from eventplane.contract.canonical import canonical_bytes
from eventplane.contract.possibilities import of_type, possible
from eventplane.contract.subscription import (
    HTTP,
    Subscription,
    subscribable,
    subscribed_routes,
    subscription_names,
    with_subscriptions,
)
from eventplane.dead_letter import DEAD_LETTER_TYPE, ROUTER_SOURCE, Refusal, dead_letter, letter_id
from eventplane.device_reports import REPORT_PREFIX
from eventplane.envelope import THE_PLANE, Envelope, Sender, parse_sender, sender_in_frame
from eventplane.errors import EnvelopeError
from eventplane.expiry import channel_expiry_ms, why_over
from eventplane.filter_texts import to_document
from eventplane.filters import All, Filter, attribute_names
from eventplane.guarantee import BY_CHANNEL, guarantee_of
from eventplane.hops import ROUTER_HOPS, hops_of, sent_on
from eventplane.interest import is_always_wanted, is_wanted
from eventplane.interest.announcement import Announcement, with_interest
from eventplane.limits import MAX_EVENT_BYTES
from eventplane.names import PLANE_CLIENT, SENDER_DEVICE, SENDER_SERVICE, SUBSCRIBERS
from eventplane.reasons import Outcome, Reason
from eventplane.router import Router
from eventplane.sending import SendingRights, stamp_sender
from eventplane.values import timestamp_ms, timestamp_of_ms

EXAMPLES: Final = 3
"""Events that are named for a change. Ours."""

MAX_COMBINATIONS: Final = 20_000
"""Most combinations of values that are remembered. Ours: some 40 MB."""

LIFETIME_S: Final = 3_600
"""The shortest lifetime that a contract may newly give to events, seconds: what a reader depends on may be
down for an hour (docs/adr/0044-giving-up.md)."""

PAYLOAD_REASONS: Final = (Reason.PAYLOAD_INVALID, Reason.UNKNOWN_DATASCHEMA)

_LARGE: Final = MAX_EVENT_BYTES - 2_000
"""From so many characters on the stamps of the plane may make an event too large."""

PayloadCheck = Callable[[Envelope], Refusal | None]
"""Returns why the cloud refuses the payload of an event (`contract.loader.payload_check`)."""


class Tapped(NamedTuple):
    """An event that the device `client` sent; times in Unix milliseconds.

    By the records it was decided at `decided_at_ms`, and its payload `is_refused` by the contract in force.
    """

    event: Envelope
    client: str
    accepted_at_ms: int
    expires_at_ms: int | None
    decided_at_ms: int
    is_refused: bool = False

    @property
    def example(self) -> Example:
        return Example(str(sender_in_frame(self.client, self.event.attributes)), *self.event.claim)


class Sent(NamedTuple):
    """A row of the ledger of an event that entered in the cloud, decided `delay_ms` after it entered."""

    type: str
    source: str
    id: str
    sender: str
    entered_by: str
    priority: str
    destination: str | None
    route: str | None
    is_delivered: bool
    delay_ms: int


class Example(NamedTuple):
    """The identity of an event."""

    sender: str
    source: str
    id: str


class Effect(StrEnum):
    """The kind of a change."""

    FEWER = "fewer"
    MORE = "more"
    REFUSED = "refused"
    ALLOWED = "allowed"
    EXPIRY = "expiry"
    RETENTION = "retention"
    ORDER = "order"
    GUARANTEE = "guarantee"
    PRIORITY = "priority"


class Change(NamedTuple):
    """A change for events of `type` on their way `to` an inbox (`account.inbox_of`), `before` and `after`.

    Of `REFUSED` and `ALLOWED`, `to` is the sender's outbox. It `is_alarm` where the events are urgent by one
    of the contracts. `is_reader`: the reader gets none of them any more, or got none before.
    """

    kind: Effect
    to: str
    type: str
    before: str
    after: str
    is_alarm: bool
    is_reader: bool = False

    @property
    def harm(self) -> str | None:
        """Return how events lose their reader or are worth less by it; None if neither."""
        kind, before, after, to = self.kind, self.before, self.after, self.to
        if kind is Effect.FEWER and self.is_reader:
            return f"do not reach {to}: {after}"
        if kind is Effect.REFUSED:
            return f"are refused: {after}"
        if verb := _ENDS.get(kind):
            is_short = after != _NEVER and int(after.split()[0]) < LIFETIME_S
            is_shorter = is_short and (before == _NEVER or int(before.split()[0]) > int(after.split()[0]))
            return f"for {to} {verb} after {after}, before after {before}" if is_shorter else None
        is_worse = _BEST.get(kind) == before
        if kind is Effect.PRIORITY:
            is_worse = Priority(after).rank > Priority(before).rank
        return f"for {to} are {after}, before {before}" if is_worse else None


_NEVER: Final = "never"
_ENDS: Final = {Effect.EXPIRY: "expire", Effect.RETENTION: "are deleted"}
_BEST: Final = {Effect.GUARANTEE: DeliveryGuarantee.AT_LEAST_ONCE, Effect.ORDER: Ordering.SOURCE}


class End(NamedTuple):
    """The end of an event, or of the dead letter about it, on one route."""

    type: str
    route: str
    destination: str
    place: Place
    outcome: Outcome
    reason: str | None
    guarantee: DeliveryGuarantee
    expiry_ms: int | None
    ordering: Ordering
    retention_s: int

    @property
    def reader(self) -> str:
        return inbox_of(self.destination, self.route)


class EventEnds(NamedTuple):
    """The ends of an event by a contract; `refused` is why the plane refuses it.

    A route of the device `goes_up` with it.
    """

    priority: Priority
    ends: tuple[End, ...]
    refused: str | None = None
    goes_up: bool = False


class Judge:
    """Judges events by one `contract`, with the core's functions in the order of the routers."""

    def __init__(self, contract: Contract, check: PayloadCheck) -> None:
        self.contract = contract
        self.rights = SendingRights(contract)
        self._check = check
        self._routers = {place: Router(contract, place) for place in Place}
        self._uplink = contract.device.outbox

    def ruling(self, tapped: Tapped, *, checks_payload: bool, is_up: bool) -> EventEnds:
        """Return what becomes of an event.

        Its payload is checked where `checks_payload`, else the record counts. It `is_up` in the cloud,
        whatever the routes of the device say.
        """
        event = tapped.event
        sender = sender_in_frame(tapped.client, event.attributes)
        try:
            stamped = _stamped(event, sender)
        except EnvelopeError as error:
            if error.reason == Reason.HOP_LIMIT and event.type == DEAD_LETTER_TYPE:
                # A dead letter is not the subject of another one.
                return EventEnds(self._priority(event), (), error.reason)
            return self._refused(tapped, sender, Refusal(error.reason, error.detail))
        if wrong := self.rights.refusal(stamped):
            return self._refused(tapped, sender, wrong)
        outbox = self.outbox(sender.service)
        home = self._home(event, sender)
        local = tuple(
            self.end(event, each, outbox) for each in home if each.destination != self._uplink.address
        )
        # A forwarder sends its own reports up, also without a route.
        is_report = not home and bool(sender.device) and sender.service == self.contract.device.name
        goes_up = is_report or len(local) < len(home)
        known = EventEnds(self._priority(event), local, None, goes_up)
        if not (goes_up or is_up):
            return known
        if checks_payload:
            wrong = self._check(stamped)
        elif tapped.is_refused:
            wrong = Refusal(Reason.PAYLOAD_INVALID, "as it was")
        if wrong:
            letters = self._refused(tapped, sender, wrong)
            return known._replace(ends=(*local, *letters.ends), refused=letters.refused)
        return known._replace(ends=(*local, *self._cloud(tapped, stamped, sender)))

    def outbox(self, name: str) -> Channel:
        """Return the outbox of the participant `name`; the uplink for what is none."""
        participant = self.contract.participants.get(name)
        return participant.outbox if participant else self._uplink

    def end(self, event: Envelope, route: Route, over: Channel) -> End:
        """Return the end of an event that came `over` a channel and is delivered on a route."""
        channel = self.contract.channel(route.destination)
        return End(
            event.type,
            route.name,
            route.destination,
            route.place,
            Outcome.DELIVERED,
            None,
            guarantee_of(self.contract, event, over, route),
            channel_expiry_ms(over, channel),
            channel.ordering,
            channel.retention_s,
        )

    def _priority(self, event: Envelope) -> Priority:
        return self.contract.priority(event, self._uplink)

    def _home(self, event: Envelope, sender: Sender) -> tuple[Route, ...]:
        """Return the routes of the device; none of what no service in the home has sent."""
        service = self.contract.participants.get(sender.service)
        if service is None or not service.kind.is_on_device:
            return ()
        return self._routers[Place.DEVICE].route(event)

    def _cloud(self, tapped: Tapped, stamped: Envelope, sender: Sender) -> Iterator[End]:
        priority = self._priority(stamped)
        times = tapped.expires_at_ms, tapped.decided_at_ms, tapped.accepted_at_ms
        for route in self._routers[Place.CLOUD].route(stamped):
            end = self.end(stamped, route, self._uplink)
            channel = self.contract.channel(route.destination)
            if channel is self.contract.device.inbox and sender.device:
                refusal = Refusal(Reason.SENDER_NOT_ALLOWED, "only cloud services send to devices")
                yield end._replace(outcome=Outcome.DEAD_LETTERED, reason=refusal.reason)
                yield from self._letter(tapped, sender, refusal, route.name)
            elif not is_wanted(route.interest, stamped, priority):
                yield end._replace(outcome=Outcome.NO_INTEREST, reason=Reason.NO_INTEREST)
            elif why := why_over(*times, self._uplink, channel):
                yield end._replace(outcome=Outcome.EXPIRED, reason=why)
            else:
                yield end

    def _refused(self, tapped: Tapped, sender: Sender, refusal: Refusal) -> EventEnds:
        letters = tuple(self._letter(tapped, sender, refusal))
        return EventEnds(self._priority(tapped.event), letters, refusal.reason)

    def _letter(
        self, tapped: Tapped, sender: Sender, refusal: Refusal, route: str | None = None
    ) -> Iterator[End]:
        event = tapped.event
        letter = dead_letter(
            id=letter_id(str(sender), *event.claim),
            source=ROUTER_SOURCE,
            time=timestamp_of_ms(tapped.decided_at_ms),
            refusal=refusal,
            channel=self._uplink.address,
            original=event.json.encode(),
            contract_version=self.contract.version,
            route=route,
            event=event,
            sender=sender,
        )
        stamped = stamp_sender(letter, THE_PLANE)
        for each in self._routers[Place.CLOUD].route(stamped):
            yield self.end(stamped, each, self._uplink)


def _over(end: End) -> End:
    """Return the end of what expired at home: nothing of it comes up."""
    return end._replace(outcome=Outcome.EXPIRED, reason=BY_CHANNEL) if end.place is Place.CLOUD else end


def _stamped(event: Envelope, sender: Sender) -> Envelope:
    """Return `event` as the cloud routes it. Raises `EnvelopeError` where it goes no further."""
    stamped = stamp_sender(event, sender)
    if stamped.bytes > MAX_EVENT_BYTES:
        raise EnvelopeError(Reason.TOO_LARGE, f"{stamped.bytes} bytes with its sender's name")
    if hops_of(stamped):
        sent_on(stamped)
    return stamped


@dataclass
class RehearsalTally:
    """The sum over some events: deliveries before and after by inbox and type, changes with examples.

    `unknown` counts deliveries by inbox, type and whether they are alarms of which no record says whether
    there would be one.
    """

    events: int = 0
    deliveries: defaultdict[tuple[str, str], list[int]] = field(
        default_factory=lambda: defaultdict[tuple[str, str], list[int]](_none)
    )
    changes: Counter[Change] = field(default_factory=Counter)
    examples: defaultdict[Change, list[Example]] = field(default_factory=lambda: defaultdict(list))
    unknown: Counter[tuple[str, str, bool]] = field(default_factory=Counter)

    def add(self, other: RehearsalTally) -> None:
        """Add what another one has."""
        self.events += other.events
        for inbox, (before, after) in other.deliveries.items():
            self.delivered(*inbox, before, after)
        for change, count in other.changes.items():
            self.changed(change, count, other.examples[change])
        self.unknown.update(other.unknown)

    def delivered(self, inbox: str, type: str, before: int, after: int) -> None:
        """Count deliveries."""
        counts = self.deliveries[inbox, type]
        counts[0] += before
        counts[1] += after

    def changed(self, change: Change, count: int, examples: Sequence[Example]) -> None:
        """Count a change of some events."""
        self.changes[change] += count
        kept = self.examples[change]
        kept += [each for each in examples if each not in kept][: EXAMPLES - len(kept)]

    @property
    def harmful(self) -> list[Change]:
        """The changes by which an alarm loses a reader or is worth less."""
        return [each for each in self.changes if each.is_alarm and each.harm]

    @property
    def unknown_alarms(self) -> int:
        """The number of deliveries of alarms that are not known."""
        return sum(count for (*_, is_alarm), count in self.unknown.items() if is_alarm)


def _none() -> list[int]:
    return [0, 0]


@dataclass(slots=True)
class _Combination:
    rulings: tuple[EventEnds, EventEnds]
    changes: tuple[Change, ...]
    count: int = 0
    examples: list[Example] = field(default_factory=list)


@dataclass(slots=True)
class _Way:
    """A way of an event in the ledger to a reader: by `filters`, which give it one of `answers`."""

    end: End
    answers: frozenset[bool]
    filters: set[Filter]


class _Ways(NamedTuple):
    """The ways of an event in the ledger, by reader; `refused` is why its sender may not send it."""

    to: Mapping[str, _Way]
    refused: str | None


class Rehearsal:
    """Judges events by the contracts `old` and `new`, and sums up."""

    def __init__(self, old: Contract, new: Contract, check: Callable[[Contract], PayloadCheck]) -> None:
        self._judges = Judge(old, check(old)), Judge(new, check(new))
        self._tally = RehearsalTally()
        routes = [*old.routes, *new.routes]
        filters = [filter for each in routes for filter in (each.filter, each.interest) if filter is not None]
        self._looked_at = frozenset[str]().union(*map(attribute_names, filters))
        # By these rights, priority and guarantee are decided.
        own = {"type", "severitynumber", "deliveryguarantee", SENDER_SERVICE}
        self._names = sorted((self._looked_at | own) - {SENDER_DEVICE})
        self._is_typed = not KNOWN.issuperset(self._names)
        self._combinations: dict[tuple[object, ...], _Combination] = {}
        types = old.event_types.keys() | new.event_types.keys()
        self._rechecked = {each for each in types if _payload_rule(old, each) != _payload_rule(new, each)}
        self._checked = {each for each in types if _payload_rule(new, each)}
        services = {"", *old.participants, *new.participants}
        self._shorter_ms = {each: self._shorter_at_home_ms(each) for each in services}
        self._ways: dict[tuple[str, ...], tuple[_Ways, _Ways]] = {}
        self._gained: set[tuple[str, Example]] = set()
        self._doubted: set[tuple[str, Example]] = set()

    def take(self, tapped: Tapped) -> None:
        """Judge an event that a device sent."""
        if not self._is_plain(tapped):
            self._sum(*self._judged(tapped), 1, [tapped.example])
            return
        attributes, event_type = tapped.event.attributes, tapped.event.type
        key: tuple[object, ...] = tuple(map(attributes.get, self._names))
        if self._is_typed:
            key += tuple(map(type, key))
        is_known = tapped.client == PLANE_CLIENT or SENDER_DEVICE in self._looked_at
        key = tapped.client if is_known else "", *key
        found = self._combinations.get(key)
        if found is None:
            if len(self._combinations) == MAX_COMBINATIONS:
                self._settle()
            found = self._combinations[key] = _Combination(*self._judged(tapped))
        if found.rulings[0].refused and event_type in self._checked:
            self._sum(*self._judged(tapped), 1, [tapped.example])
            return
        found.count += 1
        if found.changes and len(found.examples) < EXAMPLES:
            found.examples.append(tapped.example)

    def take_sent(self, row: Sent) -> None:
        """Judge a row of the ledger of an event that entered in the cloud."""
        source, id = (getattr(row, name) if name in self._looked_at else "" for name in ("source", "id"))
        key = row.type, row.sender, row.entered_by, row.priority, source, id
        if key not in self._ways:
            if len(self._ways) == MAX_COMBINATIONS:
                self._ways.clear()
            self._ways[key] = self._judge_ways(0, row), self._judge_ways(1, row)
        old, new = self._ways[key]
        example = Example(row.sender, row.source, row.id)
        came_to = None if row.destination is None else inbox_of(row.destination, row.route)
        if row.is_delivered and row.destination is not None and came_to is not None:
            if came_to in new.to and _may_gain(old, new, came_to):
                # The rows of its other deliveries do not say that it came here as well.
                self._gained.add((came_to, example))
                if (came_to, example) in self._doubted:
                    self._doubted.remove((came_to, example))
                    self._doubt(row, came_to, -1)
            self._tally.delivered(row.destination, row.type, 1, self._kept(row, old, new, came_to, example))
        for to, way in new.to.items():
            if to != came_to and (to, example) not in self._gained and _may_gain(old, new, to):
                self._gained.add((to, example))
                is_new = to not in old.to or row.destination is None
                if is_new and way.answers == _ALWAYS and row.type not in self._rechecked:
                    self._change(row, Effect.MORE, to, old.refused or _NO_ROUTE, way.end.route, example)
                    self._tally.delivered(way.end.destination, row.type, 0, 1)
                else:
                    self._doubted.add((to, example))
                    self._doubt(row, to)

    def tally(self) -> RehearsalTally:
        """Return the sum over all events since the last call."""
        self._settle()
        tally, self._tally = self._tally, RehearsalTally()
        return tally

    def _settle(self) -> None:
        for each in self._combinations.values():
            self._sum(each.rulings, each.changes, each.count, each.examples)
        self._combinations.clear()

    def rulings(self, tapped: Tapped) -> tuple[EventEnds, EventEnds]:
        """Return what becomes of an event by the old contract, and by the new one."""
        checks = tapped.event.type in self._rechecked
        old = self._judges[0].ruling(tapped, checks_payload=checks, is_up=True)
        # What was refused for another reason has no record of its payload.
        checks |= old.refused is not None and old.refused not in PAYLOAD_REASONS
        # What no route of the device took came without one: a client of its own.
        new = self._judges[1].ruling(tapped, checks_payload=checks, is_up=not old.goes_up)
        if self._is_over_at_home(tapped):
            new = new._replace(ends=tuple(map(_over, new.ends)))
        return old, new

    def _is_plain(self, tapped: Tapped) -> bool:
        """Return whether routes, rights and priority decide all about an event."""
        event, accepted_at_ms = tapped.event, tapped.accepted_at_ms
        return (
            tapped.decided_at_ms <= accepted_at_ms
            and (tapped.expires_at_ms is None or tapped.expires_at_ms > accepted_at_ms)
            and event.type != DEAD_LETTER_TYPE
            and not event.type.startswith(REPORT_PREFIX)
            and not tapped.is_refused
            and event.type not in self._rechecked
            and len(event.json) < _LARGE
            and ROUTER_HOPS not in event.attributes
            and not self._is_over_at_home(tapped)
        )

    def _shorter_at_home_ms(self, service: str) -> int | None:
        """Return for how long its events are worth sending up by the new contract, if that is less."""
        old_ms, new_ms = (
            channel_expiry_ms(each.outbox(service), each.contract.device.outbox) for each in self._judges
        )
        return new_ms if new_ms is not None and (old_ms is None or new_ms < old_ms) else None

    def _is_over_at_home(self, tapped: Tapped) -> bool:
        """Return whether an event would have expired before it came up, by the clock of its device."""
        attributes = tapped.event.attributes
        service = str(attributes.get(SENDER_SERVICE, ""))
        bound_ms = self._shorter_ms.get(service, self._shorter_ms[""])
        if bound_ms is None or "recordedtime" not in attributes:
            return False
        recorded_ms = timestamp_ms(str(attributes["recordedtime"]))
        return tapped.accepted_at_ms - recorded_ms >= bound_ms

    def _judged(self, tapped: Tapped) -> tuple[tuple[EventEnds, EventEnds], tuple[Change, ...]]:
        rulings = self.rulings(tapped)
        sender = sender_in_frame(tapped.client, tapped.event.attributes)
        return rulings, tuple(_changes(tapped.event.type, sender, *rulings))

    def _sum(
        self,
        rulings: tuple[EventEnds, EventEnds],
        changes: Collection[Change],
        count: int,
        examples: Sequence[Example],
    ) -> None:
        self._tally.events += count
        for at, ruling in enumerate(rulings):
            for each in ruling.ends:
                if each.outcome is Outcome.DELIVERED:
                    self._tally.deliveries[each.destination, each.type][at] += count
        for change in changes:
            self._tally.changed(change, count, examples)

    # Events of services in the cloud, of which the ledger has the names alone

    def _judge_ways(self, at: int, row: Sent) -> _Ways:
        judge, sender = self._judges[at], parse_sender(row.sender)
        known: dict[str, AttributeValue | None] = {
            **of_type(row.type),
            "source": row.source,
            "id": row.id,
            SENDER_SERVICE: sender.service or None,
            SENDER_DEVICE: sender.device or None,
        }
        event = Envelope({name: each for name, each in known.items() if each is not None}, "")
        over = judge.outbox(row.entered_by.partition(".")[0])
        is_wanted_always = row.priority == Priority.URGENT or is_always_wanted(row.type)
        ways: dict[str, _Way] = {}
        for route in judge.contract.routes_at(Place.CLOUD):
            is_open = route.interest is None or is_wanted_always
            whole = route.filter if is_open or route.interest is None else All((route.filter, route.interest))
            if True in (found := possible(whole, known)):
                end = judge.end(event, route, over)
                way = ways.setdefault(end.reader, _Way(end, found, set()))
                way.answers = _ALWAYS if _ALWAYS in (way.answers, found) else found
                way.filters.add(whole)
        is_allowed = judge.rights.may_send(sender, row.type)
        return _Ways(ways, None if is_allowed else Reason.SENDER_NOT_ALLOWED)

    def _kept(self, row: Sent, old: _Ways, new: _Ways, to: str, example: Example) -> bool:
        """Judge a delivery that was made, and return whether it may come again."""
        before, after = old.to.get(to), new.to.get(to)
        is_over = after and after.end.expiry_ms is not None and row.delay_ms >= after.end.expiry_ms
        gone = new.refused or (_NO_ROUTE if after is None else BY_CHANNEL if is_over else None)
        if gone or after is None:
            route = before.end.route if before else "delivered"
            self._change(row, Effect.FEWER, to, route, gone or _NO_ROUTE, example)
            return False
        # By the same filters as before it comes again, whatever they ask.
        is_same = before is not None and before.filters <= after.filters
        if row.type in self._rechecked or not (is_same or after.answers == _ALWAYS):
            self._doubt(row, to)
        elif before:
            for kind, was, becomes in _differences(before.end, after.end):
                self._change(row, kind, to, was, becomes, example)
        return True

    def _doubt(self, row: Sent, to: str, count: int = 1) -> None:
        self._tally.unknown[to, row.type, row.priority == Priority.URGENT] += count

    def _change(self, row: Sent, kind: Effect, to: str, before: str, after: str, example: Example) -> None:
        is_alarm, is_reader = row.priority == Priority.URGENT, kind in (Effect.FEWER, Effect.MORE)
        self._tally.changed(Change(kind, to, row.type, before, after, is_alarm, is_reader), 1, [example])


def _may_gain(old: _Ways, new: _Ways, to: str) -> bool:
    """Return whether an event that did not come into an inbox may come by the new contract."""
    if new.refused:
        return False
    return to not in old.to or bool(old.refused) or not new.to[to].filters <= old.to[to].filters


_ALWAYS: Final = frozenset({True})
_NO_ROUTE: Final = "no route takes it"


def _payload_rule(contract: Contract, event_type: str) -> bytes:
    """Return a text that differs where two contracts may judge the payload of a type otherwise."""
    declared = contract.event_types.get(event_type)
    if declared is None or declared.schema_check is SchemaCheck.NONE:
        return b""
    schemas = {id: dict(each) for id, each in declared.schemas.items()}
    return canonical_bytes([declared.schema_check, [*schemas], schemas, contract.downlink(event_type)])


def _changes(event_type: str, sender: Sender, old: EventEnds, new: EventEnds) -> Iterator[Change]:
    is_alarm = Priority.URGENT in (old.priority, new.priority)
    if old.refused != new.refused:
        kind = Effect.REFUSED if new.refused else Effect.ALLOWED
        of = f"{sender.service or 'device'}.outbox"
        yield Change(kind, of, event_type, old.refused or _ALLOWED, new.refused or _ALLOWED, is_alarm)
    for type, to in dict.fromkeys((each.type, each.reader) for each in (*old.ends, *new.ends)):
        is_own = type == event_type
        about = to, type
        before, after = (
            [each for each in ruling.ends if (each.reader, each.type) == about] for ruling in (old, new)
        )
        came, comes = (
            [each for each in ends if each.outcome is Outcome.DELIVERED] for ends in (before, after)
        )
        alarm = is_alarm and is_own
        if len(came) != len(comes):
            kind = Effect.FEWER if len(came) > len(comes) else Effect.MORE
            sides = _sides(old, before, came), _sides(new, after, comes)
            yield Change(kind, to, type, *sides, alarm, not (came and comes))
        elif came:
            for kind, was, becomes in _differences(came[0], comes[0]):
                yield Change(kind, to, type, was, becomes, alarm)
            if is_own and old.priority is not new.priority:
                yield Change(Effect.PRIORITY, to, type, old.priority, new.priority, alarm)


_ALLOWED: Final = "allowed"


def _sides(ruling: EventEnds, ends: Sequence[End], came: Sequence[End]) -> str:
    """Return the routes by which an event comes, or else why it does not."""
    if came:
        return ", ".join(each.route for each in came)
    return next((str(each.reason) for each in ends), None) or ruling.refused or _NO_ROUTE


def _differences(old: End, new: End) -> Iterator[tuple[Effect, str, str]]:
    """Yield what else differs of a delivery that there is by both contracts."""
    for kind, before, after in (
        (Effect.EXPIRY, _seconds(old.expiry_ms), _seconds(new.expiry_ms)),
        (Effect.RETENTION, f"{old.retention_s} s", f"{new.retention_s} s"),
        (Effect.ORDER, old.ordering, new.ordering),
        (Effect.GUARANTEE, old.guarantee, new.guarantee),
    ):
        if before != after:
            yield kind, str(before), str(after)


def _seconds(lifetime_ms: int | None) -> str:
    return _NEVER if lifetime_ms is None else f"{lifetime_ms // 1_000} s"


def carried(old: Contract, new: Contract) -> Contract:
    """Return `new` with what participants subscribed and announced under `old`, as routers would add it.

    Contracts that are published leave both alone: they are in tables of their own.
    """
    subscriptions = [_subscription(old, each) for each in subscribed_routes(old)]
    contract, _ = with_subscriptions(new, subscriptions)
    announced = {
        old.channel(each.destination).participant: each.interest
        for each in old.routes
        if each.interest is not None
    }
    announcements = (
        Announcement(name, tuple(map(_text_of, interest.filters)))
        for name, interest in announced.items()
        if name in new.participants
    )
    return with_interest(contract, announcements)[0]


def _subscription(old: Contract, route: Route) -> Subscription:
    """Return the subscription of a route: what `with_subscriptions` made of it, taken back."""
    participant, name = subscription_names(route)
    granted = route.filter
    if isinstance(granted, All) and to_document(granted.filters[0]) == subscribable(old, participant):
        granted = granted.filters[1]
    is_posted = old.channel(route.destination).participant == SUBSCRIBERS
    request = json.dumps({"protocol": HTTP, "sink": "https://localhost/"}) if is_posted else ""
    return Subscription(participant, name, _text_of(granted), "", request)


def _text_of(filter: Filter) -> str:
    return canonical_bytes(to_document(filter)).decode()
