"""Boots of one device: power cuts and torn databases of its broker between them, clocks that step within.

Real are the forwarder with its spool, Mosquitto, and the check that the package runs before Mosquitto;
another Mosquitto is in IoT Core's place. A power cut is SIGKILL, so the kernel's writes reach the disk. Both
programs read one wall clock that is set apart from ours (libfaketime).
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final

import paho.mqtt.client as mqtt

from contract import load_contract
from edge.broker_database import set_aside_if_torn
from edge.spool.recovery import read_backlog
from eventplane.batch import unpack
from eventplane.device_reports import DISCARDED
from eventplane.envelope import Envelope, write_event
from eventplane.guarantee import lifetime_ms
from eventplane.reasons import Outcome
from eventplane.topics import local_topic
from eventplane.values import timestamp
from eventplane_client.mqtt import MqttTransport
from lab.benchmarks.results import Figure
from lab.errors import ProcessDiedError, ProcessLateError, ToolMissingError
from lab.home import BROKER_CONNECTED, start_home
from lab.mosquitto import plain_client, start_cloud_broker
from lab.network import Network
from lab.process import Supervisor
from lab.services import utc_now
from lab.things import Authority, Thing
from lab.waiting import wait_until_none_remain

NAME: Final = "boots"

BOOTS: Final = 1_000
THINGS: Final = ("home-1", "home-2")
RULE: Final = "ingest"
SENDER, PLAIN = "voice-service", "call-service"
"""A service that repeats its alarms until their receipts come, and one that knows only Mosquitto's PUBACK."""
TYPES: Final = {SENDER: "org.eventplane.alarm.keyword.v1", PLAIN: "org.eventplane.call.placed.v1"}

EARLIEST_S: Final = -10 * 365 * 86_400.0
LATEST_S: Final = 60 * 86_400.0
"""How far a clock is off: no battery, or a wrong time server."""

_LIFETIME: Final = timedelta(days=1)
"""Of an alarm: more than a run takes."""
_EACH_RESTS: Final = 10
"""One in so many boots goes on until everything is delivered."""
_MOST_S: Final = 1.5
"""How long the alarms of a boot take at most."""
_DELIVERY_S: Final = 60.0
"""How long nothing may change before what is pending counts as undelivered."""
_BLOCK: Final = 4_096
_BROKER_LOST: Final = ("had forgotten the forwarder's session", "had waited at the home's broker")
"""How the forwarder reports that it lost what only its broker had."""


@dataclass(frozen=True, slots=True)
class Boot:
    """The events of one boot of `thing`, until a power cut or a stop `in_order` after `alarms_s`.

    `damage` is done to the broker's database before. The clock is off by `clock_s`, and by `steps_to_s` from
    the middle on, when the forwarder alone is killed if it `restarts`, and the broker writes its database if
    it `saves`, as it does each 30 s. If it `waits`, the alarms begin when the forwarder is connected. A boot
    that `rests` goes on until everything is delivered.
    """

    thing: str
    damage: str
    clock_s: float
    steps_to_s: float
    alarms_s: float
    waits: bool
    restarts: bool
    saves: bool
    in_order: bool
    rests: bool


def _block(content: bytes, random: Random) -> bytes:
    at = random.randrange(len(content))
    return content[:at] + bytes(len(content[at : at + _BLOCK])) + content[at + _BLOCK :]


DAMAGE: Final[dict[str, Callable[[bytes, Random], bytes]]] = {
    "zeros": lambda content, _: bytes(len(content)),
    "cut": lambda content, random: content[: random.randrange(len(content))],
    "block": _block,
}
"""What a power cut leaves of a file."""


def plan(seed: int, boots: int) -> Iterator[Boot]:
    """Draw what happens to each boot; the last one rests, so that nothing is pending."""
    random, thing = Random(seed), THINGS[0]
    for number in range(1, boots + 1):
        rests = number % _EACH_RESTS == 0 or number == boots
        if random.random() < 0.05:
            thing = THINGS[1 - THINGS.index(thing)]  # the card is in the other device
        damage = random.choice((*DAMAGE, "", "", ""))
        first, second = (random.choice((0.0, random.uniform(EARLIEST_S, LATEST_S))) for _ in range(2))
        alarms_s = random.uniform(0.05, _MOST_S)
        waits, restarts, saves, in_order = (random.random() < chance for chance in (0.7, 0.4, 0.5, 0.3))
        second *= not rests
        yield Boot(thing, damage, first, second, alarms_s, waits, restarts, saves, in_order, rests)


@dataclass
class BootAlarm:
    """One alarm, sent from boot number `boot` on, until it was `confirmed` in another one or the same."""

    id: str
    sender: str
    boot: int
    confirmed: int | None = None


@dataclass
class BootLog:
    """The observations of a boot of `thing`: what came up, and who reported a loss."""

    thing: str
    is_up: bool = True
    is_connected: bool = False
    broker_reported: bool = False
    spool_reported: bool = False


@dataclass
class BootRecorder:
    """The arrivals in the cloud: the things that sent each alarm, by id, and how many alarms were expired."""

    things: dict[str, set[str]] = field(default_factory=dict)
    expired: int = 0

    def take(self, _client: object, _data: object, message: mqtt.MQTTMessage) -> None:
        """Record one publish."""
        for event in unpack(bytes(message.payload)):
            if isinstance(event, Envelope) and event.type in TYPES.values():
                self.things.setdefault(event.id, set()).add(message.topic.split("/")[-2])
                self.expired += not lifetime_ms(event)
            elif isinstance(event, Envelope) and event.type == DISCARDED:
                given_up = event.data()["deliveries"]
                self.expired += sum(each["count"] for each in given_up if each["outcome"] == Outcome.EXPIRED)


@dataclass(frozen=True, slots=True)
class BootVerdict:
    """The ids of the alarms that were acknowledged; of these, those lost without and with a report."""

    acknowledged: list[str]
    lost: list[str]
    reported: list[str]
    under_another: list[str]


def judge(alarms: Sequence[BootAlarm], boots: Sequence[BootLog], things: dict[str, set[str]]) -> BootVerdict:
    """Compare what was acknowledged with the `things` that it came from.

    An alarm that is repeated may come from each thing that it was sent to. What only Mosquitto had may be
    lost if it or the forwarder reports that until the forwarder has connected again; what the spool had, if a
    forwarder of another thing reports that it set the spool aside.
    """
    found = BootVerdict([], [], [], [])
    for each in alarms:
        if each.confirmed is None:
            continue
        found.acknowledged.append(each.id)
        came_from, later = things.get(each.id, set()), boots[each.boot :]
        sent_to = {boot.thing for boot in boots[each.boot : each.confirmed + 1]}
        if came_from - sent_to:
            found.under_another.append(each.id)
        if came_from:
            continue
        is_reported = any(boot.spool_reported for boot in later)
        if each.sender == PLAIN:
            until = next((n for n, boot in enumerate(later[1:], 2) if boot.is_connected), len(later))
            is_reported = any(boot.broker_reported or boot.spool_reported for boot in later[:until])
        (found.reported if is_reported else found.lost).append(each.id)
    return found


def figures(verdict: BootVerdict, boots: Sequence[BootLog], expired: int, undelivered: int) -> list[Figure]:
    """Return the figures of a run; those with an aim are to be 0."""
    return [
        Figure("boots", len(boots), "boots"),
        Figure("alarms", len(verdict.acknowledged), "alarms", note="acknowledged"),
        Figure("lost_and_reported", len(verdict.reported), "alarms"),
        Figure("broker_reports", sum(each.broker_reported for each in boots), "boots"),
        Figure("spool_reports", sum(each.spool_reported for each in boots), "boots"),
        Figure("broker_down", sum(not each.is_up for each in boots), "boots", 0),
        Figure("lost", len(verdict.lost), "alarms", 0),
        Figure("under_another_thing", len(verdict.under_another), "alarms", 0),
        Figure("expired", expired, "alarms", 0),
        Figure("undelivered", undelivered, "alarms", 0),
    ]


def run(boots: int, seed: int, output: Path) -> tuple[BootVerdict, list[Figure]]:
    """Play so many boots. Raises `ToolMissingError`, or what keeps the first boot from starting."""
    recorder = BootRecorder()
    with ExitStack() as stack:
        supervisor = stack.enter_context(Supervisor(output))
        authority = Authority(output / "certificates")
        cloud = start_cloud_broker(supervisor, output / "cloud", authority)
        stack.enter_context(cloud.recorded(recorder.take))
        things = [authority.thing(name, cloud.port) for name in THINGS]
        device = BootDevice(supervisor, stack.enter_context(Network()), things, output / "card", seed)
        stack.callback(device.close)
        for number, boot in enumerate(plan(seed, boots)):
            device.play(number, boot)
        repeated = [each.id for each in device.alarms if each.sender == SENDER]
        wait_until_none_remain(lambda: len({*repeated} - recorder.things.keys()), patience_s=5.0)
    verdict = judge(device.alarms, device.boots, recorder.things)
    undelivered = sum(each.confirmed is None for each in device.alarms if each.sender == SENDER)
    return verdict, figures(verdict, device.boots, recorder.expired, undelivered)


class BootDevice:
    """A card with broker, spool and services, in `folder`, that boots in one of `things`."""

    def __init__(
        self, supervisor: Supervisor, network: Network, things: Sequence[Thing], folder: Path, seed: int
    ) -> None:
        self.alarms: list[BootAlarm] = []
        self.boots: list[BootLog] = []
        folder = folder.resolve()
        self._settings, self._database = folder / "forwarder.toml", folder / "mosquitto" / "mosquitto.db"
        folder.mkdir(parents=True)
        other = things[1]
        for each in (other.certificate, other.key):
            (folder / each.name).symlink_to(each.resolve())
        contract = load_contract()
        self._uplink = contract.device.outbox.address
        self._home = start_home(
            supervisor, network, things[0], contract, RULE, folder, has_own_clock=True, ready=BROKER_CONNECTED
        )
        for child in self._home.children:
            child.kill()
        if self._home.clock is None:
            raise ToolMissingError("libfaketime")
        self._clock, self._offset_s = self._home.clock, 0.0
        self._thing = things[0].name
        self._random = Random(seed)
        self._pause = threading.Event()
        self._waiting = ThreadPoolExecutor(max_workers=64, thread_name_prefix="alarm")
        self._service = MqttTransport(SENDER, port=self._home.broker.port, receipt_timeout_s=1.0)

    def close(self) -> None:
        """End the service, and with it what waits for receipts."""
        self._service.close()
        self._waiting.shutdown()

    def play(self, number: int, boot: Boot) -> None:
        """Play one boot, from the check of the database to the cut."""
        log = BootLog(boot.thing)
        self.boots.append(log)
        forwarder, broker = self._home.forwarder, self._home.broker.child
        began = forwarder.log.stat().st_size
        if boot.damage and self._database.exists():
            self._database.write_bytes(DAMAGE[boot.damage](self._database.read_bytes(), self._random))
        log.broker_reported = bool(set_aside_if_torn(self._database))  # as before each start of the package's
        self._settings.write_text(self._settings.read_text().replace(f'"{self._thing}', f'"{boot.thing}'))
        self._thing = boot.thing
        self._set_clock(boot.clock_s)
        try:
            broker.start()
        except (ProcessDiedError, ProcessLateError):
            log.is_up = False
            self._database.rename(self._database.with_name(f"refused-{number}.db"))
            broker.start()
        forwarder.launch()
        if boot.waits or boot.rests:
            wait_until_none_remain(lambda: BROKER_CONNECTED not in self._logged(began), _DELIVERY_S)
        with self._plain(number) as publish:
            self._send(number, publish, boot.alarms_s / 2)
            if boot.saves and broker.pid:
                os.kill(broker.pid, signal.SIGUSR1)
            if boot.restarts:
                forwarder.kill()
                publish()
            self._set_clock(boot.steps_to_s)
            forwarder.launch()
            self._send(number, publish, boot.alarms_s / 2)
            if boot.rests:
                wait_until_none_remain(self._pending, _DELIVERY_S)
        for each in self._random.sample(self._home.children, 2):
            each.stop() if boot.in_order else each.kill()
        said = self._logged(began)
        log.is_connected = BROKER_CONNECTED in said
        log.broker_reported |= any(each in said for each in _BROKER_LOST)
        log.spool_reported = "there was a spool of" in said

    def _pending(self) -> int:
        unconfirmed = sum(each.confirmed is None for each in self.alarms if each.sender == SENDER)
        return unconfirmed + read_backlog(self._home.spool).get(self._uplink, 0)

    def _logged(self, began: int) -> str:
        return self._home.forwarder.log.read_bytes()[began:].decode(errors="replace")

    def _set_clock(self, offset_s: float) -> None:
        self._offset_s = offset_s
        self._clock.jump(offset_s)

    def _alarm(self, sender: str, boot: int) -> tuple[BootAlarm, Envelope]:
        id, now = f"{sender}-{len(self.alarms)}", utc_now() + timedelta(seconds=self._offset_s)
        times = {"time": timestamp(now), "expirytime": timestamp(now + _LIFETIME)}
        self.alarms.append(BootAlarm(id, sender, boot))
        event = write_event({"id": id, "source": f"/{sender}", "type": TYPES[sender], **times}, {"n": boot})
        return self.alarms[-1], event

    def _send(self, boot: int, publish: Callable[[], None], seconds: float) -> None:
        """Send an alarm of each service, and let the time pass."""
        alarm, event = self._alarm(SENDER, boot)

        def put() -> None:
            # Through any number of boots.
            self._service.put(event, threading.TIMEOUT_MAX)
            alarm.confirmed = len(self.boots) - 1

        self._waiting.submit(put)
        publish()
        self._pause.wait(seconds)

    @contextmanager
    def _plain(self, boot: int) -> Iterator[Callable[[], None]]:
        """Publish alarms for which Mosquitto's acknowledgement is all that their sender knows."""
        sent: list[tuple[BootAlarm, mqtt.MQTTMessageInfo]] = []
        with plain_client(PLAIN, self._home.broker.port, reconnect_on_failure=False) as client:

            def publish() -> None:
                alarm, event = self._alarm(PLAIN, boot)
                sent.append((alarm, client.publish(local_topic(PLAIN, "outbox"), event.json, qos=1)))

            yield publish
        for alarm, info in sent:
            alarm.confirmed = boot if info.is_published() else None
