"""DNS-SD over multicast DNS, by the library zeroconf: the one module of the device that needs a package.

It takes more memory than the forwarder, so only the commands of `python -m edge.discovery` load it, and
services that find their broker by it.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from zeroconf import Error, IPVersion, ServiceBrowser, ServiceInfo, ServiceListener, Zeroconf, __version__

from edge.discovery.announcement import PLAIN, SECURE, Service
from edge.discovery.errors import MulticastDnsError
from edge.discovery.interfaces import Interface, home_interfaces

if tuple(map(int, __version__.split(".")[:2])) < (0, 131):
    raise ImportError(f"zeroconf {__version__} does not let its sockets be bound to an interface")

_log = logging.getLogger(__name__)

_MOST_LABEL_BYTES = 63
_RESOLVE_MS = 3_000
"""For the answer of one device."""

_LOOK_EVERY_S = 10.0
"""Between two looks at the interfaces while nothing is announced anew, seconds."""


class Announced(NamedTuple):
    """A broker that somebody in the home announces; nobody vouches for it."""

    name: str
    thing: str
    hosts: tuple[str, ...]
    port: int
    with_tls: bool


class Announcer:
    """Tells the network of one interface of `thing`'s broker, until it is closed.

    Raises `MulticastDnsError`, but not when it is closed.
    """

    def __init__(self, interface: Interface, thing: str) -> None:
        self._thing = thing
        self._interface = interface.name
        self._told: list[ServiceInfo] = []
        with _named_errors(self._interface):
            self._line = _open(interface)

    def tell(self, services: Sequence[Service]) -> None:
        """Announce these, and no longer what was announced before. Takes a second: names are tried first."""
        with _named_errors(self._interface):
            self._withdraw()
            for each in services:
                info = self._info(each)
                self._line.register_service(info, allow_name_change=True)
                self._told.append(info)

    def close(self) -> None:
        """Say goodbye for what was announced, and free the sockets."""
        try:
            self._withdraw()
        except Error as error:
            _log.warning("%s: no goodbye, others forget it in time: %r", self._interface, error)
        finally:
            self._line.close()

    def _withdraw(self) -> None:
        while self._told:
            self._line.unregister_service(self._told.pop())

    def _info(self, service: Service) -> ServiceInfo:
        label = "".join(each if each.isalnum() else "-" for each in self._thing.lower())
        return ServiceInfo(
            service.kind,
            f"{self._thing[: _MOST_LABEL_BYTES - 6]} {service.port}.{service.kind}",
            service.port,
            properties={"thing": self._thing},
            server=f"{label[:_MOST_LABEL_BYTES]}.local.",
            parsed_addresses=list(service.addresses),
        )


def find(interfaces: Iterable[Interface], seconds: float) -> list[Announced]:
    """The brokers that are announced within `seconds`."""
    lines: list[Zeroconf] = []
    try:
        for each in interfaces:
            with _named_errors(each.name):
                lines.append(_open(each))
        heard = [_Heard(each) for each in lines]
        time.sleep(seconds)
        return sorted({found for each in heard for found in each.resolved()})
    finally:
        for line in lines:
            line.close()


class BrokerBrowser:
    """Knows the brokers that are announced on the interfaces called `names`, or on all, until it is closed.

    `on_change` is called by a thread of its own whenever `found` is another. Interfaces may come and go.
    """

    def __init__(self, names: Sequence[str], on_change: Callable[[], None]) -> None:
        self.found: tuple[Announced, ...] = ()
        self._names = names
        self._on_change = on_change
        self._heard: dict[Interface, _Heard] = {}
        self._news = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="dns-sd", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop browsing, and free the sockets."""
        self._closed = True
        self._news.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closed:
                self._follow(home_interfaces(self._names))
                found = tuple(sorted({each for heard in self._heard.values() for each in heard.resolved()}))
                if found != self.found:
                    self.found = found
                    self._on_change()
                self._news.wait(_LOOK_EVERY_S)
                self._news.clear()
        finally:
            self._follow([])

    def _follow(self, interfaces: Sequence[Interface]) -> None:
        for gone in self._heard.keys() - set(interfaces):
            self._heard.pop(gone).close()
        for interface in interfaces:
            if interface not in self._heard:
                try:
                    self._heard[interface] = _Heard(_open(interface), self._news.set)
                except (Error, OSError) as error:
                    _log.warning("%s: nobody is found there: %r", interface.name, error)


class _Heard(ServiceListener):
    """Notes which services there are; they are asked for their addresses later."""

    def __init__(self, line: Zeroconf, on_news: Callable[[], None] = lambda: None) -> None:
        self._on_news = on_news
        self._line = line
        self._names: set[tuple[str, str]] = set()
        ServiceBrowser(line, [PLAIN, SECURE], self)

    def add_service(self, _line: Zeroconf, kind: str, name: str) -> None:
        self._names.add((kind, name))
        self._on_news()

    def update_service(self, _line: Zeroconf, kind: str, name: str) -> None:
        self._names.add((kind, name))
        self._on_news()

    def remove_service(self, _line: Zeroconf, kind: str, name: str) -> None:
        self._names.discard((kind, name))
        self._on_news()

    def close(self) -> None:
        self._line.close()

    def resolved(self) -> Iterable[Announced]:
        for kind, name in sorted(self._names.copy()):  # the library's thread changes them
            try:
                info = self._line.get_service_info(kind, name, _RESOLVE_MS)
            except Error as error:  # anybody in the home announces what they like
                _log.warning("what is announced as %r is passed over: %r", name, error)
                continue
            if info is not None and info.port:
                hosts = tuple(info.parsed_scoped_addresses())
                thing = (info.properties.get(b"thing") or b"").decode("utf-8", "replace")
                yield Announced(name.removesuffix(f".{kind}"), thing, hosts, info.port, kind == SECURE)


@contextlib.contextmanager
def _named_errors(interface: str) -> Iterator[None]:
    try:
        yield
    except Error as error:
        raise MulticastDnsError(interface, repr(error)) from error


def _open(interface: Interface) -> Zeroconf:
    """Multicast DNS on this interface alone, whatever else the device is connected to."""
    line = Zeroconf(interfaces=[interface.ipv4], ip_version=IPVersion.V4Only)
    try:
        # The library's listening socket hears every interface, and would answer the uplink's questions.
        for each in (*line.engine.readers, *line.engine.senders):
            each.sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.name.encode())
    except BaseException:
        line.close()
        raise
    return line
