"""The presence monitor in memory."""

import pytest

from tests.fakes.aws import FakeAws
from tests.parts.presence.world import World


@pytest.fixture
def world(fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(fake_aws, monkeypatch)
