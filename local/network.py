"""The line between a home and the cloud, which can be cut, healed, and have weather.

It passes bytes, whatever they are: mutual TLS goes through untouched.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from random import Random
from types import TracebackType
from typing import Any, Self

from local.ports import LOOPBACK, free_port
from local.weather import Sky, Weather, carry


class Link:
    """One home's line: what connects to 127.0.0.1:`port` reaches the target. Made by `Network.link`.

    `bytes_up` and `bytes_down` count what went to the target and what came back, TLS included.
    """

    def __init__(self, network: Network, host: str, port: int) -> None:
        self.port = free_port()
        self.bytes_up = 0
        self.bytes_down = 0
        self._network = network
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._sky = Sky()
        self._random = Random(self.port)

    @property
    def is_cut(self) -> bool:
        """Whether the line is interrupted."""
        return self._server is None

    def cut(self) -> None:
        """Close every connection and refuse new ones, until `heal`. Nothing if it is cut already."""
        self._network.run(self._cut())

    def heal(self) -> None:
        """Accept connections again, on the same port. Nothing if the line is whole."""
        self._network.run(self._heal())

    def drop(self) -> None:
        """Close every connection, and accept new ones at once."""
        self._network.run(self._drop())

    def set_weather(self, weather: Weather) -> None:
        """From now on, for the connections that stand and for those that come."""
        self._network.run(self._set_weather(weather))

    async def _set_weather(self, weather: Weather) -> None:
        self._sky.change(weather)

    async def _heal(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, LOOPBACK, self.port)

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
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
                both.create_task(self._up(home, to_cloud))
                both.create_task(self._down(cloud, to_home))
        except* OSError:
            pass  # either side hung up
        finally:
            to_cloud.transport.abort()

    async def _up(self, home: asyncio.StreamReader, to_cloud: asyncio.StreamWriter) -> None:
        def count(size: int) -> None:
            self.bytes_up += size

        await carry(home, to_cloud, self._sky, count, self._random)

    async def _down(self, cloud: asyncio.StreamReader, to_home: asyncio.StreamWriter) -> None:
        def count(size: int) -> None:
            self.bytes_down += size

        await carry(cloud, to_home, self._sky, count, self._random)


class Network:
    """All lines of a run, served by one thread of its own. Use it in a `with` block, which ends them all."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._links: list[Link] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for link in self._links:
            link.cut()
        # One turn more, in which the aborted transports close their sockets.
        self.run(asyncio.sleep(0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def link(self, host: str, port: int) -> Link:
        """A whole line to `host`:`port`.

        Raises:
            OSError: the line's own port was taken meanwhile.
        """
        link = Link(self, host, port)
        link.heal()
        self._links.append(link)
        return link

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` on the network's thread, and wait for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result()
