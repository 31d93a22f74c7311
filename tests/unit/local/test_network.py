from __future__ import annotations

import asyncio
import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from local.network import UNIMPAIRED, Impairment, Link, Network
from local.ports import LOOPBACK


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(65_536):
            self.request.sendall(data)


class EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A reset connection is what these tests bring about."""


@pytest.fixture(scope="module")
def echo_port() -> Iterator[int]:
    with EchoServer((LOOPBACK, 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def link(echo_port: int) -> Iterator[Link]:
    with Network() as network:
        yield network.link(LOOPBACK, echo_port)


def dial(link: Link) -> socket.socket:
    return socket.create_connection((LOOPBACK, link.port), timeout=5)


def exchange(home: socket.socket, data: bytes) -> bytes:
    home.sendall(data)
    return receive(home, len(data))


def receive(home: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size and (chunk := home.recv(65_536)):
        received += chunk
    return bytes(received)


def test_cut_ends_connections_and_refuses_new_ones(link: Link) -> None:
    with dial(link) as home:
        assert exchange(home, b"before") == b"before"

        link.cut()

        assert link.is_cut
        assert _is_closed(home)
    with pytest.raises(ConnectionRefusedError):
        dial(link)


@pytest.mark.parametrize("turns", range(8))
def test_the_end_closes_a_connection_at_any_moment_of_its_making(echo_port: int, turns: int) -> None:
    """`turns` of the event loop after the connection reached the link."""
    ended: list[bool] = []
    with Network() as network:
        link = network.link(LOOPBACK, echo_port)

        async def dial_and_end() -> None:
            with dial(link) as home:
                for _ in range(turns):
                    await asyncio.sleep(0)
                await network._end_all()
                ended.append(_is_closed(home))  # the loop, which could still close it, waits meanwhile

        network.run(dial_and_end())
    assert ended == [True]


def _is_closed(home: socket.socket) -> bool:
    try:
        return home.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_silent_line_takes_everything_and_passes_it_when_it_speaks_again(link: Link) -> None:
    link.impair(Impairment(silent=True))
    with dial(link) as home:
        home.sendall(b"held")
        home.settimeout(0.05)
        with pytest.raises(TimeoutError):
            home.recv(4)
        home.settimeout(5)
        link.impair(UNIMPAIRED)
        assert home.recv(4) == b"held"


@pytest.mark.parametrize(
    "impairment", [Impairment(delay_s=0.01, loss=0.5), Impairment(bytes_per_s=1_000_000)]
)
def test_an_impaired_link_delays_and_changes_nothing(link: Link, impairment: Impairment) -> None:
    data = bytes(range(256)) * 10
    link.impair(impairment)
    with dial(link) as home:
        assert exchange(home, data) == data


def test_a_narrow_line_is_narrow_for_what_was_under_way_and_wide_when_healed(link: Link) -> None:
    data = b"x" * 65_536
    with dial(link) as home:
        assert exchange(home, b"fair") == b"fair"  # the link waits for more, unimpaired
        link.impair(Impairment(bytes_per_s=10))
        home.sendall(data)
        early = home.recv(65_536)
        assert 0 < len(early) < 100
        link.impair(UNIMPAIRED)
        assert len(early) + len(receive(home, len(data) - len(early))) == len(data)
