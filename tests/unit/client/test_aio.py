"""The client on asyncio."""

from __future__ import annotations

import asyncio

import pytest

from eventplane_client.aio import AsyncClient
from eventplane_client.errors import NothingThereError
from tests.unit.client.worlds import World, event

SOON = 20.0


def test_put_get_and_own_hands(world: World) -> None:
    async def run() -> None:
        async with (
            AsyncClient(world.client(world.sender)) as sender,
            AsyncClient(world.client(world.reader)) as client,
            await client.subscribe() as inbox,
        ):
            for id in ("a", "b", "c"):
                await sender.put(event(id))
            got = {(await inbox.get(SOON)).id}
            received = await inbox.receive(SOON)
            got.add(received.event.id)
            await inbox.ack(received)
            async for each in inbox:
                got.add(each.id)
                break
            assert got == {"a", "b", "c"}
            with pytest.raises(NothingThereError):
                await inbox.get(0.0)

    asyncio.run(run())
    assert world.pending() == 0


def test_what_a_cancelled_get_had_got_comes_with_the_next(world: World) -> None:
    async def run() -> None:
        async with (
            AsyncClient(world.client(world.reader)) as client,
            await client.subscribe() as inbox,
        ):
            getting = asyncio.create_task(inbox.get(SOON))
            await asyncio.sleep(0)
            getting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await getting
            world.deliver(event("late"))
            assert (await inbox.get(SOON)).id == "late"

    asyncio.run(run())


def test_what_a_cancelled_receive_had_got_comes_with_the_next(world: World) -> None:
    async def run() -> None:
        async with (
            AsyncClient(world.client(world.reader)) as client,
            await client.subscribe() as inbox,
        ):
            receiving = asyncio.create_task(inbox.receive(SOON))
            await asyncio.sleep(0)
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            world.deliver(event("late"))
            received = await inbox.receive(SOON)
            assert received.event.id == "late"
            await inbox.ack(received)

    asyncio.run(run())
    assert world.pending() == 0


def test_an_iteration_ends_when_the_inbox_is_closed(world: World) -> None:
    async def run() -> list[str]:
        async with AsyncClient(world.client(world.reader)) as client, await client.subscribe() as inbox:
            world.deliver(event("one"))
            found = []
            async for each in inbox:
                found.append(each.id)
                await inbox.close()
            return found

    assert asyncio.run(run()) == ["one"]
