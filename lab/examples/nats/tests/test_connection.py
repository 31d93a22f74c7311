"""A connection to a NATS server that does not answer, or no longer."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from eventplane_nats import connection
from eventplane_nats.connection import NatsLink
from lab.network import LOOPBACK

GREETING = b'INFO {"max_payload": 1048576}\r\nPONG\r\n'
SECONDS = 5.0


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as it:
        it.settimeout(SECONDS)
        yield it


def url(server: socket.socket) -> str:
    return f"nats://{LOOPBACK}:{server.getsockname()[1]}"


def reads_to_the_end(peer: socket.socket) -> bool:
    """Return whether the connection was closed by its other side; raises `TimeoutError` while it is open."""
    peer.settimeout(SECONDS)
    try:
        while peer.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass
    return True


def test_a_silent_server_is_left(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_S", 0.0)  # only the margin is waited for
    with pytest.raises(TimeoutError):
        NatsLink(url(server), "desk", {})
    with server.accept()[0] as peer:
        assert reads_to_the_end(peer)


def test_a_connection_whose_server_reads_no_more_is_closed_all_the_same(server: socket.socket) -> None:
    with ThreadPoolExecutor(1) as thread:
        opening = thread.submit(NatsLink, url(server), "desk", {})
        with server.accept()[0] as peer:
            peer.sendall(GREETING)
            opened = opening.result()

            async def fill() -> None:
                for _ in range(64):
                    await opened.nats.publish("subject", b"x" * 1_000_000)

            with pytest.raises(TimeoutError):
                opened.run(fill(), 0.0)
            opened.close(0.0)
            assert reads_to_the_end(peer)
