"""DNS-SD over multicast DNS, by the library zeroconf: the one module of the device that needs a package.

It uses more memory than the forwarder, so only the commands `announce` and `discovery find` load it, and
services that find their broker by it. Without the library its import raises `LibraryMissingError`.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from eventplane_mqtt.endpoint import BrokerAddress, DiscoveryError, PinnedCertificate
from eventplane_mqtt.mailbox import LinkName
from eventplane_mqtt.reconnection import Backoff, DialAddress, Link
from parts.discovery.announcement import PLAIN, SECURE, BrokerOffer, Interface, home_interfaces


class MulticastDnsError(DiscoveryError):
    """Multicast DNS refuses an announcement on the interface `subject`."""


class LibraryMissingError(DiscoveryError):
    """The library for DNS-SD is not installed, or too old."""

    subject: str = "DNS-SD"
    problem: str = "the Python package zeroconf, version 0.131 or later, is missing"
    remedy: str = "install python3-zeroconf, or pip install zeroconf"


try:
    from zeroconf import Error, IPVersion, ServiceBrowser, ServiceInfo, ServiceListener, Zeroconf, __version__
except ImportError as error:
    raise LibraryMissingError from error
if tuple(map(int, __version__.split(".")[:2])) < (0, 131):
    raise LibraryMissingError  # its sockets cannot be bound to an interface

_log = logging.getLogger(__name__)

_MOST_LABEL_BYTES = 63
_RESOLVE_MS = 3_000
"""Timeout of one device's answer, milliseconds."""

_CHECK_EVERY_S = 10.0
"""Between two checks of the interfaces while no announcement changes, seconds."""


class Announced(NamedTuple):
    """A broker that is announced in the home; announcements are not authenticated."""

    name: str
    thing: str
    hosts: tuple[str, ...]
    port: int
    with_tls: bool


def announce(thing: str, interface: Interface, services: Sequence[BrokerOffer]) -> Callable[[], None]:
    """Announce the broker of `thing` on one interface, and return the function that withdraws that.

    Takes a second, to probe that names are free. Raises `MulticastDnsError`; withdrawing does not.
    """
    announced: list[ServiceInfo] = []

    def withdraw() -> None:
        try:
            while announced:
                zeroconf.unregister_service(announced.pop())
        except Error as error:
            _log.warning("%s: not withdrawn, the announcement expires by itself: %r", interface.name, error)
        finally:
            zeroconf.close()

    with _named_errors(interface.name):
        zeroconf = _open(interface)
        try:
            for each in services:
                zeroconf.register_service(info := _info(thing, each), allow_name_change=True)
                announced.append(info)
        except BaseException:
            withdraw()
            raise
    return withdraw


def _info(thing: str, service: BrokerOffer) -> ServiceInfo:
    label = "".join(each if each.isalnum() else "-" for each in thing.lower())
    return ServiceInfo(
        service.kind,
        f"{thing[: _MOST_LABEL_BYTES - 6]} {service.port}.{service.kind}",
        service.port,
        properties={"thing": thing},
        server=f"{label[:_MOST_LABEL_BYTES]}.local.",
        parsed_addresses=list(service.addresses),
    )


def find(interfaces: Iterable[Interface], seconds: float) -> list[Announced]:
    """Return the brokers that are announced within `seconds`."""
    with contextlib.ExitStack() as opened:
        listeners = []
        for each in interfaces:
            with _named_errors(each.name):
                listeners.append(_ServiceNames(_open(each)))
            opened.callback(listeners[-1].close)
        time.sleep(seconds)
        return sorted({found for each in listeners for found in each.resolve()})


class BrokerBrowser:
    """Keeps `found` current: the brokers announced on the interfaces called `names` (none: on all).

    `on_change` is called by a thread of the browser whenever `found` changes. Interfaces may come and go.
    """

    def __init__(self, names: Sequence[str], on_change: Callable[[], None]) -> None:
        self.found: tuple[Announced, ...] = ()
        self._names = names
        self._on_change = on_change
        self._listeners: dict[Interface, _ServiceNames] = {}
        self._changed = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="dns-sd", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop browsing, and free the sockets."""
        self._closed = True
        self._changed.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closed:
                self._listen_on(home_interfaces(self._names))
                listeners = self._listeners.values()
                found = tuple(sorted({each for listener in listeners for each in listener.resolve()}))
                if found != self.found:
                    self.found = found
                    self._on_change()
                self._changed.wait(_CHECK_EVERY_S)
                self._changed.clear()
        finally:
            self._listen_on([])

    def _listen_on(self, interfaces: Sequence[Interface]) -> None:
        for gone in self._listeners.keys() - set(interfaces):
            self._listeners.pop(gone).close()
        for interface in interfaces:
            if interface not in self._listeners:
                try:
                    self._listeners[interface] = _ServiceNames(_open(interface), self._changed.set)
                except (Error, OSError) as error:
                    _log.warning("%s: brokers cannot be found there: %r", interface.name, error)


class _ServiceNames(ServiceListener):
    """Collects the names of announced services; their addresses are resolved later."""

    def __init__(self, zeroconf: Zeroconf, on_change: Callable[[], None] = lambda: None) -> None:
        self._on_change = on_change
        self._zeroconf = zeroconf
        self._names: set[tuple[str, str]] = set()
        ServiceBrowser(zeroconf, [PLAIN, SECURE], self)

    def add_service(self, _zeroconf: Zeroconf, kind: str, name: str) -> None:
        self._names.add((kind, name))
        self._on_change()

    def update_service(self, _zeroconf: Zeroconf, kind: str, name: str) -> None:
        self.add_service(_zeroconf, kind, name)

    def remove_service(self, _zeroconf: Zeroconf, kind: str, name: str) -> None:
        self._names.discard((kind, name))
        self._on_change()

    def close(self) -> None:
        self._zeroconf.close()

    def resolve(self) -> Iterable[Announced]:
        for kind, name in sorted(self._names.copy()):  # the library's thread changes them
            try:
                info = self._zeroconf.get_service_info(kind, name, _RESOLVE_MS)
            except Error as error:  # any device in the home can announce anything
                _log.warning("skipped the announcement %r: %r", name, error)
                continue
            if info is not None and info.port:
                hosts = tuple(info.parsed_scoped_addresses())
                thing = (info.properties.get(b"thing") or b"").decode("utf-8", "replace")
                yield Announced(name.removesuffix(f".{kind}"), thing, hosts, info.port, kind == SECURE)


@contextlib.contextmanager
def _named_errors(interface: str) -> Iterator[None]:
    try:
        yield
    except (Error, OSError) as error:
        remedy = "check what else is announced there"
        raise MulticastDnsError(interface, f"multicast DNS: {error!r}", remedy) from error


def _open(interface: Interface) -> Zeroconf:
    """Open multicast DNS on this interface alone."""
    zeroconf = Zeroconf(interfaces=[interface.ipv4], ip_version=IPVersion.V4Only)
    try:
        # The library's socket receives from every interface, and would answer the uplink's questions. Senders
        # are readers as well, and a socket that is bound may be bound again only with CAP_NET_RAW.
        transports = (*zeroconf.engine.readers, *zeroconf.engine.senders)
        for sock in {each.sock.fileno(): each.sock for each in transports}.values():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.name.encode())
    except BaseException:
        zeroconf.close()
        raise
    return zeroconf


class AnnouncedBroker(NamedTuple):
    """The announced broker to connect to: that of `thing`, or of any ('').

    An announcement is not authenticated. With a `certificate` only the broker that presents it is dialled;
    with a password and no certificate, none is.
    """

    thing: str
    certificate: PinnedCertificate | None
    has_login: bool

    def rejection(self, announced: Announced) -> str | None:
        """Return why an announcement is not of this broker, None if it is."""
        if self.thing not in ("", announced.thing):
            return f"it is of thing {announced.thing or 'unknown'}"
        if announced.with_tls and self.certificate is None:
            return "it uses TLS, and no certificate to recognise it is configured"
        if not announced.with_tls and self.certificate is not None:
            return "it does not use TLS, and cannot present the certificate"
        if not announced.with_tls and self.has_login:
            return "it would receive the password over the network without TLS"
        return None


class AnnouncedLink(Link):
    """A link to the `wanted` one of the brokers that a browser finds; dials nothing while there is none.

    `browse` starts a browser that calls its argument whenever it finds another broker; that wakes the owner,
    which calls `tick`. Several addresses are dialled in turn, first the last that worked.
    """

    def __init__(
        self,
        wanted: AnnouncedBroker,
        browse: Callable[[Callable[[], None]], BrokerBrowser],
        dial: DialAddress,
        backoff: Backoff,
        connect_timeout_s: float,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(
            LinkName.LOCAL, lambda number: dial(self._next(), number), backoff, connect_timeout_s
        )
        self._wanted = wanted
        self._dials = 0
        self._see(())
        self._browser = browse(wake)

    def deadline(self) -> float | None:
        return None if self._has_to_wait() else super().deadline()

    def tick(self, now: float) -> None:
        """Dial, unless no broker is announced."""
        found = self._browser.found
        if found != self._seen:
            self._see(found)
            _log.info("brokers in the home: %s", self.complaint or ", ".join(map(str, self._addresses)))
        if not self._has_to_wait():
            super().tick(now)

    def connected(self, generation: int, now: float) -> bool:
        is_current = super().connected(generation, now)
        if is_current:
            self._dials -= 1
        return is_current

    def close(self, timeout_s: float) -> None:
        super().close(timeout_s)
        self._browser.close()

    def _see(self, found: Sequence[Announced]) -> None:
        rejected = {each: self._wanted.rejection(each) for each in found}
        self._seen = found
        self._addresses = [
            BrokerAddress(host, each.port, self._wanted.certificate)
            for each, reason in rejected.items()
            for host in each.hosts
            if reason is None
        ]
        listed = "; ".join(f"{each.name}: {reason}" for each, reason in rejected.items())
        self.complaint = None if self._addresses else listed or "no broker is announced in the home"

    def _has_to_wait(self) -> bool:
        return not self.is_dialling and not self._addresses

    def _next(self) -> BrokerAddress:
        self._dials += 1
        return self._addresses[(self._dials - 1) % len(self._addresses)]
