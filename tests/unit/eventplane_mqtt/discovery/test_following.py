"""A line that follows a profile: where it dials, when it leaves, and what it says of a broken one."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from eventplane_mqtt.discovery.broker import CHECK_EVERY_S, BrokerFinder, ProfileLink
from eventplane_mqtt.endpoint import BrokerAddress
from eventplane_mqtt.link import Backoff
from tests.unit.edge.fakes import Wires

FALLBACK = BrokerAddress("127.0.0.1", 1883)


def at(port: int) -> BrokerAddress:
    return BrokerAddress("127.0.0.1", port)


class Profile:
    """A file that says where the broker is, and the finder that reads it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "mosquitto.conf"
        self.finder = BrokerFinder(self.file, FALLBACK, has_login=False)
        self.now = 0.0

    def says(self, port: int) -> None:
        self.file.write_text(f"listener {port} 127.0.0.1\n")

    def moved(self) -> bool:
        self.now += CHECK_EVERY_S
        return self.finder.has_moved(self.now)

    def connect(self) -> BrokerAddress:
        address = self.finder.next()
        self.finder.connected()
        return address


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile(tmp_path)


def test_without_a_profile_the_settings_count_and_with_a_broken_one_its_last_address(
    profile: Profile, caplog: pytest.LogCaptureFixture
) -> None:
    assert profile.finder.next() == FALLBACK
    assert "No such file" in (profile.finder.complaint or "")
    profile.says(1884)
    assert profile.finder.next() == at(1884)
    assert profile.finder.complaint is None
    profile.says(70_000)
    assert [profile.finder.next() for _ in range(3)] == [at(1884)] * 3
    assert "'70000' is no port" in (profile.finder.complaint or "")
    # Once of each complaint.
    assert [each for each in caplog.messages if "70000" in each] == [
        f"the broker's profile cannot be used, 127.0.0.1:1884 remains: {profile.finder.complaint}"
    ]


def test_without_an_answer_every_second_dial_goes_to_the_address_that_worked(profile: Profile) -> None:
    profile.says(1884)
    assert [profile.finder.next() for _ in range(3)] == [at(1884)] * 3
    profile.finder.connected()
    profile.says(1885)
    assert [profile.finder.next() for _ in range(4)] == [at(1885), at(1884), at(1885), at(1884)]
    profile.finder.next()
    profile.finder.connected()
    assert [profile.finder.next() for _ in range(3)] == [at(1885)] * 3


def test_a_move_is_reported_once_and_only_when_two_checks_agree(profile: Profile) -> None:
    profile.says(1884)
    profile.connect()
    assert not any(profile.moved() for _ in range(3))
    profile.file.write_text("")  # as it is while somebody writes it
    assert not profile.moved()
    profile.says(1885)
    assert [profile.moved() for _ in range(4)] == [False, True, False, False]
    profile.says(70_000)
    assert not any(profile.moved() for _ in range(3))
    assert profile.finder.complaint


def test_a_connection_to_the_former_address_stays_when_the_profile_returns_to_it(profile: Profile) -> None:
    profile.says(1884)
    profile.connect()
    profile.says(1885)
    assert [profile.moved() for _ in range(2)] == [False, True]
    assert [profile.finder.next(), profile.connect()] == [at(1885), at(1884)]
    assert not any(profile.moved() for _ in range(3))
    profile.says(1884)
    assert not any(profile.moved() for _ in range(3))


def test_the_profile_is_not_read_between_two_checks(profile: Profile) -> None:
    profile.says(1884)
    profile.connect()
    assert not profile.finder.has_moved(100.0)
    profile.says(70_000)
    profile.finder.has_moved(100.0 + CHECK_EVERY_S - 0.1)
    assert profile.finder.complaint is None


def test_the_link_leaves_a_broker_that_moved_and_dials_the_new_one(
    profile: Profile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    wires, dialled = Wires(), []

    def dial(address: BrokerAddress, generation: int) -> object:
        dialled.append(address)
        return wires.dial(generation)

    profile.says(1884)
    link = ProfileLink(profile.file, FALLBACK, dial, Backoff(0.1, 1.0, lambda: 1.0), 5.0, has_login=False)  # type: ignore[arg-type]
    link.tick(0.0)
    assert link.connected(1, 0.0)
    profile.says(1885)
    link.tick(10.0)
    assert not wires.last.abandoned
    link.tick(10.0 + CHECK_EVERY_S)
    assert wires.last.abandoned
    # Like any other end: whoever waits for confirmations hears of it.
    assert link.up
    assert link.disconnected(1, "abandoned", 20.0)
    link.tick(30.0)
    assert dialled == [at(1884), at(1885)]
    assert f"{profile.file}: the broker is at 127.0.0.1:1885" in caplog.messages
    profile.says(70_000)
    assert link.connected(2, 30.0)
    link.tick(40.0)
    assert "70000" in (link.complaint or "")
