"""The network between a home and the cloud: links that can be cut, healed, and impaired; free TCP ports.

A link passes bytes unchanged, so mutual TLS works through it. It can do what is possible between two TCP
connections: a lost segment becomes the stall that its retransmission costs. It cannot shrink a window,
reorder segments or lose a TCP acknowledgement.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from lab.background import BackgroundLoop, close_server

SEGMENT_BYTES: Final = 1_460
"""Payload of one TCP segment on Ethernet: what is lost at a time."""

RETRANSMISSION_S: Final = 0.2
"""Least time after which Linux sends a segment again; a round trip comes on top."""

_CHUNK_BYTES: Final = 65_536
_MAX_CHUNKS: Final = 64
"""Most chunks in flight; then the sender has to wait, as for a full window. Of a narrow link 6.4 s."""

_NARROW_BYTES: Final = 2_048
"""What a narrow link, and its socket, keep of what has not passed yet: the sender feels the rate."""


@dataclass(frozen=True, slots=True)
class Impairment:
    """`delay_s` of one direction, the `loss` of segments as a share of 1, most `bytes_per_s` (None: any).

    A `silent` link accepts bytes and passes nothing while it is silent.
    """

    delay_s: float = 0.0
    loss: float = 0.0
    bytes_per_s: int | None = None
    silent: bool = False

    def hold_s(self, size: int, random: Random) -> float:
        """Return how long so many bytes take: the delay, and a stall for each lost segment."""
        segments = -(-size // SEGMENT_BYTES) if self.loss else 0
        lost = sum(random.random() < self.loss for _ in range(segments))
        return self.delay_s + lost * (RETRANSMISSION_S + 2 * self.delay_s)

    @property
    def chunk_bytes(self) -> int:
        """The bytes that pass at a time: on a narrow link what it passes in a tenth of a second."""
        return max(1, self.bytes_per_s // 10) if self.bytes_per_s else _CHUNK_BYTES


UNIMPAIRED: Final = Impairment()


class NetworkLink:
    """One home's link: a connection to 127.0.0.1:`port` reaches the target. Made by `Network.link`.

    `sent_bytes` counts what it took from the home.
    """

    def __init__(self, network: Network, host: str, port: int) -> None:
        self.port = free_port()
        self.sent_bytes = 0
        self._network = network
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._impairment = UNIMPAIRED
        self._changed = asyncio.Event()
        self._random = Random(self.port)

    @property
    def is_cut(self) -> bool:
        """True if it refuses connections."""
        return self._server is None

    def cut(self) -> None:
        """Close every connection and refuse new ones, until `heal` (idempotent)."""
        self._network.run(self.end())

    def heal(self) -> None:
        """Accept connections again, on the same port (idempotent)."""
        self._network.run(self._heal())

    def drop(self) -> None:
        """Close every connection, and accept new ones at once."""
        self._network.run(self._drop())

    def impair(self, impairment: Impairment) -> None:
        """Apply `impairment` to present and new connections, in place of the one before.

        Only new ones have small buffers: what present ones have in theirs goes ahead at the rate.
        """
        self._network.run(self._impair(impairment))

    async def _impair(self, impairment: Impairment) -> None:
        self._impairment = impairment
        self._changed.set()
        self._changed = asyncio.Event()
        self._size_buffers()

    async def _heal(self) -> None:
        if self._server is None:
            limit = _NARROW_BYTES // 2  # asyncio stops reading at twice that
            self._server = await asyncio.start_server(self._accept, LOOPBACK, self.port, limit=limit)
            self._size_buffers()

    def _size_buffers(self) -> None:
        size = _NARROW_BYTES if self._impairment.bytes_per_s else _CHUNK_BYTES
        for each in self._server.sockets if self._server else ():
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

    async def end(self) -> None:
        """See `cut`; on the network's thread."""
        server, self._server = self._server, None
        if server is not None:
            await close_server(server)
        await self._drop()

    async def _drop(self) -> None:
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, home: asyncio.StreamReader, to_home: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None  # noqa: S101 - asyncio runs this callback as a task
        self._connections.add(connection)
        try:
            if not self.is_cut:  # accepted in the very moment of a cut
                await self._connect(home, to_home)
        except asyncio.CancelledError:
            pass  # a cut: the task's end is what was asked for
        finally:
            self._connections.discard(connection)
            to_home.transport.abort()

    async def _connect(self, home: asyncio.StreamReader, to_home: asyncio.StreamWriter) -> None:
        try:
            cloud, to_cloud = await asyncio.open_connection(*self._target)
        except OSError:
            return  # the home sees its own connection close
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(home, to_cloud, self._count))
                both.create_task(self._carry(cloud, to_home))
        except* OSError:
            pass  # either side hung up
        finally:
            to_cloud.transport.abort()

    def _count(self, size: int) -> None:
        self.sent_bytes += size

    async def _carry(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        count: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Pass everything from `source` to `sink` in order, and `count` it.

        The narrow place comes first, so that its sender feels it. A chunk keeps the delay that was in force
        when it passed that.
        """
        in_flight: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MAX_CHUNKS)
        clock = asyncio.get_running_loop().time

        async def read() -> None:
            while chunk := await source.read(self._impairment.chunk_bytes):
                while chunk:
                    await self._while_silent()
                    size = self._impairment.chunk_bytes
                    part, chunk = chunk[:size], chunk[size:]
                    count(len(part))
                    await self._pace(len(part))
                    await in_flight.put((clock() + self._impairment.hold_s(len(part), self._random), part))
            await in_flight.put((clock(), b""))

        async def write() -> None:
            while True:
                due, chunk = await in_flight.get()
                if (wait_s := due - clock()) > 0:
                    await asyncio.sleep(wait_s)
                await self._while_silent()
                if not chunk:
                    sink.write_eof()
                    return
                sink.write(chunk)
                await sink.drain()

        async with asyncio.TaskGroup() as both:
            both.create_task(read())
            both.create_task(write())

    async def _while_silent(self) -> None:
        while self._impairment.silent:
            await self._changed.wait()

    async def _pace(self, size: int) -> None:
        """Wait for as long as `size` bytes take, or until the impairment changes."""
        if self._impairment.bytes_per_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(size / self._impairment.bytes_per_s):
                    await self._changed.wait()


class Network(BackgroundLoop):
    """All links of a run, served by one thread of its own. Use it in a `with` block, which ends them all."""

    def __init__(self) -> None:
        super().__init__("network")
        self._links: list[NetworkLink] = []

    def link(self, host: str, port: int) -> NetworkLink:
        """Return a new link to `host`:`port`. Raises `OSError` if its own port was taken meanwhile."""
        link = NetworkLink(self, host, port)
        link.heal()
        self._links.append(link)
        return link

    async def _end(self) -> None:
        await asyncio.gather(*(link.end() for link in self._links))


LOOPBACK = "127.0.0.1"

_LOWEST = 10_240
_TRIES = 1_000
_DEFAULT_EPHEMERAL = 32_768
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")

_given: set[int] = set()
_dice = random.SystemRandom()  # unlike `random`, not repeated by a seeded run beside this one


class NoFreePortError(OSError):
    """Every port that was tried is taken."""

    def __init__(self, lowest: int, highest: int) -> None:
        self.lowest, self.highest = lowest, highest
        super().__init__(f"no free TCP port between {lowest} and {highest}; end what occupies them")


def free_port() -> int:
    """Return a free TCP port on 127.0.0.1, never the same twice in one process. Raises `NoFreePortError`.

    It lies below the kernel's ephemeral range. A port inside that range can be taken by any outgoing
    connection while its server restarts, and a client that dials it meanwhile can even connect to itself.
    """
    highest = _first_ephemeral() - 1
    for _ in range(_TRIES):
        port = _dice.randint(_LOWEST, highest)
        if port not in _given and _can_bind(port):
            _given.add(port)
            return port
    raise NoFreePortError(_LOWEST, highest)


def is_listening(port: int) -> bool:
    """Return whether something accepts TCP connections on 127.0.0.1:`port`."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _first_ephemeral() -> int:
    try:
        first = int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_EPHEMERAL
    return first if first > _LOWEST + 1_000 else _DEFAULT_EPHEMERAL


def _can_bind(port: int) -> bool:
    # Every interface: some servers cannot bind the loopback only.
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - a probe, closed at once
        except OSError:
            return False
        return True
