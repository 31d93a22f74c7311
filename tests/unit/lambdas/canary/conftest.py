"""An inbox for the canary, and something that answers as IoT Core does over a WebSocket."""

from __future__ import annotations

import base64
import hashlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest

from tests.unit.queues import create_queue

PREFIX = "eventplane-dev-"


@pytest.fixture
def sqs(aws: None) -> Any:
    return boto3.client("sqs")


@pytest.fixture
def inbox(sqs: Any) -> str:
    return create_queue(f"{PREFIX}canary-inbox")


@dataclass
class Gateway:
    """What a server was asked: the request line and headers, and the MQTT packets with the type of each.

    `answers` has what it answers to a packet of a type, in frames; without one it closes the connection.
    """

    address: tuple[str, int] = ("", 0)
    status: str = "101 Switching Protocols"
    answers: dict[int, bytes] = field(
        default_factory=lambda: {1: b"\x20\x02\x00\x00", 3: b"\x40\x02\x00\x01", 14: b""}
    )
    request: str = ""
    packets: list[bytes] = field(default_factory=list)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """Serves one connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    it = Gateway(address=listener.getsockname()[:2])
    thread = threading.Thread(target=_serve, args=(listener, it))
    thread.start()
    yield it
    listener.close()
    thread.join(timeout=5)


def _serve(listener: socket.socket, gateway: Gateway) -> None:
    listener.settimeout(5)
    try:
        connection, _ = listener.accept()
    except OSError:
        return  # nobody came
    with connection, connection.makefile("rb") as stream:
        connection.settimeout(5)
        lines = iter(stream.readline, b"\r\n")
        gateway.request = b"".join(lines).decode()
        key = next(
            line.split(": ")[1]
            for line in gateway.request.splitlines()
            if line.startswith("Sec-WebSocket-Key")
        )
        digest = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()  # noqa: S324 - as RFC 6455 has it
        accept = base64.b64encode(digest).decode()
        connection.sendall(f"HTTP/1.1 {gateway.status}\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode())
        for packet in _messages(stream.read):
            gateway.packets.append(packet)
            answer = gateway.answers.get(packet[0] >> 4)
            if answer is None:
                connection.sendall(b"\x88\x02\x03\xf0")
                return
            # Each byte in a frame of its own: a stream has no borders.
            connection.sendall(b"".join(b"\x82\x01" + bytes([each]) for each in answer))


def _messages(read: Callable[[int], bytes]) -> Iterator[bytes]:
    while head := read(2):
        size = head[1] & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", read(2))
        mask = read(4)
        yield bytes(each ^ mask[at % 4] for at, each in enumerate(read(size)))
