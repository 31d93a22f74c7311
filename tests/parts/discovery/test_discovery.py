"""Discovery: where a profile leads, a link that follows it, and what is announced."""

import logging
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from eventplane_mqtt.endpoint import BrokerAddress, DiscoveryError
from eventplane_mqtt.profile import ProfileError, load_profile, read_profile
from eventplane_mqtt.reconnection import Backoff
from lab.tools.device_image import PACKAGING
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
from parts.discovery.broker import CHECK_EVERY_S, NoListenerError, ProfileLink, choose, evaluate
from tests.odd_profiles import ODD_PROFILES, Odd
from tests.unit.edge.fakes import FakeWire, Wires


def filled(text: str, folder: Path) -> str:
    return text.replace("PORT", "1884").replace("OTHER", "1885").replace("FOLDER", str(folder))


def address_of(odd: Odd, folder: Path) -> str:
    (folder / "conf.d").mkdir()
    for name, text in odd.included.items():
        (folder / "conf.d" / name).write_text(filled(text, folder))
    file = folder / "profile"
    file.write_bytes(filled(odd.text, folder).encode())
    return str(choose(load_profile(file), has_login=odd.has_login))


@pytest.mark.source("C9")
@pytest.mark.parametrize("odd", ODD_PROFILES, ids=lambda odd: odd.name)
def test_it_leads_where_mosquitto_listens(odd: Odd, tmp_path: Path) -> None:
    if odd.address is not None:
        assert address_of(odd, tmp_path) == filled(odd.address, tmp_path)
        return
    with pytest.raises(DiscoveryError) as caught:
        address_of(odd, tmp_path)
    assert odd.refusal in str(caught.value)
    assert caught.value.remedy


def test_our_own_profile_leads_to_the_settings_defaults() -> None:
    assert str(choose(load_profile(PACKAGING / "mosquitto.conf"), has_login=False)) == "127.0.0.1:1883"


def test_each_listener_is_accepted_or_rejected_with_a_reason() -> None:
    listeners = read_profile("listener 1884\nlistener 9001\nprotocol websockets\n")
    (here, address), (web, reason) = evaluate(listeners, has_login=False)
    assert [str(here), str(address)] == ["listener 1884 on every address", "127.0.0.1:1884"]
    assert reason == "uses websockets, not plain MQTT"
    with pytest.raises(NoListenerError) as caught:
        choose([web, *read_profile("listener 2\npsk_hint a\n")], has_login=False)
    assert len(caught.value.problem.split("; ")) == 2


@pytest.mark.parametrize("file", ["absent", "."])
def test_a_file_that_cannot_be_read_is_named(file: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=str(tmp_path / file)):
        load_profile(tmp_path / file)


def test_a_file_that_cannot_be_a_profile_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "disk").open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(ProfileError, match="more than"):
        load_profile(tmp_path / "disk")


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
