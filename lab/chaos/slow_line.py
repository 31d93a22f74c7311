"""Slow lines: over each a backlog drains while alarms come, and bytes, copies and delays are counted.

Each line has a home of its own, with a real Mosquitto and the real forwarder, behind a narrow, long link. One
Mosquitto with mutual TLS is in IoT Core's place, and a subscriber beside it notes what arrives.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final

import paho.mqtt.client as mqtt
from paho.mqtt.client import CallbackOnMessage
from paho.mqtt.enums import CallbackAPIVersion

from contract import load_contract
from eventplane.batch import unpack
from eventplane.envelope import Envelope, write_event
from eventplane.topics import local_topic
from lab.benchmarks.results import Figure
from lab.chaos.load import KEYWORD, MOTION, SERVICES
from lab.home import Home, start_home
from lab.mosquitto import start_cloud_broker
from lab.network import LOOPBACK, Impairment, Network
from lab.process import Supervisor
from lab.things import Authority
from lab.waiting import wait_until_none_remain

NAME: Final = "slow-line"
RULE: Final = "ingest"

BACKLOG_S: Final = 90.0
"""How long the line is busy with a backlog at the least."""

_AROUND_BYTES: Final = 110
"""What is around an alarm's payload: MQTT's header with the topic, and TLS (`edge.publishing.wire_size`)."""


@dataclass(frozen=True, slots=True)
class SlowLine:
    """A line of `bytes_per_s` each way, and what waits before it: events with about `event_bytes` of data."""

    bytes_per_s: int
    round_trip_s: float
    event_bytes: int
    loss: float = 0.0

    @property
    def name(self) -> str:
        """The line's name in figures."""
        stalls = "_stalls" if self.loss else ""
        return f"{self.bytes_per_s / 1000:g}_kB_s_{self.round_trip_s:g}_s_{self.event_bytes}_B{stalls}"

    @property
    def is_divisible(self) -> bool:
        """True if an event takes at most a round trip: an alarm waits behind one that takes longer."""
        return self.event_bytes <= self.bytes_per_s * self.round_trip_s

    @property
    def events(self) -> int:
        return max(4, round(BACKLOG_S * self.bytes_per_s / (0.6 * self.event_bytes + 60)))


LINES: Final = (
    SlowLine(1_000, 2.0, 200),
    SlowLine(1_000, 5.0, 1_000),
    SlowLine(1_500, 1.0, 60_000),
    SlowLine(2_000, 3.0, 200, loss=0.02),
    SlowLine(3_000, 1.0, 12_000),
    SlowLine(3_000, 5.0, 12_000),
    SlowLine(5_000, 1.0, 200),
    SlowLine(5_000, 5.0, 1_000),
)


@dataclass(slots=True)
class LineArrivals:
    """Arrivals of one home: how often each event, when first, and the payloads that brought any."""

    times: Counter[str] = field(default_factory=Counter)
    first_at: dict[str, float] = field(default_factory=dict)
    payload_bytes: int = 0
    alarm_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LineOutcome:
    """The result of a line: `sent_bytes` of it for `payload_bytes`, and each alarm's delay, seconds."""

    line: SlowLine
    missing: int
    events: int
    copies: int
    sent_bytes: int
    payload_bytes: int
    drain_s: float
    alarms_s: Sequence[float]
    alarm_bytes: int

    def figures(self) -> list[Figure]:
        """Return the figures of the line."""
        line, worst_s = self.line, max(self.alarms_s, default=0.0)
        own_s = (self.alarm_bytes + _AROUND_BYTES) / line.bytes_per_s
        alarms = f"{len(self.alarms_s)} alarms, the latest after {worst_s:.1f} s; less its own transmission"
        if not line.is_divisible:
            alarms += "; no aim: one event takes longer than a round trip and cannot be divided"
        trips_aim = 3.0 if line.is_divisible else None
        drained = f"of {self.events} events, in {self.drain_s:.0f} s"
        sent = f"{self.sent_bytes} bytes with TLS and its handshake, for a byte of compressed frames"
        rows = (
            ("missing", self.missing, "events", 0.0, drained),
            ("copies", self.copies / self.events, "share", 0.01, "events that came again"),
            ("sent", self.sent_bytes / self.payload_bytes, "B/B", 1.15, sent),
            ("alarm", (worst_s - own_s) / line.round_trip_s, "round trips", trips_aim, alarms),
        )
        return [
            Figure(f"{name}_{line.name}", value, unit, aim, False, note=note, required=aim is not None)
            for name, value, unit, aim, note in rows
        ]


def run(lines: Sequence[SlowLine], seed: int, folder: Path) -> list[Figure]:
    """Play all lines and return their figures. Raises what keeps a part from starting."""
    return [each for outcome in play(lines, seed, folder) for each in outcome.figures()]


def play(lines: Sequence[SlowLine], seed: int, folder: Path) -> list[LineOutcome]:
    """Drain a backlog over each line, all at the same time. Raises what keeps a part from starting."""
    authority, contract = Authority(folder / "certificates"), load_contract()
    received = {f"home-{number}": LineArrivals() for number in range(len(lines))}
    with Supervisor(folder) as supervisor, Network() as network, ThreadPoolExecutor(len(lines)) as pool:
        broker = start_cloud_broker(supervisor, folder / "cloud", authority)
        with broker.recorded(_recorder(received)):
            homes = []
            for name in received:
                thing = authority.thing(name, broker.port)
                (folder / name).mkdir()
                homes.append(start_home(supervisor, network, thing, contract, RULE, folder / name))
            return list(pool.map(partial(_drain, seed), lines, homes, received.values()))


def _recorder(received: dict[str, LineArrivals]) -> CallbackOnMessage:
    def note(_client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        at, got = monotonic(), received[message.topic.split("/")[4]]
        ids = [each.id for each in unpack(bytes(message.payload)) if isinstance(each, Envelope)]
        if any(id not in got.first_at for id in ids):
            got.payload_bytes += len(message.payload)
        for id in ids:
            got.times[id] += 1
            got.first_at.setdefault(id, at)
            if id.startswith("alarm"):
                got.alarm_bytes = max(got.alarm_bytes, len(message.payload) // len(ids))

    return note


def _drain(seed: int, line: SlowLine, home: Home, received: LineArrivals) -> LineOutcome:
    random, link = Random(f"{seed} {line.name}"), home.link
    services = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"services-{home.name}")
    services.max_inflight_messages_set(100)
    services.connect(LOOPBACK, home.broker.port)
    services.loop_start()

    def put(type: str, id: str, size: int) -> None:
        event = write_event(
            {"id": id, "source": f"/homes/{home.name}", "type": type, "subject": "/bedroom"},
            {"state": "moved", "noise": random.randbytes(size // 2).hex()},
        )
        services.publish(local_topic(SERVICES[type], "outbox"), event.json.encode(), qos=1).wait_for_publish()

    link.cut()
    backlog = [f"reading-{number}" for number in range(line.events)]
    for id in backlog:
        put(MOTION, id, line.event_bytes)
    link.impair(Impairment(line.round_trip_s / 2, line.loss, line.bytes_per_s))
    before, began = link.sent_bytes, monotonic()
    sent_at: dict[str, float] = {}
    left = threading.Event()
    link.heal()
    # An alarm without a connection would measure the wait between two attempts.
    wait_until_none_remain(lambda: not any(id in received.first_at for id in backlog))

    def send_alarms() -> None:
        while not left.wait(random.uniform(1.0, 2.0) * max(3.0, 1.5 * line.round_trip_s)):
            id = f"alarm-{len(sent_at)}"
            sent_at[id] = monotonic()
            put(KEYWORD, id, 32)

    alarms = threading.Thread(target=send_alarms)
    alarms.start()
    patience_s = 60.0 + 10 * line.round_trip_s + 3 * line.event_bytes / line.bytes_per_s
    wait_until_none_remain(lambda: sum(id not in received.first_at for id in backlog), patience_s)
    drain_s = monotonic() - began
    left.set()
    alarms.join()
    wait_until_none_remain(lambda: sum(id not in received.first_at for id in sent_at), patience_s)
    wait_until_none_remain(lambda: home.backlog, patience_s)
    services.disconnect()
    services.loop_stop()
    wanted = [*backlog, *sent_at]
    times = dict(received.times)
    return LineOutcome(
        line,
        sum(id not in times for id in wanted),
        len(wanted),
        sum(times.get(id, 1) - 1 for id in wanted),
        link.sent_bytes - before,
        received.payload_bytes,
        drain_s,
        [received.first_at[id] - at for id, at in sent_at.items() if id in received.first_at],
        received.alarm_bytes,
    )
