from __future__ import annotations

import socket
from pathlib import Path

from local.ports import LOOPBACK, free_port, is_listening


def test_ports_are_bindable_and_never_given_twice() -> None:
    ports = [free_port() for _ in range(50)]

    assert len(set(ports)) == len(ports)
    with socket.socket() as server:
        server.bind((LOOPBACK, ports[0]))


def test_a_port_is_outside_the_range_of_outgoing_connections() -> None:
    first, _last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()

    assert free_port() < int(first)


def test_listening_is_seen_from_outside() -> None:
    with socket.socket() as server:
        server.bind((LOOPBACK, 0))
        port = server.getsockname()[1]
        assert not is_listening(port)
        server.listen()
        assert is_listening(port)
