"""The world that moto plays."""

from __future__ import annotations

import pytest

from eventplane.contract import Contract
from tests.unit.lambdas.downlink.world import World


@pytest.fixture
def world(aws: None, contract: Contract) -> World:
    """With one device that is there, and one that is not."""
    world = World(contract)
    world.make("home-1", "home-2")
    world.line("home-1", "connected")
    world.line("home-2", "disconnected")
    return world
