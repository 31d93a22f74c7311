"""The world that moto plays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eventplane.contract import AddressScope, Contract
from tests.unit.lambdas.downlink.world import World


@pytest.fixture
def world(aws: None, contract: Contract) -> World:
    """With one device that is there, and one that is not; carers may address every device."""
    carers = replace(contract.participants["carers"], may_address=AddressScope.EVERYONE)
    world = World(replace(contract, participants={**contract.participants, "carers": carers}))
    world.make("home-1", "home-2")
    world.line("home-1", "connected")
    world.line("home-2", "disconnected")
    return world
