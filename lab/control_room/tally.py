"""Tally events and their ends: the control room's counters, and the account of the last events."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import median
from typing import Any, Final, NamedTuple

from contract.explain import Reception, outcomes
from eventplane.account import EVERY_INBOX, OPEN, Account, Fate, accounts, by_reader, by_router
from eventplane.contract import Contract, DeliveryGuarantee
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import DISCARDED
from eventplane.envelope import Envelope, Sender
from eventplane.expiry import why_expired
from eventplane.filter_texts import filter_text
from eventplane.names import OWN_SERVICES
from eventplane.reasons import Outcome as Ended
from eventplane.values import quantile
from operations.letters import letter_of
from operations.reported import NOT_STORED, losses

Key = tuple[str, str]
"""What identifies an event: `source` and `id`."""

MOST_EVENTS: Final = 50
"""Events that a state shows."""

MOST_OPEN: Final = 20_000
"""Events that are remembered, to recognise copies and late arrivals. The oldest are forgotten first."""

MOST_SAMPLES: Final = 1_000
"""Latencies that the median and the 99th percentile are of, the last ones."""

PATIENCE_MS: Final = 60_000
"""An event without an end counts as lost after so long in which nothing was broken and nothing waited."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Events `sent`; `due` deliveries to inboxes, and how many of them were `received` or `lost`.

    `ended` were refused, expired or dropped: they are neither received nor lost. `duplicates` are copies
    beyond the first, which consumers drop; `waiting` are deliveries in the spool. Of what was received,
    services in the home took what `rang`, readers in the cloud what was `taken`, both by a record of theirs;
    of the `unknown` no record shows what the reader did.
    """

    sent: int = 0
    due: int = 0
    received: int = 0
    lost: int = 0
    duplicates: int = 0
    waiting: int = 0
    ended: int = 0
    rang: int = 0
    taken: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class TallyLatency:
    """From sending to an inbox, over the last `samples` deliveries, in ms; None of none."""

    samples: int = 0
    last_ms: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


Routes = tuple[tuple[str, str], ...]
"""Names and conditions of the routes on an event's way; empty where no route of the contract leads."""


class DueAlarm(NamedTuple):
    """The `routes` that take an event to an inbox, and whether that is promised: at least once.

    `down` is the devices' inbox where they lead through it: what the downlink refuses never comes home.
    """

    routes: Routes
    is_promised: bool = True
    down: str | None = None


@dataclass(frozen=True, slots=True)
class InboxDelivery:
    """One inbox that is due an event: `after_ms` sending it arrived (None: not yet), so often (`copies`).

    `routes` are those that take it there, in their order, each with its condition in words. `account` says in
    words what became of the event there, `fate` in one.
    """

    inbox: str
    routes: Routes
    after_ms: float | None
    copies: int
    account: str
    fate: Fate


@dataclass(frozen=True, slots=True)
class Followed:
    """One event and where it goes; `nobody` is the reason if it goes nowhere. `sent_ms` is Unix time."""

    source: str
    id: str
    type: str
    priority: str
    sent_ms: float
    deliveries: tuple[InboxDelivery, ...]
    nobody: str = ""


@dataclass(slots=True)
class _Sent:
    """What is known of an event; `arrived` is when by inbox, `copies` how often.

    `facts` are what else became of it, each once and as it was said last; `missing` is what it is by inbox if
    nothing else became of it.
    """

    event: Envelope | None = None
    contract: Contract | None = None
    sender: str = ""
    priority: str = ""
    sent_ms: float = 0.0
    due: Mapping[str, DueAlarm] = field(default_factory=dict)
    nobody: str = ""
    arrived: dict[str, float] = field(default_factory=dict)
    copies: dict[str, int] = field(default_factory=dict)
    facts: dict[Account, Account] = field(default_factory=dict)
    missing: dict[str, Account] = field(default_factory=dict)

    def account(self, inbox: str, now_ms: float, waits: str = "") -> Account:
        """Return what became of it at the inbox of this participant; `waits` is for what it waits."""
        address = f"{inbox}.inbox"
        places = address, EVERY_INBOX, self.due[inbox].down if inbox in self.due else None
        facts = [replace(each, inbox=address) for each in self.facts.values() if each.inbox in places]
        if inbox in self.arrived:
            facts.append(Account(address, Fate.IN_INBOX, at_ms=round(self.arrived[inbox])))
        elif why := self._why_expired(address, now_ms):
            facts.append(Account(address, Fate.EXPIRED, why=why))
        facts.append(self.missing.get(inbox) or Account(address, Fate.WAITING, why=waits))
        return accounts([address], facts)[0]

    def _why_expired(self, address: str, now_ms: float) -> str | None:
        contract, event = self.contract, self.event
        if contract is None or event is None:
            return None
        participant = contract.participants.get(self.sender) or contract.device
        channels = participant.outbox, contract.channel(address)
        return why_expired(event, round(now_ms), round(self.sent_ms), *channels)


class Tally:
    """Compare what was sent with what became of it, by the contract. Safe for threads.

    An arrival, or another end, may be recorded before the sending, by another observer.
    """

    def __init__(self, contract: Contract) -> None:
        self._lock = threading.Lock()
        self._contract = contract
        self._events: OrderedDict[Key, _Sent] = OrderedDict()
        self._latencies: deque[float] = deque(maxlen=MOST_SAMPLES)
        self._sent = self._due = self._received = self._duplicates = 0
        self._discarded = 0
        self._settled: Counter[str] = Counter()
        self._quiet_since_ms: float | None = None
        self._open: dict[tuple[Key, str], _Sent] = {}
        self._now_ms = 0.0
        self._waits = ""

    def take_contract(self, contract: Contract) -> None:
        """Judge what is sent from now on by `contract`."""
        with self._lock:
            self._contract = contract

    def sent(self, event: Envelope, sender: str, now_ms: float) -> None:
        """Note that the service `sender` sent `event`. A second sending of the same event is not counted.

        A dead letter says what became of its original.
        """
        with self._lock:
            contract = self._contract
            if self._known(event.claim).event is not None:
                return
        due, nobody = due_inboxes(contract, event, sender)
        participant = contract.participants.get(sender)
        channel = participant.outbox if participant else contract.device.outbox
        with self._lock:
            known = self._known(event.claim)
            if known.event is not None:
                return
            known.event, known.contract, known.sender = event, contract, sender
            known.sent_ms, known.due, known.nobody = now_ms, due, nobody
            known.priority = contract.priority(event, channel).value
            self._sent += 1
            self._due += len(due)
            self._open |= {(event.claim, inbox): known for inbox in due.keys() - known.arrived.keys()}
            for inbox, at_ms in known.arrived.items():
                self._count(known, inbox, at_ms)
            if event.type == DEAD_LETTER_TYPE:
                self._take_letter(event, sender, now_ms)
            if (event.type, sender) == (DISCARDED, contract.device.name):
                counts = losses(event).items()
                is_lost = Ended.DROPPED, NOT_STORED
                self._discarded += sum(number for loss, number in counts if loss.outcome in is_lost)

    def received(self, inbox: str, key: Key, now_ms: float) -> None:
        """Note that the event `key` arrived at the participant `inbox`."""
        with self._lock:
            known = self._known(key)
            known.copies[inbox] = known.copies.get(inbox, 0) + 1
            if inbox in known.arrived:
                self._duplicates += 1
                return
            known.arrived[inbox] = now_ms
            self._open.pop((key, inbox), None)
            if known.event is not None:
                self._count(known, inbox, now_ms)

    def handled(self, inbox: str, key: Key, now_ms: float) -> None:
        """Note that the participant `inbox` received the event `key`, and says that it handled it."""
        self.received(inbox, key, now_ms)
        self.took(inbox, key, now_ms)

    def took(self, inbox: str, key: Key, now_ms: float) -> None:
        """Note that the participant `inbox` handled the event `key`, whose arrival another observer sees."""
        with self._lock:
            self._note(key, Account(f"{inbox}.inbox", Fate.HANDLED, inbox, at_ms=round(now_ms)))

    def refused(self, key: Key, by: str, why: str, now_ms: float) -> None:
        """Note that the home `by` did not store the event `key`, and told its sender `why`."""
        with self._lock:
            self._note(key, Account(EVERY_INBOX, Fate.REFUSED, by, why, round(now_ms)))

    def decided(self, record: Mapping[str, Any]) -> None:
        """Note a `record` of the ledger."""
        account = by_router(record)
        if account.fate is not Fate.IN_INBOX and record["id"]:
            with self._lock:
                self._note((record["source"], record["id"]), account)

    def settled(self, record: Mapping[str, Any]) -> None:
        """Note a `record` of the handovers: what the reader of an inbox in the cloud did."""
        with self._lock:
            self._note((record["source"], record["id"]), by_reader(record))

    def counters(self, waiting: int, is_idle: bool, now_ms: float, waits: str = "") -> Counters:
        """Return the counters. `is_idle`: nothing is broken, and no queue has a message; `waits` is what has.

        What has no end once the plane was idle for `PATIENCE_MS` is lost, until another end is known.
        """
        with self._lock:
            self._now_ms, self._waits = now_ms, waits
            if not is_idle or waiting:
                self._quiet_since_ms = None
            elif self._quiet_since_ms is None:
                self._quiet_since_ms = now_ms
            is_quiet = self._quiet_since_ms is not None and now_ms - self._quiet_since_ms >= PATIENCE_MS
            fates: Counter[Fate] = Counter()
            for (_, inbox), each in self._open.items():
                if inbox in each.missing or (is_quiet and now_ms - each.sent_ms >= PATIENCE_MS):
                    each.missing[inbox] = self._missing(f"{inbox}.inbox", each.due[inbox])
                fates[each.account(inbox, now_ms).fate] += 1
            ended = sum(count for fate, count in fates.items() if fate not in (*OPEN, Fate.LOST))
            counts = self._sent, self._due, self._received, fates[Fate.LOST], self._duplicates
            unknown = max(0, self._received - self._settled.total())
            return Counters(*counts, waiting, ended, self._settled["rang"], self._settled["taken"], unknown)

    def latency(self) -> TallyLatency:
        """Return how long the last deliveries took."""
        with self._lock:
            values = list(self._latencies)
        if not values:
            return TallyLatency()
        ordered = sorted(values)
        return TallyLatency(len(values), values[-1], median(ordered), quantile(ordered, 0.99))

    def last(self) -> tuple[Followed, ...]:
        """Return the last events, the newest first."""
        with self._lock:
            newest = (each for each in reversed(self._events.values()) if each.event is not None)
            return tuple(
                self._followed(each, each.event) for each in islice(newest, MOST_EVENTS) if each.event
            )

    def _known(self, key: Key) -> _Sent:
        if key not in self._events:
            while len(self._events) >= MOST_OPEN:
                key_of_oldest, oldest = self._events.popitem(last=False)
                for inbox in oldest.due:
                    self._open.pop((key_of_oldest, inbox), None)
            self._events[key] = _Sent()
        return self._events[key]

    def _note(self, key: Key, fact: Account) -> None:
        facts = self._known(key).facts
        if fact.is_by_reader and not any(each.is_by_reader and each.inbox == fact.inbox for each in facts):
            reader = self._contract.participants.get(fact.by)
            taken = "rang" if reader is not None and reader.kind.is_on_device else "taken"
            self._settled[taken if fact.fate is Fate.HANDLED else "ended"] += 1
        facts[replace(fact, at_ms=None)] = fact

    def _count(self, known: _Sent, inbox: str, at_ms: float) -> None:
        if inbox in known.due:
            self._received += 1
            self._latencies.append(max(0.0, at_ms - known.sent_ms))

    def _missing(self, inbox: str, due: DueAlarm) -> Account:
        """Return what an event is that is in no inbox and no queue, while nothing is broken."""
        if not due.is_promised:
            return Account(inbox, Fate.DROPPED, why="best_effort")
        if due.down:
            return Account(inbox, Fate.UNKNOWN, why="`eventplane desired list` has what waits for the device")
        if self._discarded:
            why = f"devices report that they discarded {self._discarded}, it may be one of them"
            return Account(inbox, Fate.UNKNOWN, why=why)
        return Account(inbox, Fate.LOST, why="nothing is broken and no queue has a message")

    def _take_letter(self, event: Envelope, sender: str, now_ms: float) -> None:
        stamped = event if event.sender != Sender() else event.stamped(**Sender(service=sender).attributes)
        letter = letter_of(stamped, place="", id=event.id, since_ms=round(now_ms), body="")
        account = letter and letter.account(self._contract)
        if letter and account:
            for key in letter.claims - {event.claim}:
                self._note(key, account)

    def _followed(self, known: _Sent, event: Envelope) -> Followed:
        unexpected = dict.fromkeys(known.arrived.keys() - known.due.keys(), DueAlarm(()))
        deliveries = []
        for inbox, due in {**known.due, **unexpected}.items():
            account, at_ms = known.account(inbox, self._now_ms, self._waits), known.arrived.get(inbox)
            after_ms = None if at_ms is None else max(0.0, at_ms - known.sent_ms)
            copies = known.copies.get(inbox, 0)
            deliveries.append(InboxDelivery(inbox, due.routes, after_ms, copies, str(account), account.fate))
        names = event.source, event.id, event.type
        return Followed(*names, known.priority, known.sent_ms, tuple(deliveries), known.nobody)


def due_inboxes(contract: Contract, event: Envelope, sender: str) -> tuple[dict[str, DueAlarm], str]:
    """Return the participants that the contract sends `event` to, each with its routes, and why nobody is.

    Inboxes that the plane's own functions read are left out: arrivals there cannot be seen.
    """
    found: Sequence[Reception] = outcomes(contract, event, sender)
    down = contract.device.inbox.address
    due = {
        receipt.channel.participant: DueAlarm(
            tuple((each.route.name, filter_text(each.route.filter)) for each in receipt.hops),
            receipt.guarantee is DeliveryGuarantee.AT_LEAST_ONCE,
            next((down for each in receipt.hops if each.route.destination == down), None),
        )
        for outcome in found
        for receipt in outcome.receipts
        if receipt.channel.participant not in OWN_SERVICES
    }
    problems = [f"{each.fate}: {each.problem}; {each.remedy}" for each in found if each.problem]
    return due, "" if due else "; ".join(problems)
