"""The client on asyncio: the same calls, which can be cancelled."""

import asyncio
import math
import threading
from typing import Any

import pytest

from eventplane.envelope import Envelope
from eventplane_client import ClientSettings, connect
from eventplane_client.aio import AsyncClient
from eventplane_client.errors import (
    ClientSettingsError,
    ClosedError,
    NothingThereError,
    NotRegisteredError,
    UnroutedError,
)
from tests.unit.client.worlds import MemoryWorld, event, reading

SOON = 20.0


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


def test_each_way_of_reading_hands_out_what_was_put(world: MemoryWorld) -> None:
    async def run() -> None:
        async with (
            AsyncClient(world.client(world.sender)) as sender,
            AsyncClient(world.client(world.reader)) as client,
            await client.subscribe() as inbox,
        ):
            for id in ("a", "b", "c"):
                await sender.put(event(id))
            assert (await inbox.get(SOON)).id == "a"
            received = await inbox.receive(SOON)
            assert received.event.id == "b"
            await inbox.ack(received)
            async for each in inbox:
                assert each.id == "c"
                break
            with pytest.raises(NothingThereError):
                await inbox.get(0.0)
            # An iteration ends when the inbox is closed.
            await sender.put(event("d"))
            async for _ in inbox:
                await inbox.close()

    asyncio.run(run())
    assert world.pending() == 0


@pytest.mark.parametrize("call", ["get", "receive"])
def test_what_a_cancelled_call_had_got_comes_with_the_next(world: MemoryWorld, call: str) -> None:
    async def run() -> None:
        async with (
            AsyncClient(world.client(world.reader)) as client,
            await client.subscribe() as inbox,
        ):
            take = getattr(inbox, call)
            taking = asyncio.create_task(take(SOON))
            await asyncio.sleep(0)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
            world.deliver(event("late"))
            found = await take(SOON)
            if call == "receive":
                await inbox.ack(found)
                found = found.event
            assert found.id == "late"

    asyncio.run(run())
    assert world.pending() == 0


class Fetching:
    """The client's thread has an event in its hands, and hands it out after `go_on`."""

    def __init__(self, world: MemoryWorld) -> None:
        self._began, self.go_on = threading.Event(), threading.Event()
        self.client = AsyncClient(world.client(world.reader, has_expired=self._wait))
        world.deliver(event("late"))

    async def began(self) -> None:
        assert await asyncio.to_thread(self._began.wait, SOON)

    def _wait(self, _event: Envelope) -> bool:
        self._began.set()
        assert self.go_on.wait(SOON)
        return False


@pytest.mark.parametrize("call", ["get", "receive"])
def test_what_a_cancelled_call_got_comes_again(world: MemoryWorld, call: str) -> None:
    async def run() -> None:
        fetching = Fetching(world)
        async with fetching.client:
            async with await fetching.client.subscribe() as inbox:
                taking = asyncio.create_task(getattr(inbox, call)(SOON))
                await fetching.began()
                taking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await taking
                fetching.go_on.set()
            with pytest.raises(ClosedError):
                await getattr(inbox, call)(SOON)

    asyncio.run(run())
    with reading(world) as inbox:
        assert inbox.get(0.0).id == "late"


def test_an_event_during_close_comes_once(world: MemoryWorld) -> None:
    async def run() -> Envelope | None:
        fetching = Fetching(world)
        async with fetching.client:
            inbox = await fetching.client.subscribe()
            reading = asyncio.create_task(anext(aiter(inbox), None))
            await fetching.began()
            closing = asyncio.create_task(inbox.close())
            await asyncio.sleep(0)  # now it is next in the client's thread
            fetching.go_on.set()
            assert inbox._inbox.wait_ended(SOON)  # and the reading task had no turn yet
            await closing
            return await reading

    found = asyncio.run(run())
    assert world.pending() == (1 if found is None else 0)


def test_a_request_goes_to_the_client_as_it_was_given() -> None:
    asked: list[object] = []

    class Asking:
        participant = "desk"

        def request(self, *given: object, **options: object) -> dict[str, object]:
            asked.append((given, options))
            return {}

    client: Any = Asking()
    sent = event()
    assert asyncio.run(AsyncClient(client).request(sent, 7.0, durable=False, expires=True)) == {}
    assert asked == [((sent, 7.0), {"durable": False, "expires": True})]


@pytest.mark.source("C5", "F5")
def test_it_refuses_by_the_same_names() -> None:
    async def run() -> None:
        async with (
            AsyncClient(connect(ClientSettings("memory:asyncio", "reader"))) as client,
            await client.subscribe() as inbox,
        ):
            for timeout_s in (-1.0, math.nan):
                with pytest.raises(ClientSettingsError):
                    await inbox.get(timeout_s)
            with pytest.raises(NotRegisteredError):
                await inbox.get(0.0)
            with pytest.raises(UnroutedError):
                await client.put(event())

    asyncio.run(run())
