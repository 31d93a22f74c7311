"""The client on asyncio."""

from __future__ import annotations

import asyncio
import math

import pytest

from eventplane_client import ClientSettings, connect
from eventplane_client.aio import AsyncClient
from eventplane_client.errors import (
    ClientSettingsError,
    NothingThereError,
    NotRegisteredError,
    UnroutedError,
)
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


@pytest.mark.parametrize("call", ["get", "receive"])
def test_what_a_cancelled_call_had_got_comes_with_the_next(world: World, call: str) -> None:
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


@pytest.mark.source("C5", "F5")
def test_it_refuses_by_the_same_names() -> None:
    async def run() -> None:
        async with (
            AsyncClient(connect(ClientSettings("reader", "memory:asyncio"))) as client,
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
