"""The downlink in memory."""

from dataclasses import replace

import pytest

from eventplane.contract import AddressScope, Contract
from tests.fakes.aws import FakeAws
from tests.unit.lambdas.downlink.world import World


@pytest.fixture
def strict(fake_aws: FakeAws, contract: Contract, monkeypatch: pytest.MonkeyPatch) -> World:
    """By the shipped contract: carers address one home at a time, operations every device.

    One device is connected, and one is not.
    """
    world = World(fake_aws, contract, monkeypatch)
    world.make("home-1", "home-2", groups=frozenset({"north"}))
    world.line("home-1", "connected")
    world.line("home-2", "disconnected")
    return world


@pytest.fixture
def world(strict: World) -> World:
    """Carers may address every device."""
    participants = dict(strict.contract.participants)
    participants["carers"] = replace(participants["carers"], may_address=AddressScope.EVERYONE)
    strict.contract = replace(strict.contract, participants=participants)
    return strict
