"""One connection against a real broker, and against none."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import pytest

from edge.messages import Acknowledged, Connected, Disconnected, LinkName, Message, Received
from edge.mqtt import Connection, Endpoint, TlsFiles
from local.mosquitto import Broker
from local.ports import free_port
from tests.integration.edge.conftest import SECONDS

Kind = TypeVar("Kind", Connected, Disconnected, Received, Acknowledged)


class Line:
    """A connection of generation 7 that is subscribed to `t`, and what it reports."""

    def __init__(self, port: int) -> None:
        self.reports: SimpleQueue[Message] = SimpleQueue()
        endpoint = Endpoint("127.0.0.1", port, "c", False, 30, 5.0, ("t",))
        self.connection = Connection(endpoint, LinkName.LOCAL, 7, self.reports.put)

    def next(self, kind: type[Kind]) -> Kind:
        """The next report, which must be of this kind."""
        report = self.reports.get(timeout=SECONDS)
        assert isinstance(report, kind)
        assert (report.link, report.generation) == (LinkName.LOCAL, 7)
        return report


@pytest.fixture
def broker(mosquitto: Callable[[str], Broker]) -> Broker:
    return mosquitto("home")


@pytest.fixture
def black_hole() -> Iterator[int]:
    """A port where connections are accepted and nobody ever answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_it_reports_what_happens(broker: Broker) -> None:
    line = Line(broker.port)
    line.next(Connected)
    mid = line.connection.publish("t", b"hello")
    reports = [line.reports.get(timeout=SECONDS) for _ in range(2)]
    assert Acknowledged(LinkName.LOCAL, 7, mid) in reports
    received = next(each for each in reports if isinstance(each, Received))
    assert (received.topic, received.payload) == ("t", b"hello")
    line.connection.acknowledge(received.mid)
    line.connection.close(SECONDS)
    line.next(Disconnected)


def test_what_was_not_acknowledged_comes_again_on_the_next_connection(broker: Broker) -> None:
    line = Line(broker.port)
    line.next(Connected)
    line.connection.publish("t", b"hello")
    reports = [line.reports.get(timeout=SECONDS) for _ in range(2)]
    assert sum(isinstance(each, Received) for each in reports) == 1
    line.connection.close(SECONDS)
    again = Line(broker.port)
    # The broker's memory comes first, the confirmation of our subscriptions afterwards.
    assert again.next(Received).payload == b"hello"
    again.next(Connected)
    again.connection.close(SECONDS)


def test_after_its_end_it_is_harmless_and_says_so_once(broker: Broker) -> None:
    line = Line(broker.port)
    line.next(Connected)
    broker.child.kill()
    assert "lost" in line.next(Disconnected).reason
    assert line.connection.publish("t", b"too late") == 0
    line.connection.acknowledge(1)
    line.connection.close(SECONDS)
    line.connection.abandon()
    assert line.reports.empty()


def test_it_survives_its_end_while_it_is_used(broker: Broker) -> None:
    line = Line(broker.port)
    line.next(Connected)
    for number in range(20_000):
        line.connection.acknowledge(1)
        if line.connection.publish("t", b"x") == 0:
            break
        if number == 200:
            broker.child.kill()
    line.connection.close(SECONDS)


def test_nobody_there_is_a_reason(broker: Broker) -> None:
    line = Line(free_port())
    assert "refused" in line.next(Disconnected).reason


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    reports: SimpleQueue[Message] = SimpleQueue()
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "device.pem", tmp_path / "device.key")
    Connection(Endpoint("127.0.0.1", 1, "c", True, 30, 5.0, tls=files), LinkName.CLOUD, 1, reports.put)
    report = reports.get(timeout=SECONDS)
    assert isinstance(report, Disconnected)
    assert str(files.ca) in report.reason


@pytest.mark.parametrize("end", [Connection.abandon, lambda connection: connection.close(0.1)])
def test_nobody_answers_is_no_reason_to_hang(black_hole: int, end: Callable[[Connection], None]) -> None:
    line = Line(black_hole)
    end(line.connection)
    line.next(Disconnected)
