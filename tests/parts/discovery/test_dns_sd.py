"""DNS-SD without a network: what is announced, who is found, and whom a link to such a broker dials."""

import logging
import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from zeroconf import NonUniqueNameException, NotRunningException, ServiceInfo

from eventplane_client import connect
from eventplane_client.errors import ClientSettingsError
from eventplane_mqtt.endpoint import BrokerAddress, PinnedCertificate
from eventplane_mqtt.reconnection import Backoff
from parts.discovery import dns_sd
from parts.discovery.announcement import PLAIN, SECURE, AnnouncementUpdater, BrokerOffer, Interface
from parts.discovery.dns_sd import Announced, AnnouncedBroker, AnnouncedLink, BrokerBrowser, MulticastDnsError
from tests.unit.edge.fakes import Wires

pytestmark = pytest.mark.source("C9")

PINNED = PinnedCertificate(Path("broker.pem"))
OURS = Announced("home-1 1884", "home-1", ("192.0.2.7", "2001:db8::7"), 1884, False)
OTHERS = Announced("home-2 1885", "home-2", ("192.0.2.8",), 1885, False)
SECURED = Announced("home-1 8883", "home-1", ("192.0.2.7",), 8883, True)
HOME = Interface("home0", "192.0.2.1", ("192.0.2.1",))
SECONDS = 30


class Found:
    """A browser that finds what a test says."""

    def __init__(self) -> None:
        self.found: tuple[Announced, ...] = ()
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class World:
    """A link, and where it dialled. Each tick is a minute later."""

    def __init__(self, thing: str = "", certificate: PinnedCertificate | None = None, login: bool = False):
        self.browser: Any = Found()
        self.dialled: list[BrokerAddress] = []
        self.now = 0.0
        wires = Wires()

        def dial(address: BrokerAddress, generation: int) -> Any:
            self.dialled.append(address)
            return wires.dial(generation)

        wanted = AnnouncedBroker(thing, certificate, login)
        self.link = AnnouncedLink(
            wanted, lambda _: self.browser, dial, Backoff(0.1, 1.0, lambda: 1.0), 5.0, lambda: None
        )

    def tick(self) -> None:
        self.now += 60
        self.link.tick(self.now)

    def fail(self) -> None:
        """The attempt that was made fails, and the next one is made."""
        assert self.link.disconnected(self.link.generation, "nobody there", self.now)
        self.tick()


def test_nothing_is_dialled_until_a_broker_is_announced() -> None:
    world = World()
    world.tick()
    assert (world.dialled, world.link.deadline()) == ([], None)
    assert world.link.complaint == "no broker is announced in the home"
    world.browser.found = (OURS,)
    world.tick()
    assert world.dialled == [BrokerAddress("192.0.2.7", 1884)]
    assert world.link.complaint is None
    assert world.link.deadline() is not None


def test_addresses_are_dialled_in_turn() -> None:
    world = World()
    world.browser.found = (OURS, OTHERS)
    world.tick()
    for _ in range(3):
        world.fail()
    hosts = ["192.0.2.7", "2001:db8::7", "192.0.2.8", "192.0.2.7"]
    assert [each.host for each in world.dialled] == hosts
    world.fail()
    assert world.link.connected(world.link.generation, world.now)
    world.fail()
    assert [each.host for each in world.dialled[-2:]] == ["2001:db8::7", "2001:db8::7"]


def test_a_connection_stays_though_its_broker_is_announced_no_more() -> None:
    world = World()
    world.browser.found = (OURS,)
    world.tick()
    assert world.link.connected(1, world.now)
    world.browser.found = ()
    world.tick()
    assert world.link.up
    world.fail()
    assert len(world.dialled) == 1  # nobody is there to dial
    world.browser.found = (OTHERS,)
    world.tick()
    assert world.dialled[-1] == BrokerAddress("192.0.2.8", 1885)
    world.link.close(0)
    assert world.browser.is_closed


@pytest.mark.parametrize(
    ("thing", "certificate", "login", "dialled", "complaint"),
    [
        ("home-2", None, False, [BrokerAddress("192.0.2.8", 1885)], None),
        ("home-3", None, False, [], "it is of thing home-1"),
        ("home-1", PINNED, True, [BrokerAddress("192.0.2.7", 8883, PINNED)], None),
        ("home-2", PINNED, False, [], "home-2 1885: it does not use TLS"),
        ("", None, True, [], "home-1 1884: it would receive the password over the network without TLS"),
        ("", None, True, [], "home-1 8883: it uses TLS, and no certificate"),
    ],
)
def test_only_a_trusted_broker_is_dialled(
    thing: str,
    certificate: PinnedCertificate | None,
    login: bool,
    dialled: list[BrokerAddress],
    complaint: str | None,
) -> None:
    world = World(thing, certificate, login)
    world.browser.found = (OURS, OTHERS, SECURED)
    world.tick()
    assert world.dialled == dialled
    if complaint is None:
        assert world.link.complaint is None
    else:
        assert complaint in (world.link.complaint or "")


def test_a_missing_library_is_an_error_that_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    monkeypatch.delitem(sys.modules, "parts.discovery.dns_sd")
    before = threading.active_count()
    with pytest.raises(ClientSettingsError, match="install python3-zeroconf"):
        connect("mqtt-dns-sd:", "lamp")
    assert threading.active_count() == before


class FakeZeroconf:
    """What the library knows of the network at one interface; `tell` is of the service `name`."""

    def __init__(self) -> None:
        self.listener: Any = None
        self.is_closed = False
        self.is_taken = False

    def tell(self, event: str, name: str = "home-1 1884", kind: str = PLAIN) -> None:
        getattr(self.listener, f"{event}_service")(self, kind, f"{name}.{kind}")

    def register_service(self, info: ServiceInfo, *, allow_name_change: bool) -> None:
        assert allow_name_change
        if self.is_taken:
            raise NonUniqueNameException

    def unregister_service(self, info: ServiceInfo) -> None:
        raise NotRunningException

    def get_service_info(self, kind: str, name: str, timeout_ms: int) -> ServiceInfo:
        properties = {"thing": "home-1"}
        return ServiceInfo(kind, name, 1884, parsed_addresses=["192.0.2.7"], properties=properties)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> FakeZeroconf:
    it = FakeZeroconf()
    monkeypatch.setattr(dns_sd, "_open", lambda _: it)
    return it


def test_a_socket_is_bound_to_its_interface_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second time needs CAP_NET_RAW, which the service does not have; senders are readers as well."""

    class Socket:
        def __init__(self, number: int) -> None:
            self.number, self.bound = number, 0

        def fileno(self) -> int:
            return self.number

        def setsockopt(self, *_: object) -> None:
            self.bound += 1

    sockets = [Socket(3), Socket(4)]
    transports = [SimpleNamespace(sock=each) for each in sockets]
    engine = SimpleNamespace(readers=transports, senders=transports[1:])
    monkeypatch.setattr(dns_sd, "Zeroconf", lambda **_: SimpleNamespace(engine=engine))
    dns_sd._open(HOME)
    assert [each.bound for each in sockets] == [1, 1]


def test_a_browser_follows_interfaces(network: FakeZeroconf, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = threading.Semaphore(0)
    interfaces = [HOME]
    monkeypatch.setattr(dns_sd, "home_interfaces", lambda _: interfaces)
    monkeypatch.setattr(dns_sd, "_CHECK_EVERY_S", 0.01)
    opened = threading.Event()

    def browse(_network: FakeZeroconf, kinds: list[str], listener: Any) -> None:
        assert kinds == [PLAIN, SECURE]
        _network.listener = listener
        opened.set()

    monkeypatch.setattr(dns_sd, "ServiceBrowser", browse)
    browser = BrokerBrowser((), changed.release)
    assert opened.wait(SECONDS)
    for event, found in (("add", True), ("remove", False), ("update", True)):
        network.tell(event)
        assert changed.acquire(timeout=SECONDS)
        assert [each.thing for each in browser.found] == (["home-1"] if found else [])
    interfaces.clear()
    assert changed.acquire(timeout=SECONDS)
    assert (browser.found, network.is_closed) == ((), True)
    browser.close()


@pytest.mark.parametrize("error", [OSError("no such device"), NotRunningException()])
def test_an_interface_that_cannot_be_used_ends_nothing(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = threading.Semaphore(0)

    def refuse(_interface: Interface) -> None:
        asked.release()
        raise error

    monkeypatch.setattr(dns_sd, "_open", refuse)
    monkeypatch.setattr(dns_sd, "home_interfaces", lambda _: [HOME])
    monkeypatch.setattr(dns_sd, "_CHECK_EVERY_S", 0.01)
    browser = BrokerBrowser((), lambda: None)
    assert all(asked.acquire(timeout=SECONDS) for _ in range(2))
    browser.close()
    assert "home0: brokers cannot be found there" in caplog.text


def test_a_malformed_name_does_not_hide_the_others(
    network: FakeZeroconf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def browse(_network: Any, kinds: list[str], listener: Any) -> None:
        for name in ("a\x00b", "good"):
            listener.add_service(_network, PLAIN, f"{name}.{PLAIN}")

    monkeypatch.setattr(dns_sd, "ServiceBrowser", browse)
    with caplog.at_level(logging.WARNING):
        assert dns_sd.find([HOME], 0.0) == [Announced("good", "home-1", ("192.0.2.7",), 1884, False)]
    assert "skipped the announcement" in caplog.text


def test_a_taken_name(network: FakeZeroconf, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    network.is_taken = True
    with pytest.raises(MulticastDnsError, match="home0: multicast DNS: NonUniqueName"):
        dns_sd.announce("home-1", HOME, [BrokerOffer(PLAIN, 1884, HOME.addresses)])
    assert network.is_closed
    profile = tmp_path / "mosquitto.conf"
    profile.write_text("listener 1884\n")
    updater = AnnouncementUpdater(profile, ["home0"], lambda _: HOME, partial(dns_sd.announce, "home-1"))
    updater.update()
    assert "nothing is announced on home0" in caplog.text
    assert network.is_closed
    network.is_taken, network.is_closed = False, False
    with caplog.at_level(logging.INFO):
        updater.update()
    assert "announced _mqtt._tcp" in caplog.text
    # Without a goodbye the sockets are freed.
    updater.close()
    assert network.is_closed
    assert "home0: not withdrawn" in caplog.text
