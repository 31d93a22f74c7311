"""A link that follows a profile: where it dials, when it leaves, and what it says of a broken one."""

import logging
from pathlib import Path

import pytest

from eventplane_mqtt.endpoint import BrokerAddress
from eventplane_mqtt.link import Backoff
from parts.discovery.broker import CHECK_EVERY_S, ProfileLink
from tests.unit.edge.fakes import FakeWire, Wires

FALLBACK = BrokerAddress("127.0.0.1", 1883)


def at(port: int) -> BrokerAddress:
    return BrokerAddress("127.0.0.1", port)


class Profile:
    """A file that says where the broker is, and the link that reads it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "mosquitto.conf"
        self.wires = Wires()
        self.link = ProfileLink(
            self.file, FALLBACK, self._dial, Backoff(0.1, 1.0, lambda: 1.0), 5.0, has_login=False
        )
        self.now = 0.0

    def says(self, port: int) -> None:
        self.file.write_text(f"listener {port} 127.0.0.1\n")

    def dials(self, count: int = 1) -> list[BrokerAddress]:
        """Where the next dials go, after the connection or the attempt before has failed."""
        found = []
        for _ in range(count):
            self.link.disconnected(self.link.generation, "gone", self.now)
            self.now += 60.0
            self.link.tick(self.now)
            found.append(self.dialled)
        return found

    def connected(self) -> None:
        assert self.link.connected(self.link.generation, self.now)

    def leaves(self, after: float = CHECK_EVERY_S) -> bool:
        """Whether the link then leaves the broker; it is up until its end is reported, like any other."""
        self.wires.last.abandoned = False
        self.now += after
        self.link.tick(self.now)
        assert self.link.up
        return self.wires.last.abandoned

    def _dial(self, address: BrokerAddress, generation: int) -> FakeWire:
        self.dialled = address
        return self.wires.dial(generation)


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile(tmp_path)


@pytest.fixture
def connected(profile: Profile) -> Profile:
    """A link to the broker at 1884."""
    profile.says(1884)
    profile.dials()
    profile.connected()
    return profile


def test_settings_count_without_a_profile(profile: Profile, caplog: pytest.LogCaptureFixture) -> None:
    assert profile.dials() == [FALLBACK]
    assert "No such file" in (profile.link.complaint or "")
    profile.says(1884)
    assert profile.dials() == [at(1884)]
    assert profile.link.complaint is None
    profile.says(70_000)
    assert profile.dials(3) == [at(1884)] * 3
    assert "'70000' is no port" in (profile.link.complaint or "")
    # Once of each complaint.
    assert [each for each in caplog.messages if each.startswith("the broker's") and "70000" in each] == [
        f"the broker's profile cannot be used, 127.0.0.1:1884 remains: {profile.link.complaint}"
    ]


def test_the_known_address_is_dialled_in_turn(profile: Profile) -> None:
    profile.says(1884)
    assert profile.dials(3) == [at(1884)] * 3
    profile.connected()
    profile.says(1885)
    assert profile.dials(5) == [at(1885), at(1884), at(1885), at(1884), at(1885)]
    profile.connected()
    assert profile.dials(3) == [at(1885)] * 3


def test_it_leaves_when_two_checks_agree(connected: Profile, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert not any(connected.leaves() for _ in range(3))
    connected.file.write_text("")  # as it is while somebody writes it
    assert not connected.leaves()
    connected.says(1885)
    assert [connected.leaves() for _ in range(4)] == [False, True, False, False]
    assert f"{connected.file}: the broker is at 127.0.0.1:1885" in caplog.messages
    connected.says(70_000)
    assert not any(connected.leaves() for _ in range(3))
    assert connected.link.complaint


def test_a_returning_profile_keeps_connections(connected: Profile) -> None:
    connected.says(1885)
    assert [connected.leaves() for _ in range(2)] == [False, True]
    assert connected.dials(2) == [at(1885), at(1884)]
    connected.connected()
    assert not any(connected.leaves() for _ in range(3))
    connected.says(1884)
    assert not any(connected.leaves() for _ in range(3))


def test_the_profile_is_not_read_between_two_checks(connected: Profile) -> None:
    assert not connected.leaves()
    connected.says(70_000)
    connected.leaves(CHECK_EVERY_S - 0.1)
    assert connected.link.complaint is None
