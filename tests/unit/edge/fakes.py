"""A device without sockets: brokers that only record, a clock that moves when told."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from os import urandom
from pathlib import Path
from random import Random
from typing import Any

import pytest

from edge.delivery_queues import DeliveryCursor
from edge.errors import SpoolCorruptError
from edge.forwarder import Forwarder, Message
from edge.settings import CloudSettings, HealthSettings, LocalSettings, Settings
from edge.spool import Delivery, StoredEvent
from edge.spool.store import CAPACITY_DELIVERIES, Spool
from edge.system import Host, Uptime
from eventplane.batch import unpack
from eventplane.contract import Contract
from eventplane.conversation.questions import StateAnswer, read_state_answer, write_state_question
from eventplane.device_reports import ACKNOWLEDGED, DISCARDED, HEARTBEAT, key_digest
from eventplane.downlink.device import Acknowledgement, from_data
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.interest.announcement import new_announcement, write_announcement
from eventplane.receipts import Receipt, digest, read_receipts, write_receipts
from eventplane.topics import (
    device_topic,
    interest_topic,
    local_topic,
    receipt_topic,
    state_answer_topic,
    state_topic,
)
from eventplane_mqtt.mailbox import Acknowledged, Connected, Disconnected, LinkName, Received
from eventplane_mqtt.reconnection import Backoff, Link, Sending
from tests.small_contract import small_contract, with_changes

READING = "org.eventplane.reading.v1"
ALARM = "org.eventplane.alarm.v1"
CHORE = "org.eventplane.chore.v1"
DEAD_LETTER = "org.eventplane.deadletter.v1"
Boxes = dict[str, dict[str, object]]
TOPIC = "$aws/rules/rule/devices/thing/outbox"
URGENT_TOPIC = "$aws/rules/rule_urgent/devices/thing/outbox"
START = datetime(2024, 5, 1, 12, tzinfo=UTC)


def contract(
    uplink_prefix: str = "org.eventplane.",
    sensor: Boxes | None = None,
    display: Boxes | None = None,
    **device_outbox: object,
) -> Contract:
    """A sender, a receiver with receipts and one without, and the cloud's sender.

    `uplink_prefix` selects what goes to the cloud.
    """
    return small_contract(
        {
            "device": {"kind": "device", "outbox": {"batching_delay_ms": 250, **device_outbox}},
            "sensor": {"kind": "device_service", **(sensor or {})},
            "call": {"kind": "device_service", "inbox": {"receipts": True}},
            "display": {"kind": "device_service", **(display or {})},
            "app": "cloud_service",
        },
        {
            "calls": ({"exact": {"type": ALARM}}, "call.inbox"),
            "shows": ({"exact": {"subject": "show"}}, "display.inbox"),
            "up": ({"prefix": {"type": uplink_prefix}}, "device.outbox"),
        },
        {ALARM: {"priority": "urgent"}, CHORE: {"priority": "low"}, HEARTBEAT: {"priority": "low"}},
    )


def ordered() -> Contract:
    """The plane, with an inbox in the cloud that keeps the order of what it gets."""
    route = {"filter": {"prefix": {"type": "org."}}, "to": "cloud.inbox"}
    return with_changes(contract(), {"participants/cloud/inbox/ordering": "source", "routes/in-order": route})


def event(id: str, type: str = READING, **attributes: str) -> Envelope:
    return write_event({"id": id, "source": "/sensor", "type": type, **attributes}, {"n": id})


def ids(payload: bytes) -> list[str]:
    """The event ids in a payload of the uplink."""
    return [each.id for each in unpack(payload) if isinstance(each, Envelope)]


AROUND_BYTES, PING_BYTES = 100, 2
"""What a publish takes around its payload, and what a PINGREQ takes."""


@dataclass
class FakeWire:
    """A connection that records what was asked of it."""

    generation: int
    published: list[tuple[int, str, bytes]] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    answered: int = 0
    pings: int = 0
    left: list[str] = field(default_factory=list)
    closed: bool = False
    abandoned: bool = False
    resumed: bool = True

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int:
        self.published.append((len(self.published) + 1, topic, payload))
        return len(self.published)

    def unsubscribe(self, *filters: str) -> int:
        self.left += filters
        return 60_000 + len(self.left)

    def ping(self) -> int:
        self.pings += 1
        return 65_535 + self.pings

    @property
    def queued_bytes(self) -> int:
        return PING_BYTES * self.pings + sum(AROUND_BYTES + len(payload) for *_, payload in self.published)

    def sending(self, now: float) -> Sending:
        return Sending(self.queued_bytes, 0.0)

    def acknowledge(self, *mids: int) -> None:
        self.acknowledged += mids

    def close(self, timeout_s: float) -> None:
        self.closed = True

    def abandon(self) -> None:
        self.abandoned = True


class Wires:
    """Dials by making a `FakeWire`; `last` is the newest."""

    def __init__(self) -> None:
        self.all: list[FakeWire] = []

    def dial(self, generation: int) -> FakeWire:
        self.all.append(FakeWire(generation))
        return self.all[-1]

    @property
    def last(self) -> FakeWire:
        return self.all[-1]


class FakeClock:
    """Seconds since the start, moved by hand; `wrong_by` is how far the wall clock is off."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.wrong_by = timedelta()

    def system(self) -> Host:
        return Host(lambda: self.seconds, self.now, self.uptime, lambda: 0.0, urandom)

    def uptime(self) -> Uptime:
        return Uptime("boot", round(self.seconds * 1000))

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds) + self.wrong_by


class Device:
    """A forwarder between two recorded brokers. `turn` hands it messages and lets it work.

    A `settled` one has reported that it started, under sequence 1, and has nothing to say for a long time.
    """

    def __init__(
        self,
        path: Path,
        *,
        window: int = 10,
        batch_events: int = 5,
        capacity_bytes: int = 64 * 1024 * 1024,
        capacity_deliveries: int = CAPACITY_DELIVERIES,
        heartbeat_s: float = 1e9,
        first_report_s: float = 1e9,
        settled: bool = True,
        plane: Contract | None = None,
        publishes_per_s: int = 100,
        single: bool = False,
        bytes_per_day: int = 0,
        **device_outbox: object,
    ) -> None:
        self.path = path
        self.contract = plane or contract(**device_outbox)
        self.time = FakeClock()
        self.local, self.urgent, self.cloud = Wires(), Wires(), Wires()
        self.inbound: list[Sequence[Message]] = []
        self.contracts_came = 0
        self.settings = Settings(
            thing="thing",
            contract=path.parent / "contract.json",
            spool=path,
            spool_capacity_bytes=capacity_bytes,
            spool_capacity_deliveries=capacity_deliveries,
            heartbeat_s=heartbeat_s,
            manifest_interval_s=1e6,
            local=LocalSettings(inbox_window=3),
            cloud=CloudSettings(
                host="cloud",
                rule="rule",
                max_unacknowledged=window,
                batch_events=batch_events,
                publishes_per_s=publishes_per_s,
                bytes_per_day=bytes_per_day,
                mode="single" if single else "batch",
            ),
            health=HealthSettings(),
            provisioning=None,
        )
        self._mid = 0
        self.capacity_bytes = capacity_bytes
        self.capacity_deliveries = capacity_deliveries
        self._first_report_s = first_report_s
        if settled:
            self._settle()
        self.start()

    def start(self) -> None:
        """Start, or start again after `crash`."""
        self._first = self.open()
        backoff = Backoff(1.0, 60.0, Random(1).random)
        self.local_link = Link(LinkName.LOCAL, self.local.dial, backoff, 5.0)
        self.urgent_link = Link(LinkName.URGENT, self.urgent.dial, backoff, 5.0)
        self.cloud_link = Link(LinkName.CLOUD, self.cloud.dial, backoff, 5.0)
        self.forwarder = Forwarder(
            self.contract,
            self.settings,
            self._first,
            self.links,
            self._wait,
            self.time.system(),
            heartbeat=lambda: {"answer": 42},
            contract_came=self._count_contract,
            first_report_s=self._first_report_s,
        )
        self.turn()

    def resize(self, capacity_bytes: int) -> None:
        """Give the spool in use another capacity."""
        self.spool.space.capacity_bytes = capacity_bytes
        self.spool.space._set_limit(capacity_bytes)

    def open(self) -> Spool:
        """The spool's file, on the clock of the device."""
        return Spool(
            self.path,
            self.time.system(),
            capacity_bytes=self.capacity_bytes,
            capacity_deliveries=self.capacity_deliveries,
        )

    @property
    def links(self) -> dict[LinkName, Link]:
        return {each.name: each for each in (self.local_link, self.urgent_link, self.cloud_link)}

    @property
    def spool(self) -> Spool:
        return self.forwarder.spool

    def crash(self) -> None:
        """Nothing is left but the file."""
        self.spool.close()

    def restart(self, *, connected: bool = True) -> None:
        """Crash, start again and connect."""
        self.crash()
        self.start()
        if connected:
            self.connect()

    def _settle(self) -> None:
        with self.open() as spool:
            arrival = StoredEvent(
                1, 1, "{}", {"device.outbox": None}, key_digest(("/devices/thing/forwarder", "1"))
            )
            spool.commit([arrival], uptime_ms=spool.clock())
            done = [Delivery("device.outbox", 1, 1)]
            spool.commit([], done, uptime_ms=spool.clock(), close_manifests=True)

    def turn(self, *messages: Message, after: float = 0.0) -> None:
        """Let `after` seconds pass, then one round with `messages`."""
        self.time.seconds += after
        self.forwarder.turn(list(messages))

    def send(self, *payloads: bytes | Envelope, after: float = 0.0) -> None:
        """One round with messages of the sensor's outbox, after `after` seconds."""
        self.turn(*map(self.from_service, payloads), after=after)

    def send_down(self, *payloads: bytes | str, after: float = 0.0) -> None:
        """One round with messages of the device's inbox in the cloud, after `after` seconds."""
        self.turn(*map(self.from_cloud, payloads), after=after)

    def offer(self, *events: Envelope) -> list[str | None]:
        """Send events, and return what their sender is told of each: None, or why it is refused."""
        before = len(self.receipts())
        self.send(*events)
        return [each.refused for each in self.receipts()[before:]]

    def connect(self, *names: LinkName) -> None:
        """The brokers accept the newest connections (all brokers without `names`)."""
        for name in names or self.links:
            self.turn(Connected(name, self.links[name].generation))

    def disconnect(self, name: LinkName) -> None:
        """A broker is gone; after the longest backoff the next dial is under way."""
        link = self.links[name]
        self.turn(Disconnected(name, link.generation, "gone"))
        self.turn(after=61.0)

    def redial(self, *names: LinkName) -> None:
        """After the longest backoff the brokers accept the next dial."""
        self.turn(after=61.0)
        self.connect(*names)

    def reconnect(self, name: LinkName) -> None:
        """A broker is gone, and accepts the next dial."""
        self.disconnect(name)
        self.connect(name)

    def from_service(self, payload: bytes | Envelope, service: str = "sensor") -> Received:
        """A message of a service's outbox, of the current connection."""
        raw = payload.json.encode() if isinstance(payload, Envelope) else payload
        return self._received(local_topic(service, "outbox"), raw)

    def from_cloud(self, payload: bytes | str) -> Received:
        """A message of the device's inbox in the cloud, of the current connection."""
        raw = payload.encode() if isinstance(payload, str) else payload
        return self._received(device_topic("thing", "inbox"), raw, LinkName.CLOUD)

    def question_of(self, service: str, id: str, key: str) -> Received:
        """A service asks for the current state of a key."""
        return self._received(state_topic(service), write_state_question(id, key))

    def announcement_of(self, service: str, *filters: object, payload: bytes | None = None) -> Received:
        """A service announces what it handles, or with a `payload` whatever that says."""
        if payload is None:
            payload = write_announcement(new_announcement(service, filters))
        return self._received(interest_topic(service), payload)

    def receipt_of(self, service: str, payload: bytes) -> Received:
        """A receipts message of a service's inbox."""
        return self._received(receipt_topic(service, "inbox"), payload)

    def confirm(self, service: str = "call", refused: str | None = None) -> None:
        """A service has handled, or refused, all that it was given over the newest connection."""
        receipts = [Receipt(digest(each), refused) for each in self.delivered(service)]
        self.turn(self.receipt_of(service, write_receipts(receipts)))

    def _received(self, topic: str, payload: bytes, link: LinkName = LinkName.LOCAL) -> Received:
        self._mid += 1
        return Received(link, self.links[link].generation, self._mid, topic, payload)

    def puback(self, mid: int, link: LinkName = LinkName.CLOUD, failure: str | None = None) -> Acknowledged:
        """The broker acknowledges a publish of the current connection."""
        generation = self.links[link].generation
        return Acknowledged(link, generation, mid, failure)

    def prove_line(self) -> None:
        """The cloud acknowledges a publish at once, as over a fast line, and then a second passes."""
        self.send(event("first", ALARM))
        self.turn(self.puback(len(self.cloud.last.published)))
        self.turn(after=1.0)
        self.cloud.last.published.clear()

    def acknowledge_all(self) -> None:
        """The cloud acknowledges until nothing is left to send."""
        done = 0
        while done < len(self.cloud.last.published):
            done += 1
            self.turn(self.puback(done), after=1.0)

    def relay(self, poison: str, rounds: int = 100) -> None:
        """The cloud acknowledges what comes, in order, but hangs up at a publish with the event `poison`."""
        for _ in range(rounds):
            if self.cloud_link.up and (left := self.cloud.last.published[self.cloud.last.answered :]):
                mid, _, payload = left[0]
                if poison in ids(payload):
                    self.disconnect(LinkName.CLOUD)
                else:
                    self.cloud.last.answered = mid
                    self.turn(self.puback(mid), after=0.1)
            elif not self.cloud_link.up:
                self.connect(LinkName.CLOUD)
            else:
                self.turn(after=1.0)

    def uplinked(self) -> list[list[str]]:
        """The event ids of each publish on the newest cloud connection."""
        return [ids(payload) for _, _, payload in self.cloud.last.published]

    def sent_up(self, type: str = "") -> list[Envelope]:
        """The events, or those of one type, that were published over the newest cloud connection."""
        events = [each for *_, payload in self.cloud.last.published for each in self.unpacked(payload)]
        return [each for each in events if type in ("", each.type)]

    @staticmethod
    def unpacked(payload: bytes) -> list[Envelope]:
        """The events of one publish."""
        return [each for each in unpack(payload) if isinstance(each, Envelope)]

    def published(self, type: str = "") -> list[Envelope]:
        """The events, or those of one type, that were published over any connection to the cloud."""
        payloads = [payload for wire in self.cloud.all for *_, payload in wire.published]
        events = [each for payload in payloads for each in self.unpacked(payload)]
        return [each for each in events if type in ("", each.type)]

    def letters(self) -> list[Envelope]:
        """The dead letters among all that was published to the cloud."""
        return list({each.id: each for each in self.published(DEAD_LETTER)}.values())

    @staticmethod
    def statement(manifest: Envelope, destination: str = "device.outbox") -> dict[str, Any]:
        """What a manifest states of a destination."""
        (stated,) = (each for each in manifest.data()["statements"] if each["destination"] == destination)
        return dict(stated)

    def not_stored(self) -> Counter[tuple[str, str]]:
        """What never got a number, by channel and reason: reported and not yet acknowledged, or to report."""
        kinds = Counter(
            {(each.channel, each.reason): n for each, n in self.forwarder.counts.not_stored.items()}
        )
        for report in self.waiting(type=DISCARDED):
            for each in report.data()["not_stored"]:
                kinds[each["channel"], each["reason"]] += each["count"]
        return kinds

    def waiting(self, rank: int = 1, type: str = "") -> list[Envelope]:
        """The events of a rank, or those of one type, that wait for the cloud, in order."""
        rows = DeliveryCursor(self.spool, "device.outbox", rank).unsent()
        events = [parse_event(each.json) for each in rows if each.json != "{}"]
        return [each for each in events if type in ("", each.type)]

    def ids_at(self, service: str) -> list[str]:
        """The ids of the events that were published to a service's inbox."""
        return [parse_event(each).id for each in self.delivered(service)]

    def delivered(self, service: str) -> list[bytes]:
        """What was published to a service's inbox on the newest local connection."""
        topic = local_topic(service, "inbox")
        return [payload for _, to, payload in self.local.last.published if to == topic]

    def answers(self, service: str) -> list[StateAnswer]:
        """What a service was told of the keys that it asked for."""
        topic = state_answer_topic(service)
        return [read_state_answer(payload) for _, to, payload in self.local.last.published if to == topic]

    def acknowledgements(self) -> list[Acknowledgement]:
        """What the spool still holds of the device's answers to the cloud, in order."""
        return [answer for each in self.waiting(type=ACKNOWLEDGED) for answer in from_data(each.data())[0]]

    def receipts(self, service: str = "sensor") -> list[Receipt]:
        """The receipts that a service got on the newest local connection."""
        topic = receipt_topic(service, "outbox")
        published = self.local.last.published
        return [receipt for _, to, payload in published if to == topic for receipt in read_receipts(payload)]

    def _count_contract(self) -> None:
        self.contracts_came += 1

    def _wait(self, timeout_s: float | None, linger_s: float = 0.0) -> Sequence[Message]:
        if self.inbound:
            return self.inbound.pop(0)
        self.time.seconds += timeout_s or 0.0
        return []


MakeDevice = Callable[..., Device]
"""Makes a forwarder with the options of `Device`; its brokers are connected unless `connected` is false."""


def damage(device: Device, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """The next call of `method` finds what a bad block leaves."""

    def fail(*_: object, **__: object) -> None:
        raise SpoolCorruptError(device.path, "page 3 is torn")

    monkeypatch.setattr(device.spool, method, fail)
