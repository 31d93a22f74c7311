"""What a line does to the bytes that pass it, as far as somebody between two TCP connections can do it.

A lost segment is the stall that its retransmission costs the stream; that a window shrinks, that segments
come out of order and that an acknowledgement of TCP is lost cannot be done from here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

SEGMENT_BYTES: Final = 1_460
"""Payload of one TCP segment on Ethernet: what is lost at a time."""

RETRANSMISSION_S: Final = 0.2
"""Least time after which Linux sends a segment again; a round trip of the line comes on top."""

_CHUNK_BYTES: Final = 65_536
_UNDER_WAY: Final = 16
"""Chunks on the line at most; then its sender has to wait, as for a full window."""


@dataclass(frozen=True, slots=True)
class Weather:
    """`delay_s` of one direction, the `loss` of segments as a share of 1, most `bytes_per_s` (None: any).

    A `silent` line takes what it is given and passes nothing, until it is not silent any more.
    """

    delay_s: float = 0.0
    loss: float = 0.0
    bytes_per_s: int | None = None
    silent: bool = False

    def hold_s(self, size: int, random: Random) -> float:
        """How long so many bytes are held up: the delay, and a stall for each lost segment."""
        segments = -(-size // SEGMENT_BYTES) if self.loss else 0
        lost = sum(random.random() < self.loss for _ in range(segments))
        return self.delay_s + lost * (RETRANSMISSION_S + 2 * self.delay_s)

    @property
    def chunk_bytes(self) -> int:
        """How much passes at a time: on a narrow line a tenth of a second's worth."""
        return max(1, self.bytes_per_s // 10) if self.bytes_per_s else _CHUNK_BYTES


FAIR: Final = Weather()


class Sky:
    """The weather of a line, `now`; who waits in it is woken when it changes. For one event loop."""

    def __init__(self) -> None:
        self.now = FAIR
        self._changed = asyncio.Event()

    def change(self, weather: Weather) -> None:
        """From now on it is `weather`."""
        self.now = weather
        self._changed.set()
        self._changed = asyncio.Event()

    async def until_loud(self) -> None:
        """Wait while it is silent."""
        while self.now.silent:
            await self._changed.wait()

    async def pace(self, size: int) -> None:
        """Wait for as long as so many bytes take, or until the weather changes."""
        if self.now.bytes_per_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(size / self.now.bytes_per_s):
                    await self._changed.wait()


async def carry(
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    sky: Sky,
    count: Callable[[int], None],
    random: Random,
) -> None:
    """Pass everything from `source` to `sink`, in order, in the weather of each moment.

    What is under way stays delayed by the weather in which it set out; how much passes at a time, and whether
    anything does, is of the moment. `count` is told the bytes as they are passed.
    """
    line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_UNDER_WAY)
    clock = asyncio.get_running_loop().time

    async def take() -> None:
        while chunk := await source.read(sky.now.chunk_bytes):
            await line.put((clock() + sky.now.hold_s(len(chunk), random), chunk))
        await line.put((clock(), b""))

    async def give() -> None:
        while True:
            due, chunk = await line.get()
            if (wait_s := due - clock()) > 0:
                await asyncio.sleep(wait_s)
            await sky.until_loud()
            if not chunk:
                sink.write_eof()
                return
            while chunk:
                await sky.until_loud()
                some, chunk = chunk[: sky.now.chunk_bytes], chunk[sky.now.chunk_bytes :]
                count(len(some))
                sink.write(some)
                await sink.drain()
                await sky.pace(len(some))

    async with asyncio.TaskGroup() as both:
        both.create_task(take())
        both.create_task(give())
