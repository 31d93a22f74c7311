"""What the device's MQTT layer moves through a real Mosquitto: `python -m benchmarks.mqtt` (half a minute).

QoS 1, 512 B, each way alone. Out: 1,000 publishes unacknowledged, nobody subscribed. In: a backlog in a
lasting session, each message acknowledged by hand.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import monotonic, process_time

from benchmarks.results import Figure, write
from edge.settings import LocalSettings
from eventplane_mqtt import Connection, Endpoint
from eventplane_mqtt.mailbox import Acknowledged, Connected, LinkName, Mailbox, Message, Received
from local.mosquitto import start_mosquitto
from local.process import Supervisor

MESSAGES = 50_000
WINDOW = 1_000
PAYLOAD = bytes(512)
ROUNDS = 7
BRIDGE = 50_000
"""What Mosquitto's own bridge drained, messages a second."""


class _Client:
    def __init__(self, port: int, name: str, *topics: str) -> None:
        self._box: Mailbox[Message] = Mailbox()
        endpoint = Endpoint("127.0.0.1", port, name, not topics, 30, 5.0, topics)
        share = self._box.share(LinkName.LOCAL, LocalSettings().buffer_bytes)
        self.connection = Connection(endpoint, LinkName.LOCAL, 1, self._box.put, share)

    def wait(self, kind: type[Message]) -> list[Message]:
        """What has come of this kind, at least one."""
        while True:
            messages = self._box.wait(30)
            if not messages:
                raise TimeoutError(f"no {kind.__name__} within 30 s")
            if found := [each for each in messages if isinstance(each, kind)]:
                return found


def publish_all(port: int, topic: str) -> None:
    """Publish everything to `topic`; returns when the last one is acknowledged."""
    client = _Client(port, "out")
    client.wait(Connected)
    sent = acknowledged = 0
    while acknowledged < MESSAGES:
        while sent < MESSAGES and sent - acknowledged < WINDOW:
            client.connection.publish(topic, PAYLOAD)
            sent += 1
        acknowledged += len(client.wait(Acknowledged))
    client.connection.close(5)


def receive_all(port: int, topic: str) -> None:
    """Receive and acknowledge what waits in the lasting session for `topic`."""
    client = _Client(port, "in", topic)
    count = MESSAGES
    while count:
        batch = [each for each in client.wait(Received) if isinstance(each, Received)]
        count -= len(batch)
        client.connection.acknowledge(*(each.mid for each in batch))
    client.connection.close(5)


def measured(work: Callable[[int, str], None], port: int, topic: str) -> tuple[float, float]:
    """Messages a second by the wall clock, and our CPU time for each in microseconds."""
    started, cpu = monotonic(), process_time()
    work(port, topic)
    return MESSAGES / (monotonic() - started), (process_time() - cpu) / MESSAGES * 1e6


def figures(name: str, rounds: list[tuple[float, float]]) -> list[Figure]:
    rates, costs = zip(*rounds, strict=True)
    note = f"wall clock, Mosquitto's work in it; {min(rates):,.0f} to {max(rates):,.0f}"
    return [
        Figure(f"mqtt_{name}", median(rates), "msg/s", aim=BRIDGE, note=note),
        Figure(f"mqtt_{name}_cpu", median(costs), "us", note="CPU time of one message, ours alone"),
    ]


def main() -> None:
    """Measure, and write build/bench/mqtt.json."""
    with tempfile.TemporaryDirectory() as directory, Supervisor(Path(directory) / "run") as supervisor:
        port = start_mosquitto(supervisor, "bench", Path(directory) / "broker").port
        subscriber = _Client(port, "in", "waiting")
        subscriber.wait(Connected)
        subscriber.connection.close(5)
        out, back = [], []
        for _ in range(ROUNDS):
            out.append(measured(publish_all, port, "nobody"))
            publish_all(port, "waiting")
            back.append(measured(receive_all, port, "waiting"))
    write("mqtt", [*figures("out", out), *figures("in", back)], "python -m benchmarks.mqtt")


if __name__ == "__main__":
    main()
