"""What is announced on a network, and what is not."""

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from eventplane_mqtt.profile import read_profile
from parts.discovery import announcement
from parts.discovery.announcement import (
    PLAIN,
    SECURE,
    AnnouncementUpdater,
    BrokerOffer,
    Interface,
    InterfaceError,
    UnannouncedError,
    read_interface,
    services,
)

HOME = Interface("home0", "192.0.2.7", ("192.0.2.7", "2001:db8::7"))
TLS = "certfile /c\nkeyfile /k\n"
MULTICAST, POINT_TO_POINT = 0x1000, 0x10


@pytest.mark.parametrize(
    ("profile", "announced"),
    [
        ("listener 1884\nallow_anonymous true\n", [BrokerOffer(PLAIN, 1884, HOME.addresses, anonymous=True)]),
        ("listener 1884\nsocket_domain ipv6\n", [BrokerOffer(PLAIN, 1884, ("2001:db8::7",))]),
        ("listener 1884 0.0.0.0\n", [BrokerOffer(PLAIN, 1884, ("192.0.2.7",))]),
        ("listener 1884 ::\n", [BrokerOffer(PLAIN, 1884, ("2001:db8::7",))]),
        ("listener 1884 192.0.2.7\n", [BrokerOffer(PLAIN, 1884, ("192.0.2.7",))]),
        ("listener 1884 2001:DB8:0::7\n", [BrokerOffer(PLAIN, 1884, ("2001:db8::7",))]),
        ("listener 1884\nbind_interface home0\n", [BrokerOffer(PLAIN, 1884, HOME.addresses)]),
        (f"listener 8883\n{TLS}", [BrokerOffer(SECURE, 8883, HOME.addresses)]),
        (f"listener 1883 ::1\nlistener 8883 192.0.2.7\n{TLS}", [BrokerOffer(SECURE, 8883, ("192.0.2.7",))]),
    ],
)
def test_listeners_that_the_home_reaches_are_announced(profile: str, announced: list[BrokerOffer]) -> None:
    assert services(read_profile(profile), HOME) == announced


@pytest.mark.parametrize(
    "profile",
    [
        "",
        "listener 1884 127.0.0.1\n",
        "listener 1884 localhost\n",
        "listener 1884 198.51.100.1\n",
        "listener 1884\nbind_interface lo\n",
        "listener 1884\nprotocol websockets\n",
        "listener 0 /run/mqtt.sock\n",
    ],
)
def test_listeners_that_the_home_does_not_reach_are_not_announced(profile: str) -> None:
    with pytest.raises(UnannouncedError, match=r"add a listener at 192\.0\.2\.7"):
        services(read_profile(profile), HOME)


@pytest.mark.parametrize(
    ("name", "problem"), [("lo", "the loopback interface"), ("absent0", "No such device")]
)
def test_an_interface_without_a_home_behind_it_is_refused(name: str, problem: str) -> None:
    with pytest.raises(InterfaceError, match=problem):
        read_interface(name)


@pytest.mark.parametrize("flags", [MULTICAST | POINT_TO_POINT, 0])
def test_an_uplink_or_tunnel_is_refused(monkeypatch: pytest.MonkeyPatch, flags: int) -> None:
    monkeypatch.setattr(announcement.fcntl, "ioctl", lambda *_: struct.pack("16xH238x", flags))
    with pytest.raises(InterfaceError, match="leads to one peer"):
        read_interface("wwan0")


class Announcers:
    """What is said on the network."""

    def __init__(self) -> None:
        self.said: list[object] = []

    def announce(self, interface: Interface, services: Sequence[BrokerOffer]) -> Callable[[], None]:
        self.said += [interface.name, [each.port for each in services]]
        return lambda: self.said.append("goodbye")


def test_it_follows_profile_and_interface(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    profile, announcers, now = tmp_path / "mosquitto.conf", Announcers(), [HOME]

    def read(name: str) -> Interface:
        if not now:
            raise InterfaceError(name, "it has no IPv4 address yet", "wait")
        return now[0]

    updater = AnnouncementUpdater(profile, ["home0"], read, announcers.announce)

    def update() -> list[object]:
        announcers.said.clear()
        updater.update()
        return list(announcers.said)

    assert [update(), update()] == [[], []]  # no such profile
    profile.write_text("listener 1884\nallow_anonymous true\n")
    assert [update(), update()] == [["home0", [1884]], []]
    profile.write_text("listener 1885\n")
    assert update() == ["goodbye", "home0", [1885]]
    now[0] = Interface("home0", "192.0.2.8", ("192.0.2.8",))
    assert update() == ["goodbye", "home0", [1885]]
    profile.write_text("listener 1885 127.0.0.1\n")
    assert [update(), update()] == [["goodbye"], []]
    profile.write_text("listener 1885\n")
    assert update() == ["home0", [1885]]
    now.clear()
    assert update() == ["goodbye"]
    now.append(HOME)
    assert update() == ["home0", [1885]]
    updater.close()
    assert announcers.said[-1] == "goodbye"
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert [each.partition(": ")[0] for each in errors] == ["nothing is announced on home0"] * 3
    assert "accepts everybody in the home" in caplog.text
